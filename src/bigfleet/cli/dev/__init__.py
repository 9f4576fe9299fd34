"""`bigfleet dev`: real control planes on this machine, and simulated clusters whose demand is a file.

For development and for trying things out; nothing here is deployed.
"""
