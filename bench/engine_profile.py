"""Where the time of a decision or of a batch of changes goes, measured apart from the figure that it explains.

Steps of the engine are timed by wrapping their functions while a profile is taken. Phase 1 is one compiled walk. So its
rows are served here one by one, by the same walks, with a clock between the sorts of rows.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numba import types

from bigfleet.engine.engine import Engine
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Heap, Work, at
from bigfleet.engine.heap.values import NO, NONE
from bigfleet.engine.jit import entry, walk
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
from bigfleet.engine.walks.acquire import acquire
from bigfleet.engine.walks.credit import credit_plain
from bigfleet.engine.walks.serve import serve_gang, serve_whole_from_own
from bigfleet.engine.walks.spread.levels import has_hard_spread
from bigfleet.engine.walks.spread.rows import serve_spread

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
    (phases, "phase_one", "phase 1: standings"),
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
    (Inventory, "_owns", "writing: need keys"),
    (Inventory, "_offer", "writing: offers"),
    (Inventory, "_place", "writing: new rows"),
)

_SORTS = (
    "phase 1: gangs whole on their own",
    "phase 1: gangs, domain chosen",
    "phase 1: spread rows",
    "phase 1: plain rows, credit",
    "phase 1: plain rows, acquire",
)
_WHOLE, _CHOSEN, _SPREAD, _CREDIT, _ACQUIRE = range(len(_SORTS))

_Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
_walk, _entry = cast("_Compile", walk), cast("_Compile", entry)

_MONOTONIC = 1
# The function is found by name and not by address, so that the compiled code can be cached.
_clock_gettime: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))


@_walk
def _now(clock: Array) -> int:
    """The monotonic clock, in nanoseconds."""
    _clock_gettime(_MONOTONIC, clock.ctypes.data)
    now: int = clock[0] * 1_000_000_000 + clock[1]
    return now


@_entry
def _serve_by_sort(w: Work, rows: Array, spent: Array, clock: Array) -> None:
    """Serve these rows one after the other, as `phases.phase_one` does, and add up the time that each sort takes."""
    w.h[c.LISTS_IN_USE] = 1
    before = _now(clock)
    for i in range(rows.shape[0]):
        need = rows[i]
        if at(w, c.N_TOPOLOGY, need) >= 0:
            sort = _WHOLE
            if not serve_whole_from_own(w, need):
                sort = _CHOSEN
                serve_gang(w, need, NO)
        elif has_hard_spread(w, need):
            sort = _SPREAD
            serve_spread(w, need, NONE, at(w, c.N_ACTS, need) == 1, NO, NO)
        else:
            sort = _ACQUIRE
            credit_plain(w, need)
            after = _now(clock)
            spent[_CREDIT] += after - before
            before = after
            if at(w, c.N_MISSING, need) > 0:
                acquire(w, need, NONE, NO)
        after = _now(clock)
        spent[sort] += after - before
        before = after
        if w.h[c.OVERFLOW]:
            return


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

    def phase_one(w: Work, rows: Array, awake: Array) -> None:
        sorts = np.zeros(len(_SORTS), np.int64)
        _serve_by_sort(w, rows, sorts, np.zeros(2, np.int64))
        for sort, nanoseconds in zip(_SORTS, sorts.tolist(), strict=True):
            spent[sort] += nanoseconds / 1e9
        # What is left of the phase once all rows are served.
        rest(w, rows[:0], awake)

    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in steps]
    try:
        for owner, name, step in steps:
            setattr(owner, name, timed(getattr(owner, name), step))
        if any(owner is phases for owner, _, _ in steps):
            rest = phases.phase_one
            phases.phase_one = phase_one
        yield spent
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
