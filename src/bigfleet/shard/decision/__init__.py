"""Around one decision of the engine: its input, the rails on giving back, hold-outs, shortfalls and durations.

No I/O. The engine itself is `bigfleet.engine`.
"""
