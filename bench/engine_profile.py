"""Where the time of a decision or of a batch of changes goes, measured apart from the figure that it explains.

Steps of the engine are timed by wrapping their functions while a profile is taken.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bigfleet.engine.engine import Engine
from bigfleet.engine.heap.heap import Heap
from bigfleet.engine.load import layout
from bigfleet.engine.load.pool import Pool
from bigfleet.engine.load.rows import Rows
from bigfleet.engine.load.structure import Structure
from bigfleet.engine.tables import inventory
from bigfleet.engine.tables.arrays import Ids
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.tables.shapes import Shapes
from bigfleet.engine.walks import phases, wake

Profile = dict[str, float]
"""Seconds by step."""

_DECISION: tuple[tuple[Any, str, str], ...] = (
    (layout.Layout, "prepare", "laying tables: the rest"),
    (Inventory, "ranked", "laying tables: ids in order"),
    (Inventory, "reshape", "laying tables: shapes split by labels"),
    (Shapes, "update", "laying tables: requirements on shapes"),
    (Structure, "lay", "laying tables: shapes"),
    (NeedsTable, "order", "laying tables: rows in order"),
    (Rows, "lay_clusters", "laying tables: clusters"),
    (Rows, "number", "laying tables: rows"),
    (Rows, "lay", "laying tables: rows"),
    (layout.Layout, "_lay_machines", "laying tables: machines"),
    (Pool, "lay", "laying tables: the pool"),
    (Heap, "reserve", "laying tables: making room"),
    (wake, "wake", "laying tables: who is awake"),
    (wake, "reset_awake", "laying tables: nothing is taken"),
    (phases, "phase_one", "phase 1"),
    (phases, "phase_two", "phase 2"),
    (phases, "mark_excess", "giving back: excess"),
    (Engine, "_reclaims", "giving back: reclaims"),
    (Engine, "_releases", "giving back: releases"),
    (Engine, "_acquisitions", "outcome: actions"),
    (Engine, "_outcome", "outcome: the rest"),
)

_CHANGES: tuple[tuple[Any, str, str], ...] = (
    (Inventory, "apply", "the last word on each machine"),
    (Inventory, "_read", "reading: the rest"),
    (inventory, "ids_of", "reading: ids"),
    (Ids, "find", "reading: rows by id"),
    (Inventory, "_shapes_of", "reading: shapes and labels"),
    (inventory, "fields_of", "reading: fields of records"),
    (Inventory, "_write", "writing: columns"),
    (Inventory, "_clusters", "writing: clusters"),
    (Inventory, "_stamped_for", "writing: need keys"),
    (Inventory, "_offer", "writing: offers"),
    (Inventory, "_place", "writing: new rows"),
)


def of_decision(decide: Callable[[], object], rounds: int) -> list[Profile]:
    """Profiles of `rounds` decisions, the quickest first."""
    return _profiles(_DECISION, decide, rounds)


def of_changes(apply: Callable[[], object], rounds: int) -> list[Profile]:
    """Profiles of applying changes `rounds` times, the quickest first."""
    return _profiles(_CHANGES, apply, rounds)


def _profiles(steps: tuple[tuple[Any, str, str], ...], work: Callable[[], object], rounds: int) -> list[Profile]:
    profiles = []
    for _ in range(rounds):
        with _timed(steps) as profile:
            work()
        profiles.append(dict(profile))
    return sorted(profiles, key=lambda profile: sum(profile.values()))


@contextmanager
def _timed(steps: tuple[tuple[Any, str, str], ...]) -> Iterator[Profile]:
    """Time these functions while the body runs. The time of one function leaves out what it spends in another."""
    spent: Profile = defaultdict(float)
    running: list[float] = []

    def timed(function: Callable[..., Any], step: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            running.append(0.0)
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                taken = time.perf_counter() - start
                spent[step] += taken - running.pop()
                if running:
                    running[-1] += taken

        return call

    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in steps]
    try:
        for owner, name, step in steps:
            setattr(owner, name, timed(getattr(owner, name), step))
        yield spent
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
