"""Law 6: an engine that is told only what changed answers as a new one that is told everything, byte for byte."""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Work
from bigfleet.engine.load.layout import Layout
from bigfleet.engine.walks import wake
from tests.engine.oracle import search
from tests.engine.oracle.build import acted, fleet, machine, need
from tests.engine.oracle.generate import RACK, Taste, cases
from tests.engine.oracle.keeper import Twins
from tests.engine.oracle.world import Kind, Need, World

# A longer look: BIGFLEET_EXAMPLES=100000 make test TESTS=tests/engine/test_kept.py
EXAMPLES = int(os.environ.get("BIGFLEET_EXAMPLES", "1500"))
LOOK = settings(max_examples=max(1, EXAMPLES // 15), deadline=None, suppress_health_check=list(HealthCheck))
ONE_CHANGE = tuple[World, tuple[Need, ...]]
SEEDS = st.integers(0, 1_000_000)


def taste(check: str) -> Taste:
    return search.CHECKS[check][1]


@LOOK
@given(cases(taste("kept, loop")), SEEDS)
def test_law_6_in_a_closed_loop(case: ONE_CHANGE, seed: int) -> None:
    assert search.keeps_up_in_a_loop(search.Case(*case, seed)) == []


@LOOK
@given(cases(taste("kept, loop, rivals")), SEEDS)
def test_law_6_in_a_closed_loop_where_rows_compete(case: ONE_CHANGE, seed: int) -> None:
    assert search.keeps_up_in_a_loop(search.Case(*case, seed)) == []


@LOOK
@given(cases(taste("kept, edits")), SEEDS)
def test_law_6_whatever_changes_between_two_decisions(case: ONE_CHANGE, seed: int) -> None:
    assert search.keeps_up_with_anything(search.Case(*case, seed)) == []


@LOOK
@given(cases(taste("kept, edits, rivals")), SEEDS)
def test_law_6_whatever_changes_where_rows_compete(case: ONE_CHANGE, seed: int) -> None:
    assert search.keeps_up_with_anything(search.Case(*case, seed)) == []


def test_law_6_a_fleet_that_begins_and_ends_with_no_machine() -> None:
    row = need("c", 2, 4)
    some = [machine("m0", 4), machine("m1", 8, "c", number=1)]
    twins = Twins(in_full=True)
    for world in (fleet([], []), fleet([], [row]), fleet(some, [row]), fleet(some[:1], []), fleet([], [row])):
        twins.decide(world)
        twins.decide(world)
    assert twins.wrong == []


@pytest.mark.parametrize("name", ["one decision", "kept, loop", "kept, edits, rivals"])
def test_decisions_that_run_out_of_every_scratch_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Layout.__init__

    def cramped(layout: Layout, *parts: Any) -> None:
        begin(layout, *parts)
        layout._room.update(dict.fromkeys(layout._room, 1))

    monkeypatch.setattr(Layout, "__init__", cramped)
    for seed in range(25):
        assert search.CHECKS[name][0](search.draw(name, seed)) == []


@pytest.mark.parametrize("name", ["kept, loop", "kept, loop, rivals", "kept, edits", "kept, edits, rivals"])
def test_what_sleeping_rows_took_is_moved_up_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, move_up, moved = Layout.__init__, wake.compact_entries, []

    def cramped(layout: Layout, *parts: Any) -> None:
        begin(layout, *parts)
        layout._room.update(dict.fromkeys((c.LEN_ENTRIES, c.LEN_VECTORS), 1))

    def watched(work: Work, rows: Array, *kept: Array) -> None:
        moved.append(len(rows))
        move_up(work, rows, *kept)

    monkeypatch.setattr(Layout, "__init__", cramped)
    monkeypatch.setattr(wake, "compact_entries", watched)
    for seed in range(40):
        assert search.CHECKS[name][0](search.draw(name, seed)) == []
    assert any(moved)


def test_what_a_higher_need_no_longer_wants_wakes_the_one_that_went_without() -> None:
    spare = machine("m", 4, "idle")
    higher, lower = need("a", 1, 4, priority=9), need("b", 1, 4)
    twins = Twins(in_full=False)
    paused = twins.decide(fleet([spare], [higher, lower]))
    assert [(a.machine, a.cluster) for a in paused.actions] == [("m", "a")]
    freed = twins.decide(fleet([spare], [lower]))
    assert [(a.machine, a.cluster) for a in freed.actions] == [("m", "b")]
    assert twins.wrong == []


def test_a_shape_that_is_held_out_leaves_the_kept_pool_and_comes_back() -> None:
    idle, row = machine("m", 4, "idle"), need("a", 1, 4)
    free = fleet([idle], [row])
    shape = (idle.instance_type, idle.zone, idle.capacity_type)
    held = replace(free, policy=replace(free.policy, held_out_shapes={shape: free.now + 10}))
    twins = Twins(in_full=False)
    worlds = (free, held, replace(held, now=free.now + 10), free)
    bought = [acted(twins.decide(world), Kind.BOOTSTRAP) for world in worlds]
    assert bought == [["m"], [], ["m"], ["m"]]
    assert twins.wrong == []


def test_a_label_that_a_row_begins_to_look_at_tells_machines_apart() -> None:
    fleets = [machine(f"m{i}", 4, "idle", rack=f"r{i // 2}") for i in range(6)]
    plain, gang = need("a", 2, 4), need("b", 2, 4, same=RACK)
    twins = Twins(in_full=False)
    assert acted(twins.decide(fleet(fleets, [plain])), Kind.BOOTSTRAP) == ["m0", "m1"]
    both = twins.decide(fleet(fleets, [plain, gang]))
    assert acted(both, Kind.BOOTSTRAP) == ["m0", "m1", "m2", "m3"]
    assert twins.wrong == []
