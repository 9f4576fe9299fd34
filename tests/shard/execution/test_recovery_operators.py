"""The way out of Failed where an operator empties the node first: rules 1 and 14."""

import pytest

from bigfleet.model.machine import Call, MachineState
from bigfleet.shard.execution.effects import Instruct, Problem, ProviderCall, Settle, WithdrawInstruction
from bigfleet.shard.execution.recovery import (
    FIRST_SECONDS,
    Recovered,
)
from tests.shard.execution.one_failure import DELETE, DRAIN, DRAIN_EMPTY, GRACE, TELL, M, P, S, World, kinds


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
    assert world.later(GRACE) == [ProviderCall(M, P, Call.DRAIN)]


def test_rule_14_an_operator_that_stops_leaves_the_rest_of_the_grace_to_the_provider() -> None:
    world = World(ready=True)
    world.first()
    world.now += 20
    assert world.recovery.node_not_drained("id-1", world.now) == [
        ProviderCall(M, P, Call.DRAIN, grace_seconds=GRACE - 20)
    ]


@pytest.mark.parametrize("reports", [True, False])
def test_rule_14_a_strangers_operator_has_said_all_with_its_ack(reports: bool) -> None:
    world = World(ready=True)
    world.reports = reports
    world.first()
    world.now += 20
    rest = [ProviderCall(M, P, Call.DRAIN, grace_seconds=GRACE - 20)]
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
