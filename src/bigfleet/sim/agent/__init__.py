"""The node agent: how a simulated host becomes a node of a real cluster with its bootstrap data, and how it leaves.

As a kubelet does, and with nothing else: token, certificate of its own, Node. KWOK then plays the kubelet's daily work.
"""
