"""The shard's side of the provider contract: the client, its fencing epoch, and how lists are walked and read.

No real provider lives here, ever, and no inventory: which records were last good is for the shard to know.
"""
