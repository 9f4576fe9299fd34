"""What the cluster asks for: requests, pods, nodes and daemons as the watches show them, added up into one roll-up.

Also what becomes of requests once the shard has taken a roll-up. Nothing here changes a Node.
"""
