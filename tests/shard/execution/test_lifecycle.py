"""The life of an action as events and effects: each rule of protocol.md as the sequence of steps that it forbids."""

import itertools
from collections.abc import Iterable

import msgspec
import pytest

from bigfleet.engine.records import Action, Kind, Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import Call, CapacityType, Host, Machine, MachineState
from bigfleet.shard.execution.commitment import Commitment, Step, resumed
from bigfleet.shard.execution.effects import (
    Ask,
    Effect,
    Ended,
    Held,
    HoldOut,
    Incident,
    Instruct,
    Keep,
    Outcome,
    RequestBlob,
    Settle,
    WithdrawBlob,
    WithdrawInstruction,
)
from bigfleet.shard.execution.lifecycle import DRAIN_SLACK_SECONDS, EMPTY_GRACE_SECONDS, Execute, Problem
from bigfleet.shard.execution.next_step import CALL_SECONDS, TAKEN_BACK_GRACE_SECONDS

S = MachineState
BOUND = frozenset({S.CONFIGURING, S.CONFIGURED, S.DRAINING})
BLOB_SECONDS = 60.0
GRACE = 600
M, P = "m-1", "sim"


def stamp(number: int) -> Stamp:
    return Stamp(NeedKey("f", "", ()), 100, PenaltyBucket.ZERO, PenaltyBucket.ZERO, number)


ACTIONS = {
    Kind.BOOTSTRAP: Action(Kind.BOOTSTRAP, M, "prod", "short", 0, stamp(7)),
    Kind.PROVISION: Action(Kind.PROVISION, M, "prod", "short", 0, stamp(7)),
    Kind.PREEMPT: Action(Kind.PREEMPT, M, "prod", "short", GRACE, stamp(7)),
    Kind.RECLAIM: Action(Kind.RECLAIM, M, "old", "excess", GRACE),
    Kind.DELETE: Action(Kind.DELETE, M, "", "idle"),
}


class World:
    """One machine, its operators, and the execute part that acts on them. Every effect is kept, in order."""

    def __init__(self, state: MachineState, cluster: str = "old", sessions: Iterable[str] = ("prod", "old")) -> None:
        self.sessions, self.bypass, self.reports = set(sessions), False, True
        self.ids = itertools.count(1)
        self.now = 1000.0
        self.execute = Execute(self, BLOB_SECONDS)
        self.is_(state, cluster)

    # Surroundings

    def machine(self, machine_id: str) -> Machine | None:
        assert machine_id == M
        return self.seen

    def provider(self, machine_id: str) -> str:
        assert machine_id == M
        return P

    def holds(self, commitment: Commitment, machine: Machine) -> bool:
        number = None if commitment.stamp is None else {"number": str(commitment.stamp.number)}
        return machine.cluster == commitment.cluster and machine.shard_metadata == number

    def has_session(self, cluster_id: str) -> bool:
        return cluster_id in self.sessions

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        return self.bypass

    def reports_drained(self, cluster_id: str) -> bool:
        return self.reports

    def new_id(self) -> str:
        return f"id-{next(self.ids)}"

    # What happens

    def is_(self, state: MachineState, cluster: str = "old", number: int = 1) -> None:
        """The machine is as last seen."""
        bound = state in BOUND
        self.seen: Machine | None = Machine(
            id=M,
            state=state,
            instance_type="c8",
            capacity_type=CapacityType.SPOT,
            host=None if state in (S.SPECULATIVE, S.CREATING) else Host(P, M),
            cluster=cluster if bound else "",
            shard_metadata={"number": str(number)} if bound else {},
            last_error="boom" if state is S.FAILED else "",
        )

    def moved(self, state: MachineState, cluster: str = "old", number: int = 1) -> list[Effect]:
        self.is_(state, cluster, number)
        return self.execute.moved(M, self.now)

    def acked(self, state: MachineState, cluster: str = "old", number: int = 1) -> list[Effect]:
        self.is_(state, cluster, number)
        return self.execute.acknowledged(M, self.now)

    def got(self, state: MachineState, cluster: str = "old", number: int = 1) -> list[Effect]:
        self.is_(state, cluster, number)
        return self.execute.settled(M, self.now)

    def start(self, kind: Kind) -> list[Effect]:
        self.execute.decided(ACTIONS[kind], self.now)
        return self.execute.begin([M], self.now)

    def lost(self) -> list[Effect]:
        return self.execute.call_failed(M, Problem.UNAVAILABLE, "no answer")

    def later(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.execute.tick(self.now)

    def restart(self, paused: bool = False) -> list[Effect]:
        """A new life with what the old one wrote down; its clock goes on, as if no time had passed."""
        left = list(self.execute)
        self.execute = Execute(self, BLOB_SECONDS)
        if paused:
            self.execute.pause(self.now)
        return self.execute.restore(left, self.now)

    @property
    def step(self) -> Step | None:
        commitment = self.execute.get(M)
        return None if commitment is None else commitment.step


def without_keeps(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Keep)]


def outcome(effects: list[Effect]) -> Outcome:
    return next(effect.outcome for effect in effects if isinstance(effect, Ended))


