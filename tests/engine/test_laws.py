"""The laws of section 10 as properties of the engine; hypothesis draws the worlds, so that a failure comes shrunk."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.oracle import laws, search
from tests.engine.oracle.bridge import decide
from tests.engine.oracle.generate import Taste, cases, worlds
from tests.engine.oracle.loop import Loop, fixed
from tests.engine.oracle.world import Need, World

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
LOOPS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
ONE_CHANGE = tuple[World, tuple[Need, ...]]


@QUICK
@given(worlds())
def test_law_1_at_once_what_was_just_bought_is_enough(world: World) -> None:
    assert laws.rest_at_once(world, decide(world)) == []


@LOOPS
@given(cases(Taste(machines=(1, 9))), st.integers(0, 10_000))
def test_law_1_a_static_demand_comes_to_rest(case: ONE_CHANGE, seed: int) -> None:
    assert search.loop_rests(search.Case(*case, seed)) == []


@LOOPS
@given(cases(Taste(machines=(1, 9), calm=True)), st.integers(0, 10_000))
def test_law_2_latency_does_not_change_what_is_bought(case: ONE_CHANGE, seed: int) -> None:
    assert search.buying_ignores_latency(search.Case(*case, seed)) == []


@QUICK
@given(worlds())
def test_law_3_nothing_is_served_twice_or_from_nothing(world: World) -> None:
    assert laws.conserves(world, decide(world)) == []


@QUICK
@given(worlds())
def test_law_3_giving_back_opens_no_gap(world: World) -> None:
    assert laws.opens_no_gap(world, decide(world)) == []


@QUICK
@given(worlds())
def test_law_3_the_number_of_machines_never_changes(world: World) -> None:
    loop = Loop.of(world, fixed(0, 1, 0))
    for _ in range(6):
        loop.step()
    assert set(loop.machines) == {m.id for m in world.machines}


@QUICK
@given(worlds())
def test_law_4_a_higher_need_goes_first(world: World) -> None:
    assert laws.respects_priority(world, decide(world)) == []


@QUICK
@given(worlds())
def test_law_4_lower_demand_changes_nothing_above_it_in_phase_1(world: World) -> None:
    assert laws.ignores_lower_demand(world) == []


@QUICK
@given(worlds())
def test_law_8_what_needs_take_is_a_packing_of_their_units(world: World) -> None:
    decision = decide(world)
    assert laws.conserves(world, decision) == []
    for verdict in decision.verdicts:
        assert verdict.satisfied == (not verdict.residual)


@QUICK
@given(worlds(), st.integers(0, 1000))
def test_law_5_the_order_of_the_input_means_nothing(world: World, seed: int) -> None:
    assert laws.is_deterministic(world, decide(world), seed) == []


@QUICK
@given(worlds())
def test_actions_fit_the_states_of_their_machines(world: World) -> None:
    assert laws.acts_legally(world, decide(world)) == []


SEEDS = {"a large world": 20, "loop, crowded": 50, "latency, crowded": 50}


@pytest.mark.parametrize("name", list(search.CHECKS))
def test_a_hundred_seeds_of_every_search_find_nothing(name: str) -> None:
    check = search.CHECKS[name][0]
    for seed in range(SEEDS.get(name, 100)):
        assert check(search.draw(name, seed)) == [], f"{name}, seed {seed}"
