"""Machines, needs, quantities, buckets and profiles as pure values.

Here live frozen values and the rules about them. No I/O, no clock, no wire types, no event loop.
"""
