"""The way out of Failed as events and effects: which call, when, how often, and when none."""

import pytest

from bigfleet.model.machine import Call, MachineState
from bigfleet.shard.execution.effects import Fenced, Instruct, Problem, ProviderCall, Settle, WithdrawInstruction
from bigfleet.shard.execution.recovery import (
    ALERT_SECONDS,
    FIRST_SECONDS,
    LONGEST_SECONDS,
    Alert,
    Recovered,
)
from tests.shard.execution.alone import RecoveryAlone
from tests.shard.execution.one_failure import (
    CREATE,
    DELETE,
    DRAIN,
    DRAIN_EMPTY,
    DRAIN_NOBODY,
    GRACE,
    HINDRANCES,
    TELL,
    M,
    P,
    S,
    World,
    kinds,
)


@pytest.mark.parametrize(
    ("cluster", "host", "ask"),
    [("old", True, DRAIN), ("", True, DELETE), ("", False, DELETE), ("old", False, DELETE)],
)
def test_rule_1_drain_where_a_cluster_and_a_host_are_set_else_delete(
    cluster: str, host: bool, ask: ProviderCall
) -> None:
    world = World(cluster, host)
    assert world.later(FIRST_SECONDS - 1) == []
    assert not world.recovery.busy(M)
    assert world.later(1) == [ask]
    assert world.recovery.busy(M)


@pytest.mark.parametrize(
    ("cluster", "first", "other"), [("old", DRAIN, DELETE), ("", DELETE, DRAIN_NOBODY)], ids=["bound", "unbound"]
)
def test_rule_1_unimplemented_falls_to_the_other_call_at_once_and_then_waits(
    cluster: str, first: ProviderCall, other: ProviderCall
) -> None:
    world = World(cluster)
    assert world.first() == [first]
    assert world.refused(Problem.UNSUPPORTED) == [other]
    assert world.refused(Problem.UNSUPPORTED) == []
    assert world.waits() == 2 * FIRST_SECONDS


@pytest.mark.parametrize(
    ("cluster", "first", "other"), [("old", DRAIN, DELETE), ("", DELETE, DRAIN_NOBODY)], ids=["bound", "unbound"]
)
def test_rule_1_aborted_falls_to_the_other_call_once_a_get_shows_the_machine_failed_still(
    cluster: str, first: ProviderCall, other: ProviderCall
) -> None:
    world = World(cluster)
    assert world.first() == [first]
    assert world.refused(Problem.REFUSED) == world.later(10) == [Settle(M, P)]
    assert world.got() == [other]
    world.refused(Problem.REFUSED)
    assert world.got() == []
    assert world.waits() == 2 * FIRST_SECONDS


def test_rule_1_aborted_because_the_machine_is_not_failed_any_more_makes_no_other_call() -> None:
    world = World()
    world.first()
    world.refused(Problem.REFUSED)
    assert world.moves(S.IDLE) == []
    assert world.got() == [Recovered(M)]


@pytest.mark.parametrize(
    "problem", [Problem.UNAVAILABLE, Problem.INVALID, Problem.EXHAUSTED, Problem.MISMATCH, Problem.NOT_FOUND]
)
def test_rule_1_no_other_answer_falls_to_the_other_call(problem: Problem) -> None:
    world = World()
    world.first()
    assert world.refused(problem) == [Settle(M, P)]
    assert world.got() == []
    assert world.waits() == 2 * FIRST_SECONDS


def test_rule_1_a_slot_without_a_host_is_created_only_where_it_cannot_be_given_back() -> None:
    world = World("", host=False)
    assert world.first() == [DELETE]
    assert world.refused(Problem.UNSUPPORTED) == [CREATE]
    world = World("", host=False)
    world.first()
    world.refused(Problem.REFUSED)
    assert world.got() == []


def test_rule_1_the_way_out_is_that_of_the_record_as_it_is_now() -> None:
    world = World("old")
    world.is_(S.FAILED, "", host=False)
    assert world.first() == [DELETE]
    world = World("old")
    world.first()
    world.refused(Problem.REFUSED)
    world.is_(S.FAILED, "old", host=False)
    assert world.got() == [DELETE]


# Back-off


def test_rule_1_the_wait_doubles_from_a_minute_to_an_hour_for_ever() -> None:
    world = World("")
    waits = []
    for _ in range(10):
        waits.append(world.waits())
        world.refused(Problem.INVALID)
        world.got()
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]


def test_rule_1_a_way_out_that_fails_again_is_waited_for_longer() -> None:
    world = World()
    world.first()
    assert world.acked(S.DRAINING, "old") == []
    assert world.later(1000) == []
    assert world.fails() == world.fails() == []
    assert world.waits() == 2 * FIRST_SECONDS
    world.acked(S.DRAINING, "old")
    world.fails()
    assert world.waits() == 4 * FIRST_SECONDS


