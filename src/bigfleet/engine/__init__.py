"""The decision engine: which machines should be bound to which cluster. Enter by `engine.Engine`.

`tables` hold machines and needs, `load` brings them into the `heap`, compiled `walks` decide on it.
No network, no Kubernetes, no event loop, no clock but the one that is given.
"""
