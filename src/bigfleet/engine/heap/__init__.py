"""The one array of whole numbers that a decision works in: its map (`columns`), access to it, and named values.

What stands in the columns is put there by `load` and changed by `walks`. Nothing here decides anything.
"""