def held(effects: list[Effect]) -> list[Held]:
    return [effect.held for effect in effects if isinstance(effect, HoldOut)]


DRAIN_EMPTY = Ask(M, P, Call.DRAIN, grace_seconds=EMPTY_GRACE_SECONDS)
CONFIGURE = Ask(M, P, Call.CONFIGURE, "prod", stamp(7), b"blob")


# The ways that end well


def test_a_slot_is_created_and_bootstrapped() -> None:
    world = World(S.SPECULATIVE)
    assert without_keeps(world.start(Kind.PROVISION)) == [Ask(M, P, Call.CREATE)]
    assert without_keeps(world.acked(S.CREATING)) == []
    assert without_keeps(world.moved(S.IDLE)) == [RequestBlob("prod", "id-1", M, stamp(7))]
    assert without_keeps(world.execute.blob_answered("id-1", b"blob", 0, world.now)) == [CONFIGURE]
    assert without_keeps(world.acked(S.CONFIGURING, "prod", 7)) == []
    assert outcome(world.moved(S.CONFIGURED, "prod", 7)) is Outcome.SUCCESS
    assert len(world.execute) == 0


def test_a_victim_is_emptied_by_its_operator_drained_and_bootstrapped_for_another() -> None:
    world = World(S.CONFIGURED)
    assert without_keeps(world.start(Kind.PREEMPT)) == [Instruct("old", "id-1", M, GRACE, stamp(7))]
    assert without_keeps(world.execute.reclaim_acked("id-1", world.now)) == []
    assert without_keeps(world.execute.node_drained("id-1", world.now)) == [DRAIN_EMPTY]
    assert without_keeps(world.acked(S.DRAINING)) == []
    withdrawn, asked = without_keeps(world.moved(S.IDLE))
    assert withdrawn == WithdrawInstruction("old", "id-1", M, "the machine has left the cluster")
    assert asked == RequestBlob("prod", "id-2", M, stamp(7))


def test_a_release_and_a_reclaim_end_where_they_were_to_go() -> None:
    world = World(S.IDLE)
    assert without_keeps(world.start(Kind.DELETE)) == [Ask(M, P, Call.DELETE)]
    assert outcome(world.acked(S.SPECULATIVE)) is Outcome.SUCCESS
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.execute.node_drained("id-1", world.now)
    world.acked(S.DRAINING)
    assert outcome(world.moved(S.IDLE)) is Outcome.SUCCESS


def test_a_machine_that_drains_for_nobody_is_given_a_goal_and_waited_for() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.execute.node_drained("id-1", world.now)
    world.acked(S.DRAINING)
    assert without_keeps(world.start(Kind.BOOTSTRAP)) == []
    assert RequestBlob("prod", "id-2", M, stamp(7)) in world.moved(S.IDLE)


def test_a_machine_that_drains_with_no_commitment_is_waited_for_too() -> None:
    world = World(S.DRAINING)
    assert without_keeps(world.start(Kind.BOOTSTRAP)) == []
    assert world.step is Step.DRAINING
    assert without_keeps(world.moved(S.IDLE)) == [RequestBlob("prod", "id-1", M, stamp(7))]


def test_a_goal_is_not_changed_by_a_second_decision() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    assert [world.execute.decided(action, world.now) for action in ACTIONS.values()] == [[]] * 5


def test_what_the_decision_no_longer_wants_is_dropped_unless_a_provider_knows_of_it() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    dropped = world.execute.released([M])
    assert dropped[0] == WithdrawBlob("prod", "id-1")
    assert outcome(dropped) is Outcome.DROPPED
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    assert world.execute.released([M]) == []


def test_user_data_is_not_shown() -> None:
    assert "blob" not in repr(CONFIGURE)
    assert "<4 bytes>" in repr(CONFIGURE)


# Provider and life cycle


@pytest.mark.parametrize("step", [Step.CREATING, Step.CONFIGURING, Step.DRAINING, Step.DELETING])
def test_rule_1_a_machine_that_fails_ends_its_commitment_and_nothing_is_asked_of_it(step: Step) -> None:
    source, kind, via = {
        Step.CREATING: (S.SPECULATIVE, Kind.PROVISION, S.CREATING),
        Step.CONFIGURING: (S.IDLE, Kind.BOOTSTRAP, S.CONFIGURING),
        Step.DRAINING: (S.CONFIGURED, Kind.PREEMPT, S.DRAINING),
        Step.DELETING: (S.IDLE, Kind.DELETE, S.DELETING),
    }[step]
    world = World(source)
    world.start(kind)
    world.execute.blob_answered("id-1", b"blob", 0, world.now)
    world.execute.node_drained("id-1", world.now)
    world.acked(via, "prod" if step is Step.CONFIGURING else "old", 7)
    assert world.step is step
    failed = world.moved(S.FAILED)
    assert outcome(failed) is Outcome.FAILED
    assert held(failed) == ([Held.MACHINE, Held.CREATE] if step is Step.CREATING else [Held.MACHINE])
    assert not [effect for effect in failed if isinstance(effect, Ask)]


