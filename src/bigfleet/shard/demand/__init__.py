"""What every cluster asks for: the table of accepted roll-ups, the guard on sudden falls, and how roll-ups are read.

No I/O, and time only as it is told.
"""
