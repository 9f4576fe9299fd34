"""Simulated parts that stand in for a real fleet: for demos, tests and planning.

Nothing here is deployed; what it drives is the very code that is.
"""
