"""What an operator and a shard agree on in the first frame of a session: the protocol's version and its features."""

PROTOCOL_VERSION = "v1alpha1"
"""The version that Hello names; a shard refuses every other."""

NODE_READY = "node_ready"
"""The feature of an operator that says when a machine's Node is Ready."""

NODE_DRAINED = "node_drained"
"""The feature of an operator that says when a node is empty."""

OPERATOR_FEATURES = (NODE_READY, NODE_DRAINED)
"""The features of our own operator. An operator without any knows no field of a frame from number 100 up."""
