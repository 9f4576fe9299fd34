"""Placement feedback: rows are raised when their pods stay Unschedulable though the shard says they are covered.

The shard counts what fits on machines in sums and units. The scheduler has reasons of its own: ports, volumes, where
other pods sit. So a row whose pods stay Unschedulable is raised by as many units, and lowered again as nodes become
empty (protocol rule 23).
"""

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.resources import total

FRUITLESS = 2
"""After so many raises in succession that placed no pod, a row is raised no further."""

STILL_SECONDS = 30.0
"""No row is raised before nothing has moved for so long: the scheduler needs time for nodes that have just come."""


class PlacementSigns(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a roll-up is made."""

    #: By row, how many of its pods the scheduler found no node for.
    unschedulable: Mapping[NeedKey, int]
    #: Rows that the shard has taken and did not leave short; None while it has not answered for the present demand.
    covered: Collection[NeedKey] | None
    #: Whether a machine of the cluster is in flight, or its Node not Ready.
    moving: bool
    #: How many nodes of the cluster are empty.
    empty: int


class _Raise:
    """How far one row is raised, and whether that placed pods."""

    __slots__ = ("before", "fruitless", "units")

    def __init__(self) -> None:
        #: Units that are added to the row.
        self.units = 0
        #: Raises in succession that placed no pod.
        self.fruitless = 0
        #: Unschedulable pods when the row was last raised; None once that raise has been judged.
        self.before: int | None = None


class PlacementFeedback:
    """The units that are added to each row."""

    def __init__(self) -> None:
        self._raised: dict[NeedKey, _Raise] = {}
        #: Rows that were reported as ones that raising does not help.
        self._said: set[NeedKey] = set()
        #: Since when no machine has moved, or since the last raise.
        self._still_since: float | None = None
        #: By row, how many pods are Unschedulable and since when there have not been more.
        self._waiting: dict[NeedKey, tuple[int, float]] = {}

    @property
    def units(self) -> dict[NeedKey, int]:
        """By row, the units that are added to what its requests ask for."""
        return {key: each.units for key, each in self._raised.items() if each.units}

    def judge(self, placement: PlacementSigns, now: float) -> list[NeedKey]:
        """Raise rows and lower them. Returns the rows for which it has just become clear that raising does not help."""
        given_up: list[NeedKey] = []
        covered = placement.covered
        self._note(placement.unschedulable, now)
        if covered is None or placement.moving:
            # While machines come and go, nobody can tell what will fit.
            self._still_since = None
        elif self._still_since is None:
            self._still_since = now
        elif now - self._still_since >= STILL_SECONDS:
            # The effect of a raise takes as long again to show.
            self._still_since = now
            # The shard has not yet answered for pods that have only just come.
            waiting = [
                (key, pods)
                for key, (pods, since) in self._waiting.items()
                if key in covered and now - since >= STILL_SECONDS
            ]
            given_up = [key for key, pods in waiting if self._raise(key, pods)]
            self._let_go(placement)
        for key in [key for key, each in self._raised.items() if not placement.unschedulable.get(key)]:
            each = self._raised[key]
            each.before, each.fruitless = None, 0
            self._said.discard(key)
            if not each.units:
                del self._raised[key]
        return given_up

    def apply(self, needs: tuple[Need, ...]) -> tuple[Need, ...]:
        """The rows, each with the units that are added to it. A row without requests is forgotten."""
        if not any(each.units for each in self._raised.values()):
            return needs
        rows = []
        kept = set()
        for need in needs:
            key = need.key
            each = self._raised.get(key)
            if each is not None:
                kept.add(key)
                if each.units:
                    aggregate = total([(need.aggregate, 1), (need.unit, each.units)])
                    need = Need(need.profile, aggregate, need.unit, need.group)  # noqa: PLW2901 - the same row, raised
            rows.append(need)
        for key in self._raised.keys() - kept:
            del self._raised[key]
        return tuple(rows)

    def _note(self, unschedulable: Mapping[NeedKey, int], now: float) -> None:
        noted = {}
        for key, pods in unschedulable.items():
            before, since = self._waiting.get(key, (0, now))
            if pods:
                noted[key] = pods, now if pods > before else since
        self._waiting = noted

    def _raise(self, key: NeedKey, pods: int) -> bool:
        each = self._raised.setdefault(key, _Raise())
        if each.before is not None:
            each.fruitless = each.fruitless + 1 if pods >= each.before else 0
            # A raise is judged once: nothing more comes of it until the next.
            each.before = None
        if each.fruitless >= FRUITLESS:
            is_new = key not in self._said
            self._said.add(key)
            return is_new
        each.units += pods
        each.before = pods
        return False

    def _let_go(self, placement: PlacementSigns) -> None:
        """Lower rows whose pods all have a place, by as many units together as nodes are empty."""
        empty = placement.empty
        for key, units in sorted(Counter(self.units).items()):
            if empty and not placement.unschedulable.get(key):
                let_go = min(units, empty)
                self._raised[key].units -= let_go
                empty -= let_go
