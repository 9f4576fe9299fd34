"""What is known of every machine: the table, what providers last said, stamps, and machines by cluster.

No I/O, and time only as it is told. What a machine may become is decided by `model.machine` alone.
"""
