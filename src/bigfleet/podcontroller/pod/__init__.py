"""One pod read: which nodes it may run on, how it lies to its like, what disturbing it costs.

Pure: pods in, requests or complaints out.
"""
