"""The decision engine: which machines should be bound to which cluster. Enter by `decide.Engine`.

Compiled walks over one heap of columns; no network, no Kubernetes, no event loop, no clock but the one it is given.
"""