@pytest.mark.parametrize("state", [S.IDLE, S.SPECULATIVE, S.CONFIGURED, S.CONFIGURING])
def test_rule_1_a_machine_that_came_to_rest_elsewhere_is_recovered_and_waits_anew(state: MachineState) -> None:
    world = World()
    world.waits()
    world.acked(S.DRAINING, "old")
    assert world.moves(state) == [Recovered(M)]
    assert world.moves(state) == world.later(LONGEST_SECONDS) == []
    world.fails()
    assert world.waits() == FIRST_SECONDS


@pytest.mark.parametrize("state", [S.DRAINING, S.DELETING, S.CREATING])
def test_rule_1_a_machine_under_way_is_let_be_until_its_end_is_seen_if_only_by_a_tick(state: MachineState) -> None:
    world = World()
    assert world.moves(state) == world.later(LONGEST_SECONDS) == []
    assert world.recovery.awaits(P)
    world.is_(S.IDLE)
    assert world.later(1) == [Recovered(M)]
    assert not world.recovery.awaits(P)


def test_rule_1_an_end_that_the_ack_shows_at_once_is_the_end() -> None:
    world = World("")
    world.first()
    assert world.acked(S.SPECULATIVE, host=False) == [Recovered(M)]
    assert not world.recovery.busy(M)


def test_rule_1_a_machine_that_is_gone_is_forgotten() -> None:
    world = World()
    world.seen = None
    assert world.recovery.left(M) == world.later(LONGEST_SECONDS) == []
    world = World()
    world.first()
    world.refused(Problem.NOT_FOUND)
    world.seen = None
    assert world.recovery.left(M) == world.got() == world.later(LONGEST_SECONDS) == []


def test_rule_1_what_is_failed_for_half_an_hour_is_alerted_once() -> None:
    world = World()
    world.is_usable = False
    assert world.later(ALERT_SECONDS - 1) == []
    assert world.later(1) == [Alert(M, 1000.0)]
    assert world.later(1) == []


def test_rule_1_ways_out_that_keep_failing_do_not_put_the_alert_off() -> None:
    world = World()
    world.first()
    world.acked(S.DRAINING, "old")
    assert world.later(ALERT_SECONDS) == []
    world.fails()
    assert world.later(0) == [Alert(M, 1000.0)]
    world.moves(S.IDLE)
    world.fails()
    assert not [effect for effect in world.later(ALERT_SECONDS - 1) if isinstance(effect, Alert)]
    assert Alert(M, world.now - ALERT_SECONDS + 1) in world.later(1)


# One call at a time


def test_a_call_on_its_way_is_waited_for_whatever_is_seen_meanwhile() -> None:
    world = World()
    world.first()
    assert world.moves(S.IDLE) == world.fails() == world.moves(S.IDLE) == world.later(LONGEST_SECONDS) == []
    assert world.recovery.busy(M)
    assert world.recovery.acknowledged(M, world.now) == [Recovered(M)]


def test_a_machine_that_comes_back_with_another_provider_is_recovered_there() -> None:
    world = World()
    world.first()
    world.seen = None
    world.recovery.left(M)
    world.recovery.failed(world.is_(S.FAILED, "old"), "other", world.now)
    world.refused(Problem.NOT_FOUND)
    world.got()
    assert world.later(2 * FIRST_SECONDS) == [ProviderCall(M, "other", Call.DRAIN, grace_seconds=GRACE)]


def test_an_answer_to_no_call_is_no_news() -> None:
    world = World()
    assert world.recovery.acknowledged(M, world.now) == world.refused(Problem.REFUSED) == world.got() == []
    assert world.recovery.left("m-2") == world.recovery.acknowledged("m-2", world.now) == []
    assert world.first() == [DRAIN]


def test_a_get_that_somebody_else_asked_for_settles_nothing() -> None:
    world = World(ready=True)
    assert world.first() == [TELL]
    assert world.got() == []
    assert world.recovery.node_drained("id-1", world.now) == [DRAIN_EMPTY]
    assert world.got() == []
    assert world.recovery.busy(M)


def test_a_call_that_waited_for_its_turn_is_not_made_on_a_machine_that_is_failed_no_more() -> None:
    world = World()
    assert not world.recovery.wants(DRAIN)
    world.first()
    assert world.recovery.wants(DRAIN)
    world.moves(S.CONFIGURED, "old")
    assert not world.recovery.wants(DRAIN)
    assert world.refused(Problem.UNAVAILABLE) == [Settle(M, P)]
    assert world.got() == [Recovered(M)]


def test_rule_6_a_lost_call_is_settled_by_get_before_the_next() -> None:
    world = World()
    world.first()
    assert world.refused(Problem.UNAVAILABLE) == [Settle(M, P)]
    assert world.later(LONGEST_SECONDS) == [Settle(M, P), Alert(M, 1000.0)]
    assert world.later(1) == [Settle(M, P)]
    assert world.recovery.busy(M)
    assert world.recovery.awaits(P)
    assert not world.recovery.awaits("other")
    assert world.got() == []
    assert world.waits() == 2 * FIRST_SECONDS


