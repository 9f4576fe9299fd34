"""The compiled walks: the three phases and everything that they are built from.

Only functions that Numba compiles. They read and write the heap and call each other, and nothing else.
"""
