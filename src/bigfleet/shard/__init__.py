"""Tier two: takes the clusters' demand, decides every cycle, drives providers.

Keeps deciding with the coordinator gone, so it never imports `bigfleet.coordinator`. Empty until built.
"""