@pytest.mark.parametrize(
    ("source", "kind", "via"),
    [
        (S.SPECULATIVE, Kind.PROVISION, S.CREATING),
        (S.IDLE, Kind.BOOTSTRAP, S.CONFIGURING),
        (S.CONFIGURED, Kind.PREEMPT, S.DRAINING),
        (S.IDLE, Kind.DELETE, S.DELETING),
    ],
)
def test_a_machine_that_is_back_where_its_call_found_it_has_failed(
    source: MachineState, kind: Kind, via: MachineState
) -> None:
    world = World(source)
    world.start(kind)
    world.execute.blob_answered("id-1", b"blob", 0, world.now)
    world.execute.node_drained("id-1", world.now)
    world.acked(via, "prod" if via is S.CONFIGURING else "old", 7)
    assert outcome(world.moved(source)) is Outcome.FAILED


def test_rule_2_what_the_provider_takes_back_goes_to_its_operator_with_two_minutes() -> None:
    world = World(S.DRAINING)
    told = world.execute.taken_back(M, world.now)
    assert without_keeps(told) == [Instruct("old", "id-1", M, TAKEN_BACK_GRACE_SECONDS)]
    over = world.moved(S.IDLE)
    assert isinstance(without_keeps(over)[0], WithdrawInstruction)
    assert outcome(over) is Outcome.SUCCESS


def test_rule_2_what_was_being_configured_is_not_a_success_when_it_is_taken_back() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    world.execute.blob_answered("id-1", b"blob", 0, world.now)
    world.acked(S.CONFIGURING, "prod", 7)
    world.is_(S.DRAINING, "prod", 7)
    effects = world.execute.taken_back(M, world.now)
    assert outcome(effects) is Outcome.FAILED
    assert Instruct("prod", "id-2", M, TAKEN_BACK_GRACE_SECONDS) in effects


@pytest.mark.parametrize("sessions", [{"prod", "old"}, set()])
def test_rule_2_a_preemption_overtaken_by_the_provider_keeps_its_goal_and_tells_the_operator_once(
    sessions: set[str],
) -> None:
    world = World(S.CONFIGURED, sessions=sessions)
    effects = world.start(Kind.PREEMPT) + world.moved(S.DRAINING) + world.execute.taken_back(M, world.now)
    assert [type(effect) for effect in without_keeps(effects)] == [Instruct]
    world.sessions = {"prod"}
    assert [type(effect) for effect in without_keeps(world.moved(S.IDLE))] == [WithdrawInstruction, RequestBlob]


def test_rule_2_a_drain_of_ours_on_its_way_is_not_taken_for_the_providers() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    world.execute.node_drained("id-1", world.now)
    world.is_(S.DRAINING)
    assert world.execute.taken_back(M, world.now) == []
    assert without_keeps(world.acked(S.DRAINING)) == []


def test_rule_2_a_configure_on_its_way_is_waited_for_when_its_machine_is_taken_back() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    world.execute.blob_answered("id-1", b"blob", 0, world.now)
    world.is_(S.DRAINING, "prod", 7)
    assert world.execute.taken_back(M, world.now) == []
    assert world.step is Step.CONFIGURE


def test_rule_2_what_is_taken_back_between_decision_and_file_is_told_to_its_operator() -> None:
    world = World(S.CONFIGURED)
    world.execute.decided(ACTIONS[Kind.PREEMPT], world.now)
    assert world.moved(S.DRAINING) == world.execute.taken_back(M, world.now) == []
    told = world.execute.begin([M], world.now)
    assert without_keeps(told) == [Instruct("old", "id-1", M, TAKEN_BACK_GRACE_SECONDS, stamp(7))]


def test_a_reclaim_does_not_follow_its_machine_to_another_cluster() -> None:
    world = World(S.CONFIGURED, cluster="third", sessions=["third"])
    assert outcome(world.start(Kind.RECLAIM)) is Outcome.DROPPED


def test_rule_2_a_host_that_is_gone_is_created_anew_and_its_operators_are_told() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    assert without_keeps(world.moved(S.SPECULATIVE)) == [WithdrawBlob("prod", "id-1"), Ask(M, P, Call.CREATE)]
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    withdrawn, ask = without_keeps(world.moved(S.SPECULATIVE))
    assert isinstance(withdrawn, WithdrawInstruction)
    assert ask == Ask(M, P, Call.CREATE)


def test_rule_3_an_ack_that_does_not_fit_drops_the_commitment_and_the_machine_is_looked_at() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    world.execute.blob_answered("id-1", b"blob", 0, world.now)
    dropped = world.execute.call_failed(M, Problem.MISMATCH, "another cluster")
    assert outcome(dropped) is Outcome.MISMATCH
    assert dropped[-1] == Settle(M, P)
    assert (world.step, world.got(S.CONFIGURED, "third")) == (None, [])


@pytest.mark.parametrize(("cluster", "number"), [("third", 7), ("prod", 8)])
@pytest.mark.parametrize("state", [S.CONFIGURING, S.CONFIGURED])
def test_rule_3_a_doubtful_configure_that_turns_out_to_be_anothers_is_no_success(
    state: MachineState, cluster: str, number: int
) -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    world.execute.blob_answered("id-1", b"blob", 0, world.now)
    world.lost()
    assert outcome(world.got(state, cluster, number)) is Outcome.DROPPED


