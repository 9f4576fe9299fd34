"""From tables to the heap: what changed since the last decision is laid out for the walks.

The only room that writes machines and needs into the heap; it decides which clusters sleep and nothing more.
"""
