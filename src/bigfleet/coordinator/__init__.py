"""Tier one: which shard serves which cluster, domain and quota. Small, slow state.

Decides nothing about machines. Empty until built.
"""
