"""Nodes on their way in and out: which are Ready, which are drained, and which are left from earlier bindings.

`drains` decides about drains without I/O, and `drain_work` carries them out.
"""
