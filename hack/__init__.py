"""Tools for whoever works on BigFleet: each is run by hand or by make, and none is part of the package."""
