"""The tables of a commitment's steps: whole, drawn as they are, and what commitments really do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.model.machine import ASKS, Call, MachineState
from bigfleet.shard.execution.commitment import Commitment, Commitments
from bigfleet.shard.execution.steps import (
    CALLING,
    LEADS_TO,
    MAY_END,
    MOVES,
    REVOCABLE,
    RULES,
    STEP_OF,
    Goal,
    Move,
    Step,
    follows,
)
from hack import commitment_drawing
from tests.shard.execution.life import STEPS, Life


def test_every_step_goal_and_move_has_its_row() -> None:
    assert set(RULES) == set(Step)
    assert set(MOVES) == set(Goal)
    assert all(set(moves) == set(MachineState) for moves in MOVES.values())
    assert set(LEADS_TO) == set(Move)
    assert all(LEADS_TO[move] or move in MAY_END for move in Move)
    assert set(STEP_OF) == set(Call)


@pytest.mark.parametrize("step", CALLING)
def test_an_acknowledged_call_falls_back_to_where_the_machine_was(step: Step) -> None:
    after = RULES[step].acknowledged
    assert after is not None
    ask = next(ask for ask in ASKS if ask.call is CALLING[step] and ask.source is not MachineState.FAILED)
    assert RULES[after].falls_back_to is ask.source


def test_a_commitment_is_revocable_where_no_provider_can_know_of_it() -> None:
    at_provider = {*CALLING, *(rule.acknowledged for rule in RULES.values()), Step.DOUBT} - {None}
    assert not REVOCABLE & at_provider
    assert REVOCABLE | at_provider == set(Step)


def test_rule_9_a_step_that_a_provider_may_know_of_is_restored_as_a_doubt() -> None:
    restored = {RULES[step].restored_as for step in Step if step not in REVOCABLE}
    assert restored == {Step.DOUBT}


@given(st.binary(min_size=STEPS, max_size=8 * STEPS))
@settings(max_examples=60, deadline=None)
def test_a_commitment_takes_only_steps_that_the_tables_name(story: bytes) -> None:
    strange: set[tuple[Step, Step]] = set()
    put = Commitments.put

    def watched(self: Commitments, commitment: Commitment) -> None:
        before = self.get(commitment.machine)
        if before is not None and before.step is not commitment.step and commitment.step not in follows(before.step):
            strange.add((before.step, commitment.step))
        put(self, commitment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Commitments, "put", watched)
        Life(story).run()
    assert strange == set()


def test_the_drawing_is_up_to_date() -> None:
    assert commitment_drawing.PAGE.read_text(encoding="utf-8") == commitment_drawing.page(), "run `make generate`"
