"""Simulated clusters: worlds of pods and nodes, and operators that speak for them over real sessions.

`world` has no clock and no network; `cluster` has no network; `operator` does the I/O; operators in `rogues` break the
rules on purpose.
"""
