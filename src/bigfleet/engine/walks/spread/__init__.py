"""Rows with a topology spread: levels of domains, seats on machines, offers to buy from.

Only compiled functions, as in `walks`.
"""
