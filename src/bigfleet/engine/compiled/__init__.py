"""Compiled code of the walks: made by processes of its own, kept on disk, loaded into a process that decides.

`build` makes it, `kept` keeps and loads it. Nothing here changes what a decision is; only how fast it is made.
"""