def test_rule_3_a_lost_configure_repeats_with_the_same_cluster_and_stamp() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    world.execute.blob_answered("id-1", b"blob", 0, world.now)
    assert without_keeps(world.lost()) == [Settle(M, P)]
    assert without_keeps(world.got(S.IDLE)) == [RequestBlob("prod", "id-2", M, stamp(7))]
    assert without_keeps(world.execute.blob_answered("id-2", b"blob", 0, world.now)) == [CONFIGURE]


def test_rule_6_a_row_moves_nothing_while_a_call_or_a_doubt_is_open() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    assert world.moved(S.IDLE) == []
    world.lost()
    assert world.moved(S.CREATING) == []
    assert without_keeps(world.got(S.SPECULATIVE)) == [Ask(M, P, Call.CREATE)]


def test_rule_6_a_get_that_finds_nothing_ends_the_commitment() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    world.lost()
    world.seen = None
    assert outcome(world.execute.settled(M, world.now)) is Outcome.DROPPED


@pytest.mark.parametrize(
    ("source", "kind", "via", "seconds"),
    [
        (S.SPECULATIVE, Kind.PROVISION, S.CREATING, CALL_SECONDS),
        (S.IDLE, Kind.BOOTSTRAP, S.CONFIGURING, CALL_SECONDS),
        (S.IDLE, Kind.DELETE, S.DELETING, CALL_SECONDS),
        (S.CONFIGURED, Kind.RECLAIM, S.DRAINING, EMPTY_GRACE_SECONDS + DRAIN_SLACK_SECONDS),
    ],
)
def test_rule_6_a_time_out_ends_the_commitment_and_no_more(
    source: MachineState, kind: Kind, via: MachineState, seconds: float
) -> None:
    world = World(source)
    world.start(kind)
    world.execute.blob_answered("id-1", b"blob", 0, world.now)
    world.execute.node_drained("id-1", world.now)
    world.acked(via, "prod" if via is S.CONFIGURING else "old", 7)
    assert without_keeps(world.later(seconds - 1)) == []
    over = world.later(1)
    assert outcome(over) is Outcome.TIMEOUT
    assert held(over) == [Held.MACHINE]
    assert not [effect for effect in over if isinstance(effect, Ask | Settle)]


def test_rule_6_a_call_that_has_not_come_back_is_never_joined_by_a_second() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    assert world.later(10 * CALL_SECONDS) == []
    assert world.start(Kind.PROVISION) == []
    assert outcome(world.acked(S.CREATING) + world.later(0)) is Outcome.TIMEOUT


def test_rule_6_a_call_that_is_lost_again_and_again_times_out() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    for turn in range(1, 100):
        effects = world.execute.blob_answered(f"id-{turn}", b"blob", 0, world.now)
        if world.step is None:
            break
        world.lost()
        world.now += 120
        world.got(S.IDLE)
    assert outcome(effects) is Outcome.TIMEOUT
    assert turn == 1 + CALL_SECONDS / 120


def test_rule_6_an_ack_ends_the_count_of_lost_calls() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    world.lost()
    world.got(S.SPECULATIVE)
    world.acked(S.CREATING)
    world.later(CALL_SECONDS - 1)
    world.moved(S.IDLE)
    world.later(1)
    assert without_keeps(world.execute.blob_answered("id-1", b"blob", 0, world.now)) == [CONFIGURE]


def test_rule_6_a_lost_call_that_took_effect_has_run_since_it_was_made() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    world.lost()
    world.later(CALL_SECONDS - 60)
    world.got(S.CREATING)
    assert without_keeps(world.later(59)) == []
    assert outcome(world.later(1)) is Outcome.TIMEOUT


@pytest.mark.parametrize(
    ("problem", "ended", "holds"),
    [
        (Problem.NOT_FOUND, Outcome.DROPPED, []),
        (Problem.REFUSED, Outcome.REFUSED, []),
        (Problem.INVALID, Outcome.FAILED, [Held.MACHINE]),
        (Problem.UNSUPPORTED, Outcome.UNSUPPORTED, []),
        (Problem.EXHAUSTED, Outcome.EXHAUSTED, [Held.SHAPE]),
    ],
)
def test_a_refused_create_ends_as_its_problem_says(problem: Problem, ended: Outcome, holds: list[Held]) -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    effects = world.execute.call_failed(M, problem, "no")
    assert (outcome(effects), held(effects), effects[-1]) == (ended, holds, Settle(M, P))


@pytest.mark.parametrize("problem", [Problem.INVALID, Problem.EXHAUSTED])
def test_user_data_that_a_provider_will_not_take_is_the_needs_fault_and_no_machines(problem: Problem) -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    world.execute.blob_answered("id-1", b"x", 3600, world.now)
    assert held(world.execute.call_failed(M, problem, "too large")) == [Held.NEED]


def test_a_limit_on_drains_says_nothing_of_stock() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.execute.node_drained("id-1", world.now)
    assert held(world.execute.call_failed(M, Problem.EXHAUSTED, "too many")) == []


# Shard


