"""The provider's contract as values: machines, fencing marks, revisions, and how records look on the wire.

No I/O and no clock: a judgement is computed here and made durable by whoever asked for it.
"""
