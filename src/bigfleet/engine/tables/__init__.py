"""Machines and needs as columns that are kept between decisions, and the check of every record on its way in.

Plain Python and numpy. Strings end here: behind these tables everything is a number.
"""
