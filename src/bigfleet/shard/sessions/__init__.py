"""Operators' sessions: frames in, frames out, what waits to be sent, and what operators report of Nodes.

State machines without I/O; the streams themselves are in `shard.shell`.
"""
