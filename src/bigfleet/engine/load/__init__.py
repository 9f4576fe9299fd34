"""From tables to the heap: what changed since the last decision is laid out for the walks.

Only this package writes machines and needs into the heap. It decides which clusters are awake, and nothing else.
"""
