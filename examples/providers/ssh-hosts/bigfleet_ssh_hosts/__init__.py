"""A BigFleet provider for hardware that is reached by SSH: a static inventory, and three scripts that run on its hosts.

Built on `bigfleet.providerkit` and the system's own `ssh`; nothing else of BigFleet is used.
"""
