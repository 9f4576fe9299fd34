"""The kinds that BigFleet reads and writes, where a server keeps them, and how they are decoded.

Values and arithmetic about them; no I/O.
"""
