"""Fencing: the highest token seen of each shard on each machine, known or not."""

from collections import OrderedDict

import msgspec

# Unknown ids are whatever a caller writes, so what is remembered of them is bounded; the oldest is forgotten.
_MAX_STRAYS = 65_536


class Token(msgspec.Struct, frozen=True, order=True):
    """Which life of a shard, and which attempt in it."""

    epoch: int
    sequence: int


class Mark(msgspec.Struct, frozen=True):
    """The newest token of a shard on a machine."""

    machine: str
    shard: str
    token: Token


class Marks:
    """Every mark there is. Those on machines that do not exist are bounded in number."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, Token]] = {}
        self._strays: OrderedDict[str, None] = OrderedDict()

    def passes(self, mark: Mark) -> bool:
        """Whether the token is strictly newer than what was seen."""
        seen = self._seen.get(mark.machine, {}).get(mark.shard)
        return seen is None or mark.token > seen

    def move(self, mark: Mark, known: bool) -> str:
        """Remember the token. Returns an unknown machine whose marks had to be forgotten for it, if any."""
        self._seen.setdefault(mark.machine, {})[mark.shard] = mark.token
        if known:
            self._strays.pop(mark.machine, None)
            return ""
        return self.stray(mark.machine)

    def stray(self, machine: str) -> str:
        """The machine's marks are those of one that does not exist. Returns one whose marks had to be forgotten."""
        if machine not in self._seen:
            return ""
        self._strays[machine] = None
        self._strays.move_to_end(machine)
        if len(self._strays) <= _MAX_STRAYS:
            return ""
        oldest, _ = self._strays.popitem(last=False)
        del self._seen[oldest]
        return oldest
