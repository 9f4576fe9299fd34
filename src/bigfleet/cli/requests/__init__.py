"""CapacityRequests named on a command line: reading their manifests, and their roll-up as a table."""
