"""Why a check stops, and why a whole run does."""

import grpc


class BrokenError(Exception):
    """The provider broke the behaviour under check: what was done, what had to come, and what came."""

    def __init__(self, done: str, expected: str, came: str) -> None:
        super().__init__(f"{done}: expected {expected}; came {came}")


class RefusedError(BrokenError):
    """A call that was answered with an error code."""

    def __init__(self, done: str, code: grpc.StatusCode, details: str, expected: str = "an answer") -> None:
        super().__init__(done, expected, f"{code.name}: {details}"[:400])
        self.done = done
        self.code = code
        self.details = details


class StuckError(BrokenError):
    """A transition that did not end in time."""


class NotApplicableError(Exception):
    """The behaviour cannot be shown on this target; the text says why, and what would make it possible."""


class TargetError(Exception):
    """The run as a whole cannot be done: one line naming the target and what to do."""
