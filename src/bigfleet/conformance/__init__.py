"""Certifies a provider from outside, through the six calls alone.

`run` is one run of the suite, `checks` has a file for each area of behaviours, `workbench` has what checks work with.
Nothing here knows the inside of a provider, not even of ours.
"""
