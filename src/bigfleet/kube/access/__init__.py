"""How one API server is reached: kubeconfig, credentials and their renewal, HTTP, and the limit of calls a second.

It passes bytes and errors; objects are decoded elsewhere.
"""
