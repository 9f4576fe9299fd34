"""Benchmarks: figures and ratios for every budget of the project.

One module for each part, with a `run(report)`. A benchmark prints figures and does not fail; tests never measure time.
"""
