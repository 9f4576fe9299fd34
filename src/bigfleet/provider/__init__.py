"""The shard's side of the provider contract: the client, and the simulated cloud behind the same contract.

No real provider lives here, ever. Empty until built.
"""
