"""Fencing: the highest token of each shard on each machine, also on machines that do not exist."""

from collections import OrderedDict

import msgspec

# A caller can write any id, so the number of unknown machines with marks is bounded. The oldest are forgotten.
_MAX_STRAYS = 65_536


class Token(msgspec.Struct, frozen=True, order=True):
    """A fencing token: the epoch of a shard, and the number of a call within it."""

    epoch: int
    sequence: int


class Mark(msgspec.Struct, frozen=True):
    """The newest token of a shard on a machine."""

    machine: str
    shard: str
    token: Token


class Marks:
    """All marks. A stray is a machine that does not exist and has marks; the number of strays is bounded."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, Token]] = {}
        self._strays: OrderedDict[str, None] = OrderedDict()

    def passes(self, mark: Mark) -> bool:
        """Whether the token is strictly newer than the mark."""
        seen = self._seen.get(mark.machine, {}).get(mark.shard)
        return seen is None or mark.token > seen

    def move(self, mark: Mark, known: bool) -> str:
        """Make the token the mark. Returns the stray whose marks were forgotten to make room, if any."""
        self._seen.setdefault(mark.machine, {})[mark.shard] = mark.token
        if known:
            self._strays.pop(mark.machine, None)
            return ""
        return self.stray(mark.machine)

    def stray(self, machine: str) -> str:
        """Count the machine as a stray. Returns the stray whose marks were forgotten to make room, if any."""
        if machine not in self._seen:
            return ""
        self._strays[machine] = None
        self._strays.move_to_end(machine)
        if len(self._strays) <= _MAX_STRAYS:
            return ""
        oldest, _ = self._strays.popitem(last=False)
        del self._seen[oldest]
        return oldest
