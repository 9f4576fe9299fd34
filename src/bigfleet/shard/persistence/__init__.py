"""What outlives the process: the journal that the next life reads, and the audit log that people read.

Writes what it is given. It knows the form of records and none of the rules about them.
"""
