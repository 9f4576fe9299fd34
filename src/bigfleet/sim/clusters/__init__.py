"""Simulated clusters: worlds of pods and nodes, and operators that speak for them over real sessions.

`world` has no clock and no network, `cluster` no network, `operator` is the shell; `rogues` break the rules on purpose.
"""
