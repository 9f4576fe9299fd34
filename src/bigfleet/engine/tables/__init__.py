"""Machines and needs as columns that are kept between decisions, and the check of every record on its way in.

Plain Python and numpy. Strings become numbers here: the heap and the walks know no strings.
"""
