"""The roll-up guard (protocol rule 17): a cluster that suddenly wants next to nothing must say so more than once."""

from collections.abc import Iterable
from typing import NamedTuple

from bigfleet.model.demand.need import Need
from bigfleet.model.resources import Resources, quantity

KEPT_PERCENT = 10
"""A roll-up is doubtful if it asks for less than this of any resource that was asked for before."""

IN_A_ROW = 3
"""How many doubtful roll-ups in a row are believed."""

WAIT_SECONDS = 60.0
"""Over how long doubtful roll-ups must come before they are believed."""

_COMPARED = frozenset({"cpu", "memory"})
"""The resources that count of a machine whose stamp names no unit."""

_NAMED = 3
"""How many resources the reason names."""


class Doubted(NamedTuple):
    """A roll-up that waits for confirmation."""

    #: When the first of the doubtful roll-ups came.
    since: float
    #: Why the last of them was not taken.
    reason: str


class RollupGuard:
    """Judges the roll-ups of one cluster, in the order in which they come."""

    def __init__(self) -> None:
        self._count = 0
        self._since = 0.0
        self._said_at = 0
        self._reason = ""

    @property
    def doubted(self) -> Doubted | None:
        """The doubtful roll-up that waits for confirmation, if there is one."""
        return Doubted(self._since, self._reason) if self.quarantined else None

    @property
    def quarantined(self) -> bool:
        """Whether a doubtful roll-up waits for confirmation."""
        return self._count > 0

    def reset(self) -> None:
        """Forget doubtful roll-ups: a good one came, or their session has ended."""
        self._count = 0

    def judge(self, asked: Resources, before: Resources, standard: str, said_at: int, now: float) -> str:
        """Why the roll-up is not taken yet; empty where it is taken.

        The roll-up is measured by `before`, and `standard` is that in words. `said_at` is the roll-up's own timestamp.
        """
        doubts = _doubts(dict(asked), before)
        if not doubts:
            self.reset()
            return ""
        if not self._count:
            self._since = now
        # A frame that came twice counts once. Of operators that fill in no timestamp, every frame counts.
        if not self._count or not said_at or said_at != self._said_at:
            self._count += 1
        self._said_at = said_at
        waited = now - self._since
        if self._count >= IN_A_ROW and waited >= WAIT_SECONDS:
            self.reset()
            return ""
        self._reason = (
            f"{doubts}: below {KEPT_PERCENT} % of what {standard}; believed after {IN_A_ROW} such roll-ups in a row "
            f"over {WAIT_SECONDS:.0f} s, and this is number {self._count} after {waited:.0f} s"
        )
        return self._reason


def _doubts(asked: dict[str, int], before: Resources) -> str:
    fallen = [(name, units) for name, units in before if asked.get(name, 0) * 100 < units * KEPT_PERCENT]
    words = [
        f"{name} from {quantity(name, units)} to {quantity(name, asked.get(name, 0))}"
        for name, units in fallen[:_NAMED]
    ]
    if len(fallen) > _NAMED:
        words.append(f"{len(fallen) - _NAMED} more")
    return ", ".join(words)


def total_asked(needs: Iterable[Need]) -> Resources:
    """The sum of all rows. It has no bound, as `model.resources.total` has, since it is only compared."""
    sums: dict[str, int] = {}
    for need in needs:
        for name, units in need.aggregate:
            sums[name] = sums.get(name, 0) + units
    return tuple(sorted(sums.items()))


def total_bound(bindings: Iterable[tuple[Resources, Resources]]) -> Resources:
    """What a cluster asked for by its machines, after a restart: from their usable resources and units on stamps.

    Every machine has storage and pod slots, asked for or not. So only resources that a machine's unit names count, and
    cores and memory where there is no unit. Otherwise every restart would doubt clusters that never asked for storage.
    """
    sums: dict[str, int] = {}
    for usable, unit in bindings:
        names = {name for name, _ in unit} or _COMPARED
        for name, units in usable:
            if name in names:
                sums[name] = sums.get(name, 0) + units
    return tuple(sorted(sums.items()))
