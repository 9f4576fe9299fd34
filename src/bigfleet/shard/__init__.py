"""Tier two: takes the clusters' demand, decides every cycle, drives providers.

`run` is the process, `shell` does all I/O, `core` joins the parts, and every other room is one part without I/O.
A shard keeps deciding with the coordinator gone, so nothing here imports `bigfleet.coordinator`.
"""
