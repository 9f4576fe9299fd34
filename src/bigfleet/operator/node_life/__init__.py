"""Nodes on their way in and out: readiness, drains and holds, and Nodes left from earlier bindings.

Drains are decided without I/O; one file carries them out.
"""
