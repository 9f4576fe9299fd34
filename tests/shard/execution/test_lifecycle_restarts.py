"""Actions across restarts: what is on file, what is in doubt, and which times go on. Rules 9, 10 and 19."""

import msgspec
import pytest

from bigfleet.engine.records import Kind
from bigfleet.model.machine import Call, MachineState
from bigfleet.shard.execution.commitment import Commitment, resumed
from bigfleet.shard.execution.effects import (
    Fenced,
    Instruct,
    Keep,
    Outcome,
    Problem,
    ProviderCall,
    RequestBlob,
    Settle,
    WithdrawInstruction,
)
from bigfleet.shard.execution.steps import CALL_SECONDS, EMPTY_GRACE_SECONDS, Step
from tests.shard.execution.alone import LifecycleAlone
from tests.shard.execution.one_action import (
    ACTIONS,
    BLOB_SECONDS,
    DRAIN_EMPTY,
    GRACE,
    M,
    P,
    S,
    World,
    outcome,
    stamp,
    without_keeps,
)


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
    assert without_keeps(world.got(S.SPECULATIVE)) == [ProviderCall(M, P, Call.CREATE)]


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
    asks = [effect for effect in world.got(state) if isinstance(effect, ProviderCall)]
    grace = {"drained": EMPTY_GRACE_SECONDS, "acked": GRACE, "deadline": 0}[word]
    assert asks == ([ProviderCall(M, P, Call.DRAIN, grace_seconds=grace)] if state is S.CONFIGURED else [])


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
    assert first[0] == Fenced(M, "newer token", stop=False)
    assert outcome(first) is Outcome.FENCED
    world.start(Kind.PROVISION)
    assert world.execute.call_failed(M, Problem.FENCED, "again")[0] == Fenced(M, "again", stop=True)


def test_rule_10_an_ack_in_between_means_that_nobody_newer_is_there() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    world.execute.call_failed(M, Problem.FENCED, "newer token")
    world.start(Kind.PROVISION)
    world.acked(S.CREATING)
    world.moved(S.FAILED)
    world.is_(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    assert world.execute.call_failed(M, Problem.FENCED, "once")[0] == Fenced(M, "once", stop=False)


@pytest.mark.parametrize(("away", "left"), [(-50.0, 400), (0.0, 400), (150.0, 250), (9999.0, 0)])
def test_rule_19_after_a_restart_a_grace_counts_the_time_away_and_all_else_resumes(away: float, left: int) -> None:
    world = World(S.CONFIGURED)
    world.start(Kind.PREEMPT)
    (commitment,) = world.execute
    back = resumed(commitment, world.now + GRACE - 400, away, 5.0)
    assert back.deadline - 5.0 == left
    assert 5.0 - back.began == 5.0 - back.decided == GRACE - 400
    world.execute = LifecycleAlone(world, BLOB_SECONDS)
    world.execute.restore([back], 5.0)
    (instruct,) = world.execute.unanswered("old", 5.0)
    assert isinstance(instruct, Instruct)
    assert instruct.grace_seconds == left


def test_rule_19_a_call_that_ran_before_a_restart_does_not_begin_its_time_anew() -> None:
    world = World(S.SPECULATIVE)
    world.start(Kind.PROVISION)
    world.acked(S.CREATING)
    (commitment,) = world.execute
    world.execute = LifecycleAlone(world, BLOB_SECONDS)
    world.now, written = 50.0, world.now + CALL_SECONDS - 60
    world.execute.restore([resumed(commitment, written, 7 * 3600.0, world.now)], world.now)
    world.got(S.CREATING)
    assert without_keeps(world.later(59)) == []
    assert outcome(world.later(1)) is Outcome.TIMEOUT


def test_rule_19_a_grace_that_was_over_stays_over() -> None:
    over = msgspec.structs.replace(
        Commitment(machine=M, provider=P, kind=Kind.PREEMPT, step=Step.DRAINING, began=0.0),
        deadline=10.0,
        doubted=4.0,
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
    assert without_keeps(world.start(Kind.DELETE)) == [ProviderCall(M, P, Call.DELETE)]
