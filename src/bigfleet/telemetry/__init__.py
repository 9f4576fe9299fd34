"""Logs, metrics, traces and health: what a program tells the people who run it.

The names of metrics are here; the layers above know what they count.
"""
