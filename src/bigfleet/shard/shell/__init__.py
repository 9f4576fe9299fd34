"""All I/O of a shard: operator streams, provider lists and calls, the decision's thread, the cycle.

The shell carries out the core's orders and brings back what happened. It decides nothing.
"""
