"""`bigfleetctl`: asking a shard over gRPC, and showing its answers as tables, words and JSON.

Nothing is decided here; everything shown is a shard's answer.
"""
