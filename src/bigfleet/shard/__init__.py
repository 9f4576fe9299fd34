"""Tier two: takes the clusters' demand, decides every cycle, drives providers.

Keeps deciding with the coordinator gone, so it never imports `bigfleet.coordinator`. So far there are supply, demand,
sessions and execute, as machines without I/O; what runs them is not built yet.
"""
