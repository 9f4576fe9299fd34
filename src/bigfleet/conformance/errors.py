"""What ends a check early, and what ends a whole run."""

import re

import grpc

_MOST_DETAIL_CHARACTERS = 400
# Numbers, hexadecimal ids and tokens: what differs between two machines that fail for one reason.
_PARTICULAR = re.compile(r"[0-9a-f]{8,}|[0-9]+")
# Codes with which a gRPC server answers when the code behind it raised an exception, whatever the call was.
_BREAKDOWNS = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}


class BrokenError(Exception):
    """The provider broke the behaviour under check. The text says what was done, what was expected and what came.

    Checks that break for the same reason raise errors of the same `cause`. Numbers and ids are left out of a cause.
    """

    def __init__(self, done: str, expected: str, came: str, *, cause: str = "") -> None:
        text = f"{done}: expected {expected}; came {came}"
        super().__init__(text)
        self.cause = _PARTICULAR.sub("…", cause or text)


class RefusedError(BrokenError):
    """A call was answered with an error code."""

    def __init__(self, done: str, code: grpc.StatusCode, details: str, expected: str = "") -> None:
        came = f"{code.name}: {details}"[:_MOST_DETAIL_CHARACTERS]
        if code is grpc.StatusCode.UNAVAILABLE:
            cause = "the provider does not answer: UNAVAILABLE"
        elif code in _BREAKDOWNS:
            cause = f"calls are answered with {came}"
        else:
            # A check with an expectation of its own judges the code, so its failure has a cause of its own.
            cause = "" if expected else f"{done.partition(' ')[0]} is answered with {came}"
        super().__init__(done, expected or "an answer", came, cause=cause)
        self.done = done
        self.code = code
        self.details = details


class StuckError(BrokenError):
    """A transition did not end in time."""


class NotApplicableError(Exception):
    """The behaviour does not apply to this provider. The text says why."""


class NotCheckedError(NotApplicableError):
    """The behaviour applies, but this run cannot show it. The text says what would make it possible.

    `subject` is the word by which the verdict names what was not checked.
    """

    def __init__(self, subject: str, text: str) -> None:
        super().__init__(text)
        self.subject = subject


class TargetError(Exception):
    """The whole run is impossible. The text is one line that names the target and says what to do.

    `log` holds the last lines that a provider started by the suite wrote before it gave up.
    """

    def __init__(self, text: str, log: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.log = log
