"""Certifies a provider from outside, through the six calls and nothing more. `run` puts a run together.

`checks` has one file an area of behaviours, `workbench` what the checks work with. It knows no provider's inside,
not even ours.
"""
