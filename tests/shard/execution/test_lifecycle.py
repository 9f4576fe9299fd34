"""The life of an action between its decision and its end, and what providers do to it: rules 1 to 6."""

import pytest

from bigfleet.engine.records import Kind
from bigfleet.model.machine import Call, MachineState
from bigfleet.shard.execution.effects import (
    Held,
    Instruct,
    Outcome,
    Problem,
    ProviderCall,
    RequestBlob,
    Settle,
    WithdrawBlob,
    WithdrawInstruction,
)
from bigfleet.shard.execution.steps import (
    CALL_SECONDS,
    DRAIN_SLACK_SECONDS,
    EMPTY_GRACE_SECONDS,
    TAKEN_BACK_GRACE_SECONDS,
    Step,
)
from tests.shard.execution.one_action import (
    ACTIONS,
    CONFIGURE,
    DRAIN_EMPTY,
    GRACE,
    M,
    P,
    S,
    World,
    held,
    outcome,
    stamp,
    without_keeps,
)


def test_a_slot_is_created_and_bootstrapped() -> None:
    world = World(S.SPECULATIVE)
    assert without_keeps(world.start(Kind.PROVISION)) == [ProviderCall(M, P, Call.CREATE)]
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
    assert without_keeps(world.start(Kind.DELETE)) == [ProviderCall(M, P, Call.DELETE)]
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


def test_rule_3_a_goal_that_was_never_written_goes_with_its_commitment() -> None:
    world = World(S.DRAINING)
    world.execute.taken_back(M, world.now)
    assert world.execute.decided(ACTIONS[Kind.BOOTSTRAP], world.now)
    assert outcome(world.moved(S.IDLE)) is Outcome.SUCCESS
    world.is_(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    commitment = world.execute.get(M)
    assert commitment is not None
    assert (commitment.kind, commitment.cluster) == (Kind.RECLAIM, "")


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
    assert not [effect for effect in failed if isinstance(effect, ProviderCall)]


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
    assert without_keeps(world.moved(S.SPECULATIVE)) == [WithdrawBlob("prod", "id-1"), ProviderCall(M, P, Call.CREATE)]
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    withdrawn, ask = without_keeps(world.moved(S.SPECULATIVE))
    assert isinstance(withdrawn, WithdrawInstruction)
    assert ask == ProviderCall(M, P, Call.CREATE)


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
    assert without_keeps(world.got(S.SPECULATIVE)) == [ProviderCall(M, P, Call.CREATE)]


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
    assert not [effect for effect in over if isinstance(effect, ProviderCall | Settle)]


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
