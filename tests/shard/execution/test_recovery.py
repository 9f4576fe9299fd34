"""The way out of Failed as events and effects: each rule of protocol.md as the sequence of steps that it asks for."""

import itertools

import pytest

from bigfleet.model.machine import Call, CapacityType, Host, Machine, MachineState
from bigfleet.shard.execution.effects import Ask, Incident, Instruct, Settle, WithdrawInstruction
from bigfleet.shard.execution.lifecycle import EMPTY_GRACE_SECONDS, Problem
from bigfleet.shard.execution.next_step import TAKEN_BACK_GRACE_SECONDS
from bigfleet.shard.execution.recovery import (
    ALERT_SECONDS,
    FIRST_SECONDS,
    LONGEST_SECONDS,
    Alert,
    Effect,
    Recovered,
    Recovery,
)

S = MachineState
M, P = "m-1", "sim"
GRACE = TAKEN_BACK_GRACE_SECONDS


class World:
    """One machine that is Failed, its operator, and the part that recovers it."""

    def __init__(self, cluster: str = "old", host: bool = True, ready: bool = False, session: bool = True) -> None:
        self.ready, self.session, self.bypass, self.reports = ready, session, False, True
        self.is_committed, self.is_usable, self.acts = False, True, True
        self.ids = itertools.count(1)
        self.now = 1000.0
        self.fenced: set[str] = set()
        self.recovery = Recovery(self, self.fenced)
        assert self.fails(cluster, host) == []

    # Surroundings

    def machine(self, machine_id: str) -> Machine | None:
        assert machine_id == M
        return self.seen

    def node_ready(self, machine_id: str) -> bool:
        assert machine_id == M
        return self.ready

    def has_session(self, cluster_id: str) -> bool:
        return self.session

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        return self.bypass

    def reports_drained(self, cluster_id: str) -> bool:
        return self.reports

    def committed(self, machine_id: str) -> bool:
        return self.is_committed

    def usable(self, machine_id: str) -> bool:
        return self.is_usable

    def may_act(self) -> bool:
        return self.acts

    def new_id(self) -> str:
        return f"id-{next(self.ids)}"

    # What happens

    def is_(self, state: MachineState, cluster: str = "", host: bool = True) -> Machine:
        self.seen: Machine | None = Machine(
            id=M,
            state=state,
            instance_type="c8",
            capacity_type=CapacityType.SPOT,
            host=Host(P, M) if host else None,
            cluster=cluster,
            last_error="boom" if state is S.FAILED else "",
        )
        return self.seen

    def fails(self, cluster: str = "old", host: bool = True) -> list[Effect]:
        return self.recovery.failed(self.is_(S.FAILED, cluster, host), P, self.now)

    def moves(self, state: MachineState, cluster: str = "", host: bool = True) -> list[Effect]:
        self.is_(state, cluster, host)
        return self.recovery.left(M)

    def acked(self, state: MachineState, cluster: str = "", host: bool = True) -> list[Effect]:
        return self.moves(state, cluster, host) + self.recovery.acknowledged(M, self.now)

    def refused(self, problem: Problem) -> list[Effect]:
        return self.recovery.call_failed(M, problem, self.now)

    def got(self) -> list[Effect]:
        return self.recovery.settled(M, self.now)

    def later(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.recovery.tick(self.now)

    def first(self) -> list[Effect]:
        return self.later(FIRST_SECONDS)

    def hinder(self, what: str) -> None:
        """Let nothing be done, for one reason or (empty) none."""
        self.is_committed, self.is_usable, self.acts = what == "committed", what != "unusable", what != "file"
        if what == "paused":
            self.recovery.pause(self.now)
        else:
            self.recovery.resume(self.now)

    def waits(self, most: int = 100_000) -> float:
        """Seconds until something other than a Get or an alert is wanted."""
        for seconds in range(most):
            effects = [effect for effect in self.later(1) if not isinstance(effect, Settle | Alert)]
            if effects:
                return 1.0 + seconds
        raise AssertionError(f"nothing for {most} s")


DRAIN = Ask(M, P, Call.DRAIN, grace_seconds=GRACE)
DRAIN_EMPTY = Ask(M, P, Call.DRAIN, grace_seconds=EMPTY_GRACE_SECONDS)
DRAIN_NOBODY = Ask(M, P, Call.DRAIN)
DELETE = Ask(M, P, Call.DELETE)
CREATE = Ask(M, P, Call.CREATE)
HINDRANCES = pytest.mark.parametrize("what", ["committed", "unusable", "file", "paused"])
TELL = Instruct("old", "id-1", M, GRACE)


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


# Which call


@pytest.mark.parametrize(
    ("cluster", "host", "ask"),
    [("old", True, DRAIN), ("", True, DELETE), ("", False, DELETE), ("old", False, DELETE)],
)
def test_rule_1_drain_where_a_cluster_and_a_host_are_set_else_delete(cluster: str, host: bool, ask: Ask) -> None:
    world = World(cluster, host)
    assert world.later(FIRST_SECONDS - 1) == []
    assert not world.recovery.busy(M)
    assert world.later(1) == [ask]
    assert world.recovery.busy(M)


@pytest.mark.parametrize(
    ("cluster", "first", "other"), [("old", DRAIN, DELETE), ("", DELETE, DRAIN_NOBODY)], ids=["bound", "unbound"]
)
def test_rule_1_unimplemented_falls_to_the_other_call_at_once_and_then_waits(
    cluster: str, first: Ask, other: Ask
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
    cluster: str, first: Ask, other: Ask
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
    assert world.later(2 * FIRST_SECONDS) == [Ask(M, "other", Call.DRAIN, grace_seconds=GRACE)]


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
    assert isinstance(incident, Incident)
    assert (incident.machine, incident.stop, settle) == (M, False, Settle(M, P))
    assert "Drain" in incident.text
    assert world.fenced == {M}
    world.got()
    assert world.waits() == 2 * FIRST_SECONDS
    incident, _ = world.refused(Problem.FENCED)
    assert isinstance(incident, Incident)
    assert incident.stop

    world = World()
    world.fenced.add(M)
    world.first()
    incident, _ = world.refused(Problem.FENCED)
    assert isinstance(incident, Incident)
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


# Through the operator


def test_rule_1_where_the_node_was_ready_its_operator_empties_it_first() -> None:
    world = World(ready=True)
    assert world.first() == [TELL]
    assert world.recovery.busy(M)
    assert world.later(GRACE - 1) == []
    assert world.recovery.node_drained("id-1", world.now) == [DRAIN_EMPTY]
    assert world.acked(S.DRAINING, "old") == []
    gone = WithdrawInstruction("old", "id-1", M, "the machine has left the cluster")
    assert world.moves(S.IDLE) == [gone, Recovered(M)]


def test_rule_1_a_node_that_nobody_can_empty_or_that_never_was_is_drained_by_the_provider() -> None:
    world = World(ready=True, session=False)
    world.bypass = True
    assert world.first() == [DRAIN]
    assert World("", ready=True).first() == [DELETE]


def test_rule_14_when_the_grace_is_over_the_provider_drains_with_none() -> None:
    world = World(ready=True)
    world.first()
    world.session = False
    assert world.later(GRACE) == [Ask(M, P, Call.DRAIN)]


def test_rule_14_an_operator_that_stops_leaves_the_rest_of_the_grace_to_the_provider() -> None:
    world = World(ready=True)
    world.first()
    world.now += 20
    assert world.recovery.node_not_drained("id-1", world.now) == [Ask(M, P, Call.DRAIN, grace_seconds=GRACE - 20)]


@pytest.mark.parametrize("reports", [True, False])
def test_rule_14_a_strangers_operator_has_said_all_with_its_ack(reports: bool) -> None:
    world = World(ready=True)
    world.reports = reports
    world.first()
    world.now += 20
    rest = [Ask(M, P, Call.DRAIN, grace_seconds=GRACE - 20)]
    assert world.recovery.reclaim_acked("id-1", world.now) == ([] if reports else rest)


def test_rule_14_words_on_an_instruction_that_is_over_or_has_had_its_word_are_no_news() -> None:
    world = World(ready=True)
    world.first()
    world.recovery.node_drained("id-1", world.now)
    for asked in ("id-1", "id-9", ""):
        assert world.recovery.node_drained(asked, world.now) == []
        assert world.recovery.node_not_drained(asked, world.now) == []
        assert world.recovery.reclaim_acked(asked, world.now) == []


def test_rule_14_a_late_word_on_an_earlier_instruction_says_nothing_of_the_next() -> None:
    world = World(ready=True)
    world.first()
    world.recovery.pause(world.now)
    assert world.recovery.resume(world.now) == [Instruct("old", "id-2", M, GRACE)]
    assert world.recovery.node_drained("id-1", world.now) == []
    assert world.recovery.node_drained("id-2", world.now) == [DRAIN_EMPTY]


def test_rule_14_a_word_on_a_binding_that_the_machine_has_left_is_no_licence_for_the_one_it_is_in() -> None:
    world = World(ready=True)
    world.first()
    world.session = False
    world.is_(S.FAILED, "third")
    assert kinds(world.recovery.node_drained("id-1", world.now)) == [WithdrawInstruction]
    assert world.later(100) == []


def test_rule_14_an_instruction_is_replayed_until_its_drain_ends_with_the_grace_that_remains() -> None:
    world = World(ready=True)
    assert world.recovery.unanswered("old", world.now) == []
    world.first()
    world.now += 50
    assert world.recovery.unanswered("old", world.now) == [Instruct("old", "id-1", M, GRACE - 50)]
    assert world.recovery.unanswered("prod", world.now) == []
    world.recovery.node_drained("id-1", world.now)
    world.acked(S.DRAINING, "old")
    world.now += GRACE
    assert world.recovery.unanswered("old", world.now) == [Instruct("old", "id-1", M, 0)]
    world.moves(S.IDLE)
    assert world.recovery.unanswered("old", world.now) == []


@pytest.mark.parametrize(
    ("state", "cluster", "recovered"),
    [
        (S.IDLE, "", True),
        (S.SPECULATIVE, "", True),
        (S.CONFIGURED, "third", True),
        (S.CONFIGURED, "old", True),
        (S.DELETING, "", False),
        (S.FAILED, "", False),
        (S.FAILED, "third", False),
    ],
)
def test_rule_14_an_instruction_is_withdrawn_when_its_machine_leaves_that_binding_or_failed(
    state: MachineState, cluster: str, recovered: bool
) -> None:
    world = World(ready=True)
    world.first()
    effects = world.moves(state, cluster) or world.later(1)
    assert kinds(effects) == [WithdrawInstruction, Recovered] if recovered else [WithdrawInstruction]
    assert not world.recovery.busy(M)
    assert world.recovery.node_drained("id-1", world.now) == []


def test_rule_14_an_instruction_goes_on_when_the_provider_drains_the_machine_by_itself() -> None:
    world = World(ready=True)
    world.first()
    assert world.moves(S.DRAINING, "old") == []
    assert not world.recovery.busy(M)
    assert world.later(GRACE) == []
    assert kinds(world.moves(S.IDLE)) == [WithdrawInstruction, Recovered]


def test_rule_14_an_instruction_stands_while_a_call_is_on_its_way_whatever_is_seen_meanwhile() -> None:
    world = World(ready=True)
    world.first()
    world.recovery.node_drained("id-1", world.now)
    assert world.moves(S.DRAINING, "old") == world.fails() == []
    world.refused(Problem.UNAVAILABLE)
    assert kinds(world.got()) == [WithdrawInstruction]


def test_rule_14_an_instruction_lasts_from_one_call_to_the_other_and_no_longer_than_the_round() -> None:
    world = World(ready=True)
    world.first()
    world.recovery.node_drained("id-1", world.now)
    assert world.refused(Problem.UNSUPPORTED) == [DELETE]
    assert world.refused(Problem.INVALID) == [Settle(M, P)]
    assert kinds(world.got()) == [WithdrawInstruction]
    world.later(2 * FIRST_SECONDS - 1)
    assert world.later(1) == [Instruct("old", "id-2", M, GRACE)]


@pytest.mark.parametrize("problem", [Problem.UNSUPPORTED, Problem.REFUSED])
@pytest.mark.parametrize("emptied", [True, False])
def test_rule_14_a_machine_is_not_deleted_under_pods_before_their_grace_is_over(
    problem: Problem, emptied: bool
) -> None:
    world = World(ready=True)
    world.first()
    world.recovery.node_not_drained("id-1", world.now)
    assert [effect for effect in world.refused(problem) + world.got() if effect != Settle(M, P)] == []
    assert world.later(GRACE - 1) == []
    assert world.recovery.busy(M)
    assert (world.recovery.node_drained("id-1", world.now) if emptied else world.later(1)) == [DELETE]


def test_rule_14_a_machine_that_leaves_its_binding_while_pods_have_their_grace_ends_the_round() -> None:
    world = World(ready=True)
    world.first()
    world.recovery.node_not_drained("id-1", world.now)
    world.refused(Problem.UNSUPPORTED)
    world.is_(S.FAILED, "")
    assert kinds(world.later(1)) == [WithdrawInstruction]
    assert world.later(2 * FIRST_SECONDS - 1) == []
    assert world.later(1) == [DELETE]


def test_rule_1_a_machine_that_the_provider_drained_meanwhile_is_tried_from_the_beginning() -> None:
    world = World(ready=True)
    world.first()
    world.recovery.node_not_drained("id-1", world.now)
    world.refused(Problem.UNSUPPORTED)
    world.moves(S.DRAINING, "old")
    world.fails()
    world.waits()
    assert world.recovery.node_drained("id-2", world.now) == [DRAIN_EMPTY]


def test_rule_14_a_drain_that_fails_uncordons_the_node_until_the_next_round() -> None:
    world = World(ready=True)
    world.first()
    world.recovery.node_drained("id-1", world.now)
    world.acked(S.DRAINING, "old")
    assert kinds(world.fails()) == [WithdrawInstruction]
    assert world.waits() == 2 * FIRST_SECONDS
    assert world.recovery.node_not_drained("id-2", world.now) == [DRAIN], "that an earlier node was empty says nothing"


@pytest.mark.parametrize("what", ["committed", "unusable", "file"])
def test_rule_14_a_word_that_comes_when_nothing_may_be_done_ends_the_instruction(what: str) -> None:
    world = World(ready=True)
    world.first()
    world.hinder(what)
    assert kinds(world.recovery.node_drained("id-1", world.now)) == [WithdrawInstruction]
    world.hinder("")
    assert world.later(1) == [Instruct("old", "id-2", M, GRACE)], "no call was made, so nothing is waited for"


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
    world.recovery = Recovery(world, set())
    assert world.recovery.unanswered("old", world.now) == world.recovery.node_drained("id-1", world.now) == []
    assert world.later(LONGEST_SECONDS) == []
    world.fails()
    assert world.waits() == FIRST_SECONDS
