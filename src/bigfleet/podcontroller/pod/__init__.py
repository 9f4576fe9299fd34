"""What one pod asks for: which nodes it may run on, how it is placed among its replicas, what disturbing it costs.

Pure functions: a pod in, a request's content or complaints out.
"""
