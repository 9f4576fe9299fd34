"""Carrying decisions out: commitments, their steps, and the recovery of Failed machines.

State machines that take events and return effects. The provider's calls themselves are made by `shard.shell`.
"""
