"""The per-cluster agent: dials the shard, reports demand, answers bootstrap requests and reclaim instructions.

`run` is the process, `core` joins the parts, and `link` keeps the one stream to the shard. The operator only dials out:
it listens for nothing but metrics and health.
"""
