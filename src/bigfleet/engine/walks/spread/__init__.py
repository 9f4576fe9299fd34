"""Rows with a topology spread: levels of domains, seats on machines, offers to buy from.

Compiled walks, as in the folder above.
"""
