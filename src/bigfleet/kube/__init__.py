"""Typed access to a Kubernetes API server: list, watch, patch, evict, lead.

`access` is how the server is reached, `objects` what the server keeps. Nothing here knows of needs or machines.
"""
