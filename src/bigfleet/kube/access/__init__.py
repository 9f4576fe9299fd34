"""How one API server is reached: kubeconfig, credentials and their renewal, HTTP, and how many calls a second.

Bytes and errors only; objects are decoded elsewhere.
"""
