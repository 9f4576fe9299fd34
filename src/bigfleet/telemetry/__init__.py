"""Logs, metrics and health: what a program tells the people who run it.

Names of metrics and log fields live here; what they mean is known by the layers above.
"""
