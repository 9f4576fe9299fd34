"""The kinds that BigFleet reads and writes, where a server keeps them, and how they are decoded.

Also what can be computed from them. No I/O.
"""
