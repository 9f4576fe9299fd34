"""Certifies a provider from outside, through the six calls and nothing more.

One module an area of behaviours; `run` puts them together. Knows no provider's inside, not even ours.
"""
