"""Actions that need an operator: live demand, sessions, instructions and user data. Rules 11 to 15."""

import msgspec
import pytest

from bigfleet.engine.records import Kind
from bigfleet.model.machine import Call, MachineState
from bigfleet.shard.execution.effects import (
    Effect,
    Held,
    Instruct,
    Outcome,
    ProviderCall,
    RequestBlob,
    Settle,
    WithdrawBlob,
    WithdrawInstruction,
)
from bigfleet.shard.execution.steps import CALL_SECONDS, EMPTY_GRACE_SECONDS, Step
from tests.shard.execution.one_action import (
    BLOB_SECONDS,
    CONFIGURE,
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
    assert without_keeps(world.later(1)) == [ProviderCall(M, P, Call.DRAIN, grace_seconds=GRACE)]


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
    assert without_keeps(world.later(1)) == [ProviderCall(M, P, Call.DRAIN)]


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
    assert without_keeps(world.later(GRACE)) == [ProviderCall(M, P, Call.DRAIN)]
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
        ProviderCall(M, P, Call.DRAIN, grace_seconds=GRACE - 100)
    ]


def test_rule_14_a_lost_drain_of_an_empty_node_is_not_given_the_whole_grace_again() -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.RECLAIM)
    world.execute.node_drained("id-1", world.now)
    world.lost()
    world.now += 10
    assert without_keeps(world.got(S.CONFIGURED)) == [
        ProviderCall(M, P, Call.DRAIN, grace_seconds=EMPTY_GRACE_SECONDS - 10),
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
