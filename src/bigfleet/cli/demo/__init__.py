"""`bigfleet demo`: its processes, its stage, what it watches and how it is shown.

The story itself is `bigfleet.sim.story`.
"""
