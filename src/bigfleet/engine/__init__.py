"""The decision engine: which machines should be bound to which cluster. Enter by `engine.Engine`.

`tables` hold machines and needs, `load` writes them into the `heap`, and compiled `walks` decide there. No network, no
Kubernetes, no event loop, and no clock: the caller says what time it is.
"""
