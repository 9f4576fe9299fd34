"""The decision: which machines serve which cluster, from columns of integers.

Pure functions of (machines, needs, policy, clock). No I/O, no randomness, no wire types. Empty until built.
"""
