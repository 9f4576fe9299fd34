"""Laws of execute against a provider and operators that are only played: they lose, delay, refuse, lie idle and go."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.shard.execution.commitment import Commitment
from tests.shard.execution.life import (
    STEPS,
    Life,
)


@settings(max_examples=400, deadline=None)
@given(st.binary(min_size=4 * STEPS, max_size=4 * STEPS))
def test_no_story_breaks_a_law_and_every_story_comes_to_an_end(story: bytes) -> None:
    life = Life(story)
    life.run()
    life.everybody_answers()


@given(st.binary(min_size=4 * STEPS, max_size=4 * STEPS))
def test_a_commitment_is_read_back_as_it_was_written(story: bytes) -> None:
    life = Life(story)
    life.run()
    for each in life.kept.values():
        assert msgspec.json.decode(msgspec.json.encode(each), type=Commitment) == each
