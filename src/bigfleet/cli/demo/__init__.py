"""`bigfleet demo`: the command, its processes, its stage, what it watches and how that is shown.

The story that the demo tells is in `bigfleet.sim.story`.
"""