def test_rule_6_a_lost_call_that_took_effect_is_followed() -> None:
    world = World()
    world.first()
    world.refused(Problem.UNAVAILABLE)
    world.moves(S.DRAINING, "old")
    assert world.got() == []
    assert not world.recovery.busy(M)
    assert world.moves(S.IDLE) == [Recovered(M)]


# When it keeps off


@HINDRANCES
def test_rules_7_9_and_18_nothing_is_done_while_it_may_not_be_and_then_it_is(what: str) -> None:
    world = World()
    world.hinder(what)
    assert world.first() == world.later(1000) == []
    world.hinder("")
    assert world.waits() == (FIRST_SECONDS if what == "paused" else 1)


@HINDRANCES
def test_the_other_call_is_not_made_either_and_the_round_counts(what: str) -> None:
    world = World()
    world.first()
    world.refused(Problem.REFUSED)
    world.hinder(what)
    assert world.got() == []
    world.hinder("")
    assert world.waits() == 2 * FIRST_SECONDS


def test_rule_10_a_machine_fenced_twice_stops_the_shard_whoever_made_the_calls() -> None:
    world = World()
    world.first()
    incident, settle = world.refused(Problem.FENCED)
    assert isinstance(incident, Fenced)
    assert (incident.machine, incident.stop, settle) == (M, False, Settle(M, P))
    assert "Drain" in incident.text
    assert world.fenced == {M}
    world.got()
    assert world.waits() == 2 * FIRST_SECONDS
    incident, _ = world.refused(Problem.FENCED)
    assert isinstance(incident, Fenced)
    assert incident.stop

    world = World()
    world.fenced.add(M)
    world.first()
    incident, _ = world.refused(Problem.FENCED)
    assert isinstance(incident, Fenced)
    assert incident.stop, "execute was fenced before, and this is the second time"


def test_rule_10_an_ack_in_between_means_that_nobody_newer_is_there() -> None:
    world = World()
    world.fenced.add(M)
    world.first()
    world.acked(S.DRAINING, "old")
    assert world.fenced == set()


def test_rule_12_a_cluster_without_a_session_is_not_drained_until_it_may_be_passed_by() -> None:
    world = World(session=False, ready=True)
    assert world.first() == world.later(200) == []
    world.bypass = True
    assert world.later(1) == [DRAIN]


def test_rule_12_nor_is_a_machine_of_its_given_back_in_place_of_a_drain() -> None:
    world = World()
    world.first()
    world.session = False
    assert world.refused(Problem.UNSUPPORTED) == []
    assert World("", session=False).first() == [DELETE]


# Pause


def test_rule_18_a_pause_uncordons_what_no_provider_was_asked_to_drain_and_begins_anew_after_it() -> None:
    world = World(ready=True)
    world.first()
    assert kinds(world.recovery.pause(world.now)) == [WithdrawInstruction]
    assert world.recovery.pause(world.now) == world.later(900) == []
    assert world.recovery.resume(world.now) == [Instruct("old", "id-2", M, GRACE)]


def test_rule_18_a_call_on_its_way_keeps_its_instruction_through_a_pause() -> None:
    world = World(ready=True)
    world.first()
    world.recovery.node_drained("id-1", world.now)
    assert world.recovery.pause(world.now) == world.acked(S.DRAINING, "old") == world.later(10) == []
    assert kinds(world.moves(S.IDLE)) == [WithdrawInstruction, Recovered]


def test_rule_18_a_pause_counts_for_no_wait_but_for_the_alert() -> None:
    world = World()
    world.later(FIRST_SECONDS - 10)
    world.recovery.pause(world.now)
    assert world.later(ALERT_SECONDS) == [Alert(M, 1000.0)]
    assert world.recovery.resume(world.now) == world.recovery.resume(world.now) == world.later(9) == []
    assert world.later(1) == [DRAIN]


def test_rule_18_what_fails_in_a_pause_is_tried_a_minute_after_it() -> None:
    world = World()
    world.recovery.pause(world.now)
    world.moves(S.IDLE)
    world.now += 5000
    world.fails()
    world.now += 1000
    world.recovery.resume(world.now)
    assert world.waits() == FIRST_SECONDS


def test_rule_19_nothing_is_kept_and_a_restart_begins_with_the_first_sight() -> None:
    world = World(ready=True)
    world.first()
    world.recovery = RecoveryAlone(world, set())
    assert world.recovery.unanswered("old", world.now) == world.recovery.node_drained("id-1", world.now) == []
    assert world.later(LONGEST_SECONDS) == []
    world.fails()
    assert world.waits() == FIRST_SECONDS
