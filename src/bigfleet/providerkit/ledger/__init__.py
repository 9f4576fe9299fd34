"""The provider's contract as values: machines, fencing marks, revisions, and records as bytes.

There is no I/O and no clock here. Whoever asks for a judgement makes it durable.
"""
