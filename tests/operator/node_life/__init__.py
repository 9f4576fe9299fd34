"""How machines join a cluster and leave it: bootstrap, drains, Node objects, on an API server in memory."""
