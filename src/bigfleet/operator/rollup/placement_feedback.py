"""Placement feedback: demand that is said to be covered, and pods that find no place all the same (protocol.md 23).

The shard counts what fits on machines in sums and units; the scheduler has reasons of its own (ports, volumes, where
pods sit already). A row whose pods stay Unschedulable is raised by as many units, and let go again as nodes empty.
"""

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.resources import total

FRUITLESS = 2
"""After so many raises in a row that placed no pod a row is raised no further."""

STILL_SECONDS = 30.0
"""So long nothing has moved before anything is raised: the scheduler needs time for nodes that have just come."""


class PlacementSigns(msgspec.Struct, frozen=True, kw_only=True):
    """What one roll-up goes by.

    `unschedulable` counts the pods of each row that found no place; `covered` are the rows that the shard has taken and
    its last decision did not leave short, or None while it has not answered for the demand as it is; `moving` whether
    a machine of the cluster is in flight or its node not Ready; `empty` how many nodes of the cluster stand empty.
    """

    unschedulable: Mapping[NeedKey, int]
    covered: Collection[NeedKey] | None
    moving: bool
    empty: int


class _Raise:
    """How far a row is raised, and what came of it."""

    __slots__ = ("before", "fruitless", "units")

    def __init__(self) -> None:
        self.units = self.fruitless = 0
        # Unschedulable pods when it was last raised.
        self.before: int | None = None


class PlacementFeedback:
    """What is added to each row."""

    def __init__(self) -> None:
        self._raised: dict[NeedKey, _Raise] = {}
        self._said: set[NeedKey] = set()
        self._still_since: float | None = None
        # By row, its Unschedulable pods and since when there are no more than that.
        self._waiting: dict[NeedKey, tuple[int, float]] = {}

    @property
    def units(self) -> dict[NeedKey, int]:
        """By row, the units beyond what is asked for."""
        return {key: each.units for key, each in self._raised.items() if each.units}

    def judge(self, placement: PlacementSigns, now: float) -> list[NeedKey]:
        """Raise and let go; returns the rows of which it is new that raising them does not help."""
        given_up: list[NeedKey] = []
        covered = placement.covered
        self._note(placement.unschedulable, now)
        if covered is None or placement.moving:
            # While machines come and go nobody can say what will fit.
            self._still_since = None
        elif self._still_since is None:
            self._still_since = now
        elif now - self._still_since >= STILL_SECONDS:
            # What comes of this takes its time again.
            self._still_since = now
            # The shard's word is on the demand before pods that have only just come.
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
        """The rows with what is added to them. A row that nobody asks for any more is not held up by a raise."""
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
            # Judged once: until the next raise nothing more can come of this one.
            each.before = None
        if each.fruitless >= FRUITLESS:
            is_new = key not in self._said
            self._said.add(key)
            return is_new
        each.units += pods
        each.before = pods
        return False

    def _let_go(self, placement: PlacementSigns) -> None:
        """As many units as nodes stand empty, from rows all of whose pods have a place."""
        empty = placement.empty
        for key, units in sorted(Counter(self.units).items()):
            if empty and not placement.unschedulable.get(key):
                let_go = min(units, empty)
                self._raised[key].units -= let_go
                empty -= let_go
