"""Actions while the shard is paused: rule 18."""

import pytest

from bigfleet.engine.records import Kind
from bigfleet.model.machine import Call
from bigfleet.shard.execution.effects import (
    Ended,
    Instruct,
    Outcome,
    ProviderCall,
    RequestBlob,
    Settle,
    WithdrawInstruction,
)
from bigfleet.shard.execution.steps import CALL_SECONDS, TAKEN_BACK_GRACE_SECONDS
from tests.shard.execution.one_action import ACTIONS, M, P, S, World, outcome, stamp, without_keeps


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
    assert without_keeps(world.execute.resume(world.now)) == [ProviderCall(M, P, Call.CREATE)]


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
