"""Certifies a provider from outside, through the six calls and nothing more.

Knows no provider's inside, not even ours. Empty until built.
"""
