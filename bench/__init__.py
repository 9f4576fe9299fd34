"""Benchmarks: figures and ratios for every budget of the project.

One module a part, each with a `run(report)`. Nothing here passes or fails; tests never measure time.
"""
