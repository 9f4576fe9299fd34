"""How a simulated operator and its cluster behave. Values, no behaviour."""

import msgspec

NODE_READY, NODE_DRAINED = "node_ready", "node_drained"
OURS = (NODE_READY, NODE_DRAINED)
"""The features of our operator. One without any is a stranger's, and knows no field from 100 up."""


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """How bootstrap requests are answered: so often (never, once, twice), so late, with user data or with an error."""

    answers: int = 1
    delay_seconds: float = 0.0
    ttl_seconds: int = 3600
    error: str = ""


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator and its cluster behave; None for a time means never.

    A machine's Node registers some time after it was heard to be Configured, and is Ready some time after that. A Node
    whose machine the shard has not named `forget_seconds` into a session went while nobody was looking.
    """

    features: tuple[str, ...] = OURS
    rollup_seconds: float = 10.0
    register_seconds: float | None = 0.0
    ready_seconds: float | None = 5.0
    forget_seconds: float = 60.0
    blob: Blob = Blob()
