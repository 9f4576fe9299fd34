"""The compiled engine and the oracle answer alike, to the last unit, on random worlds."""

import os
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from bigfleet.engine.compiled import kept
from tests.engine.oracle import bridge, decision
from tests.engine.oracle.generate import Taste, worlds
from tests.engine.oracle.world import Decision, Verdict, World

# A longer look: BIGFLEET_EXAMPLES=100000 make test TESTS=tests/engine/test_equal.py
EXAMPLES = int(os.environ.get("BIGFLEET_EXAMPLES", "1500"))
LOOK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
LARGE = settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=list(HealthCheck))


def plain(answer: Decision) -> Decision:
    """An answer without its prose, and with verdicts as plain values."""
    actions = tuple(replace(action, reason="") for action in answer.actions)
    return replace(answer, actions=actions, verdicts=tuple(_plain(verdict) for verdict in answer.verdicts))


def _plain(verdict: Verdict) -> Verdict:
    takes: Mapping[str, Mapping[str, int]] = {
        name: {d: n for d, n in sorted(vector.items()) if n} for name, vector in sorted(verdict.takes.items())
    }
    return replace(verdict, takes=takes, residual=dict(sorted(verdict.residual.items())))


@LOOK
@given(worlds())
def test_the_engine_and_the_oracle_answer_alike(world: World) -> None:
    assert plain(bridge.decide(world)) == plain(decision.decide(world))


@LARGE
@given(worlds(Taste(machines=(10, 60), clusters=(2, 5), rows=(2, 6), units=(1, 20))))
def test_the_engine_and_the_oracle_answer_alike_on_larger_worlds(world: World) -> None:
    assert plain(bridge.decide(world)) == plain(decision.decide(world))


@settings(max_examples=max(1, EXAMPLES // 15), deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds())
def test_interpreted_and_compiled_walks_answer_alike(world: World) -> None:
    compiled = bridge.decide(world)
    with kept.interpreted():
        assert bridge.decide(world) == compiled
