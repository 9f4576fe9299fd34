"""gRPC services for people: ShardAdmin and ShardRead, and where their answers come from.

They read the shard through its parts. No part of the shard imports this room.
"""
