"""What conversion says when a message cannot be taken."""

from bigfleet.model.machine import Machine

_SHOWN = 200


def _shown(text: str) -> str:
    """Cut short: a peer's text comes back to it in a trailer, which is bounded, and goes into the log."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class WireError(ValueError):
    """A malformed message; `path` leads to the field at fault, from the message's root."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = _shown(path), _shown(problem)
        super().__init__(f"{self.path}: {self.problem}")


class MachineRefusedError(WireError):
    """A machine record that cannot be taken; `reason` is the label under which it is counted.

    Where only the price or the probability is at fault, `rest` is the record with the fields in `spoiled` at 0: a bad
    price costs the price and nothing else, so whoever has an older record may take the rest from here.
    """

    def __init__(
        self,
        machine_id: str,
        reason: str,
        path: str,
        problem: str,
        rest: Machine | None = None,
        spoiled: tuple[str, ...] = (),
    ) -> None:
        self.machine_id, self.reason, self.rest, self.spoiled = machine_id, reason, rest, spoiled
        self.field = _shown(path)
        super().__init__(f"machine {_shown(machine_id)!r}: {path}", problem)
