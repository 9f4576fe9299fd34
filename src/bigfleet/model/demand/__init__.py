"""Demand as values: requests, profiles, penalty buckets, needs, and the aggregation of requests into rows.

No I/O, as everywhere in the model.
"""
