"""Tier two: takes the clusters' demand, decides every cycle, drives providers.

Keeps deciding with the coordinator gone, so it never imports `bigfleet.coordinator`. Pure machines so far: supply, demand, sessions,
execute; the shell that runs them is not built yet.
"""
