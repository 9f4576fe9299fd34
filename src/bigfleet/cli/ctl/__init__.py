"""`bigfleetctl`: asking a shard, and its answers as tables, words and JSON.

Only a client: whatever is said here was asked from a shard over gRPC.
"""
