"""Simulated clouds, clusters and hosts that stand in for a real fleet, for demos, tests and planning.

Nothing here is deployed. What the simulated parts drive is the code that is deployed.
"""
