"""Typed access to a Kubernetes API server: list, watch, patch, evict, lead.

`access` is how the server is reached, `objects` what it keeps. It knows nothing of needs or machines.
"""
