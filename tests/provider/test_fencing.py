"""Tokens: every one newer than all before it, and none that a provider would not fence."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.provider.fencing import Fencing, FencingToken


@given(st.lists(st.integers(0, 3), max_size=30))
def test_tokens_only_grow_whenever_the_epoch_does(steps: list[int]) -> None:
    fencing = Fencing("s1", 5)
    tokens = [fencing.token()]
    for step in steps:
        if step:
            fencing.renew(fencing.epoch + step)
        tokens.append(fencing.token())
    assert all((a.epoch, a.sequence) < (b.epoch, b.sequence) for a, b in pairwise(tokens))
    assert all(token.sequence >= 1 for token in tokens)


def test_the_first_token_of_an_epoch_is_number_one() -> None:
    fencing = Fencing("s1", 5)
    assert fencing.token() == FencingToken("s1", 5, 1)
    fencing.renew(6)
    assert fencing.token() == FencingToken("s1", 6, 1)


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_epoch_that_is_not_newer_is_refused(epoch: int) -> None:
    with pytest.raises(ValueError, match="not above 5"):
        Fencing("s1", 5).renew(epoch)


@pytest.mark.parametrize(("shard_id", "epoch"), [("", 5), ("s1", 0), ("s1", -1)])
def test_a_token_that_would_not_fence_cannot_be_made(shard_id: str, epoch: int) -> None:
    with pytest.raises(ValueError, match="needs a shard id and an epoch"):
        Fencing(shard_id, epoch)
