"""Protocol 8: what went wrong is no candidate for a while, longer each time, until something goes right."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.engine.records import ClusterRecord, MachineRecord, Policy
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.shard.decision.holdouts import HeldOut, HoldOuts, KeptHoldOuts, shape_of

SHAPE = ("c8", "z1", CapacityType.SPOT)
OTHER = ("c8", "z2", CapacityType.SPOT)


def through_file(holdouts: HoldOuts, now: float, then: float) -> HoldOuts:
    written = msgspec.json.encode(holdouts.kept(now))
    return HoldOuts.restored(msgspec.json.decode(written, type=KeptHoldOuts), then)


def test_rule_8_a_machine_is_held_out_for_a_minute_doubling_to_an_hour() -> None:
    holdouts, now, seconds = HoldOuts(), 1000.0, []
    for _ in range(9):
        holdouts.machine_failed("m-1", now)
        until = holdouts.not_before("m-1")
        seconds.append(until - now)
        now = until
    assert seconds == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert holdouts.not_before("m-2") == 0


def test_rule_8_a_need_is_held_out_in_its_cluster_alone() -> None:
    holdouts = HoldOuts()
    holdouts.need_failed("prod", "f1", 10)
    holdouts.need_failed("prod", "f2", 20)
    assert holdouts.held_out("prod", 60) == {"f1": 70, "f2": 80}
    assert holdouts.held_out("prod", 70) == {"f2": 80}
    assert holdouts.held_out("test", 60) == {}
    holdouts.need_failed("prod", "f1", 70)
    assert holdouts.held_out("prod", 70) == {"f1": 190, "f2": 80}


def test_rule_8_fifty_machines_that_fail_at_once_are_one_mishap() -> None:
    holdouts = HoldOuts()
    for i in range(50):
        holdouts.need_failed("prod", "f1", 10 + i)
    assert holdouts.held_out("prod", 60) == {"f1": 70}


def test_rule_8_a_success_ends_it_and_the_next_failure_begins_anew() -> None:
    holdouts = HoldOuts()
    for at in (0, 60):
        holdouts.machine_failed("m-1", at)
        holdouts.need_failed("prod", "f1", at)
    holdouts.machine_succeeded("m-1")
    holdouts.need_succeeded("prod", "f1")
    assert (holdouts.not_before("m-1"), holdouts.held_out("prod", 100)) == (0, {})
    holdouts.machine_failed("m-1", 100)
    holdouts.need_failed("prod", "f1", 100)
    assert (holdouts.not_before("m-1"), holdouts.held_out("prod", 100)) == (160, {"f1": 160})


def test_a_success_of_what_never_failed_is_no_news() -> None:
    holdouts = HoldOuts()
    holdouts.machine_succeeded("m-1")
    holdouts.need_succeeded("prod", "f1")
    holdouts.create_succeeded(SHAPE)
    assert holdouts.kept(0) == KeptHoldOuts()


@pytest.mark.parametrize(("apart", "held"), [(1, True), (300, True), (301, False)])
def test_rule_8_two_failed_creates_within_five_minutes_hold_the_shape_out_for_three(apart: int, held: bool) -> None:
    holdouts = HoldOuts()
    holdouts.create_failed(SHAPE, 1000)
    assert holdouts.held_out_shapes(1000) == {}
    holdouts.create_failed(OTHER, 1000 + apart)
    assert holdouts.held_out_shapes(1000 + apart) == {}
    holdouts.create_failed(SHAPE, 1000 + apart)
    assert holdouts.held_out_shapes(1000 + apart) == ({SHAPE: 1180 + apart} if held else {})
    assert holdouts.held_out_shapes(1180 + apart) == {}


def test_rule_8_a_stock_out_holds_the_shape_out_at_once_and_a_create_that_works_ends_it() -> None:
    holdouts = HoldOuts()
    holdouts.out_of_stock(SHAPE, 10)
    assert holdouts.held_out_shapes(10) == {SHAPE: 190}
    holdouts.create_succeeded(SHAPE)
    assert holdouts.held_out_shapes(10) == {}


def test_rule_8_a_create_that_works_ends_the_count_of_failures() -> None:
    holdouts = HoldOuts()
    holdouts.create_failed(SHAPE, 0)
    holdouts.create_succeeded(SHAPE)
    holdouts.create_failed(SHAPE, 1)
    assert holdouts.held_out_shapes(1) == {}


def test_the_engine_takes_every_answer_and_none_ends_early() -> None:
    holdouts = HoldOuts()
    machine = Machine(
        id="m", state=MachineState.SPECULATIVE, instance_type="c8", zone="z1", capacity_type=CapacityType.SPOT
    )
    holdouts.machine_failed("m", 0.25)
    holdouts.need_failed("prod", "f1", 0.25)
    holdouts.out_of_stock(shape_of(machine), 0.25)
    assert MachineRecord(machine=machine, not_before=holdouts.not_before("m")).not_before == 61
    assert ClusterRecord(id="prod", held_out=holdouts.held_out("prod", 1)).held_out == {"f1": 61}
    assert Policy(held_out_shapes=holdouts.held_out_shapes(1)).held_out_shapes == {SHAPE: 181}


def test_rule_19_times_go_on_where_they_stood_whatever_the_new_clock_says() -> None:
    holdouts = HoldOuts()
    holdouts.machine_failed("m-1", 1000)
    holdouts.machine_failed("m-1", 1060)
    holdouts.need_failed("prod", "f1", 1090)
    holdouts.out_of_stock(SHAPE, 1000)
    holdouts.create_failed(OTHER, 1000)
    again = through_file(holdouts, now=1100, then=5)
    assert again.not_before("m-1") == 5 + 80
    assert again.held_out("prod", 5) == {"f1": 5 + 50}
    assert again.held_out_shapes(5) == {SHAPE: 5 + 80}
    again.create_failed(OTHER, 5 + 200)
    assert again.held_out_shapes(5 + 200) == {OTHER: 5 + 200 + 180}
    # The streak goes on as well.
    again.machine_failed("m-1", 85)
    assert again.not_before("m-1") == 85 + 240


def test_what_was_over_a_day_ago_is_forgotten() -> None:
    holdouts = HoldOuts()
    holdouts.machine_failed("m-1", 0)
    holdouts.need_failed("prod", "f1", 0)
    holdouts.create_failed(SHAPE, 0)
    holdouts.out_of_stock(OTHER, 0)
    day = 86_400
    kept = holdouts.kept(60 + day)
    assert (list(kept.machines), list(kept.needs), kept.shapes) == (["m-1"], ["prod"], ())
    assert holdouts.kept(61 + day) == KeptHoldOuts()
    holdouts.machine_failed("m-1", 62 + day)
    assert holdouts.not_before("m-1") == 62 + day + 60


@pytest.mark.parametrize(
    "text",
    [
        '{"machines":{"m":[60,-1]}}',
        '{"machines":{"m":[7200,1]}}',
        '{"machines":{"m":[60,1e300]}}',
        '{"needs":{"prod":{"f":[0,1]}}}',
        '{"shapes":[["c8","z1",9,null,1]]}',
    ],
)
def test_a_file_that_no_shard_wrote_is_refused_where_it_is_read(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=KeptHoldOuts)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["fail", "succeed", "restart"]), st.integers(0, 4000), st.sampled_from("ab")), max_size=30
)


@given(EVENTS)
def test_a_restart_changes_nothing_but_the_clock(events: list[tuple[str, int, str]]) -> None:
    straight, restarted, shift, now = HoldOuts(), HoldOuts(), 0, 0
    for index, (what, wait, name) in zip(itertools.count(1), events, strict=False):
        now += wait
        shape = (name, "z", CapacityType.ON_DEMAND)
        if what == "restart":
            straight.kept(now)
            restarted = through_file(restarted, now + shift, now + index)
            shift = index
            continue
        for holdouts, at in ((straight, now), (restarted, now + shift)):
            if what == "fail":
                holdouts.machine_failed(name, at)
                holdouts.need_failed("prod", name, at)
                holdouts.create_failed(shape, at)
            else:
                holdouts.machine_succeeded(name)
                holdouts.need_succeeded("prod", name)
                holdouts.create_succeeded(shape)
        assert straight.kept(now) == restarted.kept(now + shift)


def test_what_was_said_is_told_while_the_hold_out_lasts_and_outlives_a_restart() -> None:
    holdouts = HoldOuts()
    holdouts.machine_failed("m-1", 1000, "its fan stopped")
    holdouts.need_failed("prod", "f1", 1000, "no template" + "!" * 500)
    holdouts.out_of_stock(SHAPE, 1000, "none is left")
    again = HoldOuts.restored(holdouts.kept(1010), 5)
    assert again.held_machine("m-1", 5) == HeldOut(-5, 55, "its fan stopped")
    need = again.held_need("prod", "f1", 5)
    assert need is not None
    assert (need.said[:12], len(need.said)) == ("no template!", 200)
    assert again.held_shape(SHAPE, 5) == HeldOut(-5, 175, "none is left")
    assert (again.held_machine("m-1", 56), again.held_need("prod", "f2", 5)) == (None, None)


def test_a_stock_out_that_comes_again_has_lasted_since_the_first_until_a_create_succeeds() -> None:
    holdouts = HoldOuts()
    holdouts.out_of_stock(SHAPE, 1000, "none")
    assert holdouts.held_shape(SHAPE, 1180) is None
    holdouts.out_of_stock(SHAPE, 1200, "still none")
    holdouts.kept(1210)
    assert holdouts.held_shape(SHAPE, 1210) == HeldOut(1000, 1380, "still none")
    holdouts.create_succeeded(SHAPE)
    holdouts.out_of_stock(SHAPE, 1400, "none again")
    assert holdouts.held_shape(SHAPE, 1400) == HeldOut(1400, 1580, "none again")
    holdouts.kept(1400 + 180 + 601)
    holdouts.out_of_stock(SHAPE, 3000, "much later")
    assert holdouts.held_shape(SHAPE, 3000) == HeldOut(3000, 3180, "much later")
