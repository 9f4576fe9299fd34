"""What the cluster asks for: requests, pods, nodes and daemons as the watches show them, added up into one roll-up.

Requests are marked Acknowledged here too, once the shard has taken a roll-up with them. Nothing here changes a Node.
"""
