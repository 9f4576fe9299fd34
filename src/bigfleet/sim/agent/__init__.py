"""The node agent: how a simulated host becomes a node of a real cluster with its bootstrap data, and how it leaves.

The agent joins as a kubelet does: with the token it gets a certificate of its own, and with that it registers the Node.
KWOK then does the kubelet's daily work.
"""
