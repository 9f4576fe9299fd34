"""The shard's side of the provider contract: the client, its fencing epoch, and how lists are walked and read.

No real provider is here, and no inventory: the shard itself remembers which records were last good.
"""
