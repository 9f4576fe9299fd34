"""The compiled walks: the three phases and everything that they are built from.

Only functions that Numba compiles. They read and write the heap, call each other,
and know no table and no record.
"""
