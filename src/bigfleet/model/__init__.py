"""Machines, needs, quantities and requests as pure values. `machine` alone says what a machine may become.

Frozen values and the rules about them. No I/O, no clock, no wire types, no event loop.
"""
