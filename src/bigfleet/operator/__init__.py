"""The per-cluster agent: dials the shard, reports demand, answers bootstrap and reclaim.

Outbound only; it has no listener but metrics and health. `core` is its mind, `run` the process around it.
"""
