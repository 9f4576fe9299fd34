"""How a simulated operator and its cluster behave. Values, no behaviour."""

import msgspec

from bigfleet.wire.hello import OPERATOR_FEATURES


class BlobAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """How bootstrap requests are answered."""

    answers: int = 1
    """How many times each request is answered: 0, 1, or 2 for an operator that repeats itself."""
    delay_seconds: float = 0.0
    ttl_seconds: int = 3600
    """How long the operator says that the token is good."""
    error: str = ""
    """Sent in the place of user data; empty: user data is sent."""


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator and its cluster behave."""

    features: tuple[str, ...] = OPERATOR_FEATURES
    rollup_seconds: float = 10.0
    """The time between two roll-ups while demand does not change."""
    register_seconds: float | None = 0.0
    """The time from the news that a machine is Configured until its Node registers; None: it never does."""
    ready_seconds: float | None = 5.0
    """The time from a Node's registration until it is Ready; None: it never is."""
    forget_seconds: float = 60.0
    """A machine that the shard has not named this long into a session is forgotten, and its Node removed."""
    blob: BlobAnswers = BlobAnswers()
