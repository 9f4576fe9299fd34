"""The errors of conversion: a message or a machine record that breaks the contract."""

from bigfleet.model.machine import Machine

# Characters of a peer's text that an error quotes.
_SHOWN = 200


def _shown(text: str) -> str:
    """A peer's text, cut short: it goes into the log, and back to the peer in a gRPC trailer, which is bounded."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class WireError(ValueError):
    """A malformed message. `path` names the field at fault, from the message's root."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = _shown(path), _shown(problem)
        super().__init__(f"{self.path}: {self.problem}")


class MachineRefusedError(WireError):
    """A machine record that breaks the contract; `reason` is the label under which it is counted.

    Where only the price or the probability is at fault, `rest` is the record with the fields in `spoiled` at 0. The
    caller may use it with the price of an older record: a bad price costs the price and nothing else.
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
