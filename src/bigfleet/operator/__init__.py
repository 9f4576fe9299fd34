"""The per-cluster agent: dials the shard, reports demand, answers bootstrap requests and reclaim instructions.

`run` is the process, `core` joins the parts, `link` is the one stream. Outbound only: it listens for nothing but
metrics and health.
"""
