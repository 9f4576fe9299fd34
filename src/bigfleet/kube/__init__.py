"""Typed access to a Kubernetes API server: list, watch, patch, evict.

Knows objects and resource versions, nothing of needs or machines.
"""