@pytest.mark.parametrize("state", [S.SPECULATIVE, S.IDLE, S.CONFIGURED])
def test_rule_9_nothing_is_sent_before_the_commitment_is_durable(state: MachineState) -> None:
    kind = {S.SPECULATIVE: Kind.PROVISION, S.IDLE: Kind.DELETE, S.CONFIGURED: Kind.PREEMPT}[state]
    world = World(state)
    assert [type(effect) for effect in world.execute.decided(ACTIONS[kind], world.now)] == [Keep]
    assert world.later(3600) == world.moved(state) == world.execute.session_opened(world.now) == []
    world.execute.released([M])
    assert world.execute.begin([M], world.now) == []


@pytest.mark.parametrize("disturb", ["list", "tick", "resume"])
def test_rule_9_what_an_earlier_life_began_is_settled_by_get_before_anything_is_done(disturb: str) -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    assert world.restart() == [Settle(M, P)]
    match disturb:
        case "list":
            effects = world.moved(S.IDLE)
        case "tick":
            effects = world.later(10)
        case _:
            effects = world.execute.pause(world.now) + world.execute.resume(world.now)
    assert set(map(type, without_keeps(effects))) <= {Settle}
    assert without_keeps(world.got(S.SPECULATIVE)) == [Ask(M, P, Call.CREATE)]


@pytest.mark.parametrize("word", ["drained", "acked", "deadline"])
@pytest.mark.parametrize("state", [S.IDLE, S.FAILED, S.CONFIGURED])
def test_rule_9_no_operators_word_makes_a_call_before_the_get(word: str, state: MachineState) -> None:
    world = World(S.CONFIGURED)
    world.reports = word != "acked"
    world.start(Kind.PREEMPT)
    world.restart()
    match word:
        case "drained":
            effects = world.execute.node_drained("id-1", world.now)
        case "acked":
            effects = world.execute.reclaim_acked("id-1", world.now)
        case _:
            effects = world.later(GRACE)
    assert without_keeps(effects) == [Settle(M, P)]
    asks = [effect for effect in world.got(state) if isinstance(effect, Ask)]
    grace = {"drained": EMPTY_GRACE_SECONDS, "acked": GRACE, "deadline": 0}[word]
    assert asks == ([Ask(M, P, Call.DRAIN, grace_seconds=grace)] if state is S.CONFIGURED else [])


def test_rule_9_a_row_does_not_stand_for_the_get_and_the_get_is_asked_for_until_it_comes() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    world.restart()
    assert world.moved(S.IDLE) == []
    assert world.later(1) == world.later(1) == [Settle(M, P)]
    assert RequestBlob("prod", "id-2", M, stamp(7)) in world.got(S.IDLE)


def test_rule_9_a_new_goal_does_not_settle_a_doubt() -> None:
    world = World(S.IDLE)
    world.start(Kind.DELETE)
    world.lost()
    assert without_keeps(world.start(Kind.BOOTSTRAP)) == []
    assert without_keeps(world.got(S.IDLE)) == [RequestBlob("prod", "id-1", M, stamp(7))]


def test_rule_9_an_instruction_outlives_a_restart_with_its_id() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    world.restart()
    world.now += 100
    assert world.execute.unanswered("old", world.now) == [Instruct("old", "id-1", M, GRACE - 100, stamp(7))]
    assert without_keeps(world.got(S.CONFIGURED)) == []
    assert without_keeps(world.execute.node_drained("id-1", world.now)) == [DRAIN_EMPTY]


def test_rule_9_a_machine_that_left_while_the_shard_was_down_takes_its_instruction_with_it() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.restart()
    over = world.got(S.IDLE)
    assert isinstance(without_keeps(over)[0], WithdrawInstruction)
    assert outcome(over) is Outcome.SUCCESS


def test_rule_9_what_waited_long_for_an_operator_is_not_timed_out_by_a_restart() -> None:
    world = World(S.IDLE, sessions=())
    world.start(Kind.BOOTSTRAP)
    world.now += 2 * CALL_SECONDS
    world.restart()
    assert world.later(1) == [Settle(M, P)]


def test_rule_10_a_machine_fenced_twice_stops_the_shard() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    first = world.execute.call_failed(M, Problem.FENCED, "newer token")
    assert first[0] == Incident(M, "newer token", stop=False)
    assert outcome(first) is Outcome.FENCED
    world.start(Kind.PROVISION)
    assert world.execute.call_failed(M, Problem.FENCED, "again")[0] == Incident(M, "again", stop=True)


def test_rule_10_an_ack_in_between_means_that_nobody_newer_is_there() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    world.execute.call_failed(M, Problem.FENCED, "newer token")
    world.start(Kind.PROVISION)
    world.acked(S.CREATING)
    world.moved(S.FAILED)
    world.is_(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    assert world.execute.call_failed(M, Problem.FENCED, "once")[0] == Incident(M, "once", stop=False)


@pytest.mark.parametrize(
    ("state", "kind", "withdrawn"),
    [(S.IDLE, Kind.BOOTSTRAP, WithdrawBlob), (S.CONFIGURED, Kind.PREEMPT, WithdrawInstruction)],
)
def test_rule_11_demand_that_is_not_live_drops_what_has_not_reached_a_provider(
    state: MachineState, kind: Kind, withdrawn: type[Effect]
) -> None:
    world = World(state)
    world.start(kind)
    assert world.execute.not_live("old") == []
    dropped = world.execute.not_live("prod")
    assert isinstance(dropped[0], withdrawn)
    assert outcome(dropped) is Outcome.DROPPED


def test_rule_11_what_a_provider_is_at_work_on_goes_on() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    assert world.execute.not_live("prod") == []
    world.acked(S.CREATING)
    assert world.execute.not_live("prod") == []


def test_rule_12_a_cluster_without_a_session_is_not_drained_until_it_may_be_passed_by() -> None:
    world = World(S.CONFIGURED, sessions=())
    assert without_keeps(world.start(Kind.RECLAIM)) == []
    assert world.later(200) == []
    world.bypass = True
    assert without_keeps(world.later(1)) == [Ask(M, P, Call.DRAIN, grace_seconds=GRACE)]


def test_rule_12_an_operator_that_comes_back_is_told_instead() -> None:
    world = World(S.CONFIGURED, sessions=())
    world.start(Kind.RECLAIM)
    world.sessions.add("old")
    assert without_keeps(world.execute.session_opened(world.now)) == [Instruct("old", "id-1", M, GRACE)]


def test_rule_12_an_instruction_sent_before_the_loss_runs_its_grace_out() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    world.sessions.clear()
    assert world.later(GRACE - 1) == []
    assert without_keeps(world.later(1)) == [Ask(M, P, Call.DRAIN)]


def test_rule_14_an_instruction_is_replayed_until_its_drain_ends_with_the_grace_that_remains() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    world.now += 100
    assert world.execute.unanswered("old", world.now) == [Instruct("old", "id-1", M, GRACE - 100, stamp(7))]
    assert world.execute.unanswered("prod", world.now) == []
    world.execute.node_drained("id-1", world.now)
    world.acked(S.DRAINING)
    assert [type(each) for each in world.execute.unanswered("old", world.now)] == [Instruct]
    world.moved(S.IDLE)
    assert world.execute.unanswered("old", world.now) == []
    assert world.execute.unanswered("prod", world.now) == [RequestBlob("prod", "id-2", M, stamp(7))]


def test_rule_14_grace_over_a_preempt_goes_on_and_a_reclaim_is_given_up() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    assert without_keeps(world.later(GRACE)) == [Ask(M, P, Call.DRAIN)]
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    over = world.later(GRACE)
    assert (outcome(over), held(over)) == (Outcome.GIVEN_UP, [Held.RECLAIM])
    assert any(isinstance(effect, WithdrawInstruction) for effect in over)


def test_rule_14_an_operator_that_stops_ends_a_reclaim_and_not_a_preemption() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    assert world.execute.node_not_drained("id-1", "a budget forbids it") == []
    assert world.step is Step.INSTRUCTED
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    assert outcome(world.execute.node_not_drained("id-1", "a budget forbids it")) is Outcome.GIVEN_UP


def test_rule_14_a_strangers_operator_has_said_all_with_its_ack_and_the_rest_of_the_grace_is_the_providers() -> None:
    world = World(S.CONFIGURED)
    world.reports = False
    world.start(Kind.RECLAIM)
    world.now += 100
    assert without_keeps(world.execute.reclaim_acked("id-1", world.now)) == [
        Ask(M, P, Call.DRAIN, grace_seconds=GRACE - 100)
    ]


def test_rule_14_a_lost_drain_of_an_empty_node_is_not_given_the_whole_grace_again() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.execute.node_drained("id-1", world.now)
    world.lost()
    world.now += 10
    assert without_keeps(world.got(S.CONFIGURED)) == [
        Ask(M, P, Call.DRAIN, grace_seconds=EMPTY_GRACE_SECONDS - 10),
    ]


@pytest.mark.parametrize(
    ("state", "cluster"),
    [(S.IDLE, ""), (S.DELETING, ""), (S.SPECULATIVE, ""), (S.CONFIGURED, "third"), (S.FAILED, "")],
)
def test_rule_14_an_instruction_is_withdrawn_when_its_machine_leaves_that_binding(
    state: MachineState, cluster: str
) -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    withdrawn = [effect for effect in world.moved(state, cluster) if isinstance(effect, WithdrawInstruction)]
    assert [(each.cluster, each.instruction_id) for each in withdrawn] == [("old", "id-1")]
    assert world.execute.node_drained("id-1", world.now) == []


def test_rule_15_user_data_is_asked_for_only_with_a_session_and_an_idle_machine() -> None:
    world = World(S.IDLE, sessions=())
    assert without_keeps(world.start(Kind.BOOTSTRAP)) == []
    assert world.later(1) == []
    world.sessions.add("prod")
    assert without_keeps(world.later(1)) == [RequestBlob("prod", "id-1", M, stamp(7))]


@pytest.mark.parametrize("state", [S.SPECULATIVE, S.DELETING, S.FAILED, S.CONFIGURING, S.CREATING])
def test_rule_15_a_request_is_withdrawn_when_the_machine_is_idle_no_more(state: MachineState) -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    assert WithdrawBlob("prod", "id-1") in world.moved(state, "prod", 7)
    assert world.execute.blob_answered("id-1", b"late", 0, world.now) == []
    assert world.execute.blob_failed("id-1", "late") == []


def test_rule_15_the_first_answer_counts() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    world.execute.blob_answered("id-1", b"blob", 0, world.now)
    assert world.execute.blob_answered("id-1", b"other", 0, world.now) == []
    assert world.execute.blob_failed("id-1", "late") == []


def test_rule_15_user_data_soon_to_expire_is_asked_for_anew_once() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    soon = int(CALL_SECONDS) - 1
    assert without_keeps(world.execute.blob_answered("id-1", b"blob", soon, world.now)) == [
        RequestBlob("prod", "id-2", M, stamp(7))
    ]
    over = world.execute.blob_answered("id-2", b"blob", soon, world.now)
    assert (outcome(over), held(over)) == (Outcome.BOOTSTRAP_ERROR, [Held.NEED])
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    world.execute.blob_answered("id-1", b"blob", soon, world.now)
    # Not a moment to lose: what waits for its turn is asked for anew.
    assert without_keeps(world.execute.blob_answered("id-2", b"blob", soon + 1, world.now)) == [
        msgspec.structs.replace(CONFIGURE, until=world.now)
    ]


def test_what_stands_in_the_way_of_one_machine_holds_that_machine() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    over = world.execute.blob_failed("id-1", "its old Node is there", Held.MACHINE)
    assert (outcome(over), held(over)) == (Outcome.BOOTSTRAP_ERROR, [Held.MACHINE])


def test_rule_15_an_operator_that_has_none_or_is_silent_holds_the_need() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    over = world.execute.blob_failed("id-1", "no template")
    assert (outcome(over), held(over)) == (Outcome.BOOTSTRAP_ERROR, [Held.NEED])
    assert not [effect for effect in over if isinstance(effect, WithdrawBlob)]
    world.start(Kind.BOOTSTRAP)
    assert world.later(BLOB_SECONDS - 1) == []
    over = world.later(1)
    assert (outcome(over), held(over)) == (Outcome.BOOTSTRAP_ERROR, [Held.NEED])
    assert WithdrawBlob("prod", "id-2") in over


def test_rule_15_a_restart_withdraws_what_the_earlier_life_asked() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    assert world.restart() == [WithdrawBlob("prod", "id-1"), Settle(M, P)]
    assert without_keeps(world.got(S.IDLE)) == [RequestBlob("prod", "id-2", M, stamp(7))]


@pytest.mark.parametrize("sessions", [{"prod", "old"}, set()])
def test_rule_18_a_pause_cancels_drains_that_no_provider_knows_of(sessions: set[str]) -> None:
    world = World(S.CONFIGURED, sessions=sessions)
    world.start(Kind.RECLAIM)
    over = world.execute.pause(world.now)
    assert outcome(over) is Outcome.DROPPED
    assert [type(effect) for effect in over] == ([WithdrawInstruction, Ended] if sessions else [Ended])


def test_rule_18_a_suppressed_action_is_no_commitment() -> None:
    world = World(S.IDLE)
    world.execute.pause(world.now)
    assert world.start(Kind.BOOTSTRAP) == []
    assert len(world.execute) == 0


def test_rule_18_nothing_is_sent_in_a_pause_and_what_held_its_step_goes_on_after_it() -> None:
    world = World(S.IDLE)
    world.start(Kind.BOOTSTRAP)
    world.execute.pause(world.now)
    assert without_keeps(world.execute.blob_answered("id-1", b"blob", 0, world.now)) == []
    assert world.later(3600) == world.execute.session_opened(world.now) == world.execute.pause(world.now) == []
    assert without_keeps(world.execute.resume(world.now)) == [RequestBlob("prod", "id-2", M, stamp(7))]


def test_rule_18_what_became_durable_in_a_pause_begins_after_it() -> None:
    world = World(S.SPECULATIVE)
    world.execute.decided(ACTIONS[Kind.PROVISION], world.now)
    world.execute.pause(world.now)
    assert without_keeps(world.execute.begin([M], world.now)) == []
    assert without_keeps(world.execute.resume(world.now)) == [Ask(M, P, Call.CREATE)]


def test_rule_18_a_pause_stops_time_outs() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    world.acked(S.CREATING)
    world.later(CALL_SECONDS - 10)
    world.execute.pause(world.now)
    assert world.later(5 * CALL_SECONDS) == []
    assert without_keeps(world.execute.resume(world.now)) == []
    assert without_keeps(world.later(9)) == []
    assert outcome(world.later(1)) is Outcome.TIMEOUT


def test_rule_18_no_new_instruction_is_sent_in_a_pause_even_for_what_the_provider_takes_back() -> None:
    world = World(S.DRAINING)
    world.execute.pause(world.now)
    assert without_keeps(world.execute.taken_back(M, world.now)) == []
    world.now += 50
    assert without_keeps(world.execute.resume(world.now)) == [Instruct("old", "id-1", M, TAKEN_BACK_GRACE_SECONDS)]


def test_rule_18_a_drain_that_turns_out_not_to_have_begun_is_cancelled_in_a_pause() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.execute.node_drained("id-1", world.now)
    world.execute.pause(world.now)
    assert without_keeps(world.lost()) == [Settle(M, P)]
    over = world.got(S.CONFIGURED)
    assert isinstance(over[0], WithdrawInstruction)
    assert outcome(over) is Outcome.DROPPED


def test_rule_18_a_doubt_is_settled_anew_after_a_pause() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    world.lost()
    world.execute.pause(world.now)
    assert world.got(S.SPECULATIVE) == []
    assert without_keeps(world.execute.resume(world.now)) == [Settle(M, P)]


def test_rule_18_a_pause_that_survives_a_restart_cancels_what_the_earlier_life_instructed() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    over = world.restart(paused=True)
    assert isinstance(over[0], WithdrawInstruction)
    assert outcome(over) is Outcome.DROPPED
    assert world.execute.node_drained("id-1", world.now) == []


@pytest.mark.parametrize(("away", "left"), [(-50.0, 400), (0.0, 400), (150.0, 250), (9999.0, 0)])
def test_rule_19_after_a_restart_a_grace_counts_the_time_away_and_all_else_resumes(away: float, left: int) -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    (commitment,) = world.execute
    back = resumed(commitment, world.now + GRACE - 400, away, 5.0)
    assert back.deadline - 5.0 == left
    assert 5.0 - back.began == 5.0 - back.decided == GRACE - 400
    world.execute = Execute(world, BLOB_SECONDS)
    world.execute.restore([back], 5.0)
    (instruct,) = world.execute.unanswered("old", 5.0)
    assert isinstance(instruct, Instruct)
    assert instruct.grace_seconds == left


def test_rule_19_a_call_that_ran_before_a_restart_does_not_begin_its_time_anew() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    world.acked(S.CREATING)
    (commitment,) = world.execute
    world.execute = Execute(world, BLOB_SECONDS)
    world.now, written = 50.0, world.now + CALL_SECONDS - 60
    world.execute.restore([resumed(commitment, written, 7 * 3600.0, world.now)], world.now)
    world.got(S.CREATING)
    assert without_keeps(world.later(59)) == []
    assert outcome(world.later(1)) is Outcome.TIMEOUT


def test_rule_19_a_grace_that_was_over_stays_over() -> None:
    over = msgspec.structs.replace(
        Commitment(machine=M, provider=P, kind=Kind.PREEMPT, step=Step.DRAINING, began=0.0), deadline=10.0, doubted=4.0
    )
    back = resumed(over, written=30.0, away=100.0, now=1000.0)
    assert (back.deadline, back.doubted) == (980.0, 974.0)


# Between two lives, and between a decision and its write


@pytest.mark.parametrize("step", [Step.WAITING, Step.DECIDED])
def test_rule_2_an_unasked_drain_goes_to_the_operator_after_a_restart_too(step: Step) -> None:
    world = World(S.CONFIGURED, sessions=())
    if step is Step.WAITING:
        world.start(Kind.RECLAIM)
    else:
        world.execute.decided(ACTIONS[Kind.RECLAIM], world.now)
    assert world.step is step
    world.restart()
    world.sessions = {"old"}
    assert any(isinstance(effect, Instruct) for effect in world.got(S.DRAINING))


def test_rule_2_and_18_taken_back_in_a_pause_that_a_restart_falls_into() -> None:
    world = World(S.CONFIGURED, sessions=("old",))
    world.execute.pause(world.now)
    world.is_(S.DRAINING)
    world.execute.taken_back(M, world.now)
    world.restart(paused=True)
    world.got(S.DRAINING)
    assert any(isinstance(effect, Instruct) for effect in world.execute.resume(world.now))


def test_rule_9_a_reclaim_on_file_is_settled_before_it_is_given_up() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.restart()
    assert without_keeps(world.later(GRACE + 1)) == [Settle(M, P)]


def test_rule_9_a_goal_is_not_acted_on_before_it_is_durable() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.execute.node_drained("id-1", world.now)
    world.acked(S.DRAINING)
    assert world.execute.decided(ACTIONS[Kind.BOOTSTRAP], world.now)
    assert outcome(world.moved(S.IDLE)) is Outcome.SUCCESS
    assert world.execute.begin([M], world.now) == []


def test_rule_9_a_goal_that_could_not_be_written_does_not_stand() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.execute.node_drained("id-1", world.now)
    world.acked(S.DRAINING)
    (standing,) = world.execute
    world.execute.decided(ACTIONS[Kind.BOOTSTRAP], world.now)
    assert world.execute.released([M]) == [Keep(standing)]
    assert outcome(world.moved(S.IDLE)) is Outcome.SUCCESS


def test_rule_9_a_goal_that_could_not_be_written_is_not_the_next_commitments() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.execute.node_drained("id-1", world.now)
    world.acked(S.DRAINING)
    world.execute.decided(ACTIONS[Kind.BOOTSTRAP], world.now)
    world.moved(S.IDLE)
    assert world.execute.released([M]) == []
    assert without_keeps(world.start(Kind.DELETE)) == [Ask(M, P, Call.DELETE)]
