"""Law 7: a shard that starts again decides as it would have; without its file it is safe, if slower to give back."""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.oracle import restart, search
from tests.engine.oracle.build import fleet, machine, need
from tests.engine.oracle.generate import cases
from tests.engine.oracle.loop import Loop, fixed
from tests.engine.oracle.world import PINNED, Kind, Need, World

# A longer look: BIGFLEET_EXAMPLES=100000 make test TESTS=tests/engine/test_restart.py
EXAMPLES = int(os.environ.get("BIGFLEET_EXAMPLES", "1500"))
LOOK = settings(max_examples=max(1, EXAMPLES // 15), deadline=None, suppress_health_check=list(HealthCheck))
Way = Callable[[Loop, tuple[Need, ...], int, int], list[str]]


@pytest.mark.parametrize("way", [restart.with_the_file, restart.without_since_times, restart.without_the_file])
@LOOK
@given(cases(search.CHECKS["restart"][1]), st.integers(0, 1_000_000))
def test_law_7_a_restart_in_mid_flight(way: Way, case: tuple[World, tuple[Need, ...]], seed: int) -> None:
    loop, then = search.in_mid_flight(search.Case(*case, seed))
    assert way(loop, then, seed, 10) == []


def test_law_7_what_a_preempted_machine_drains_for_is_in_the_file() -> None:
    high, low = need("high", 1, 8, priority=5), need("low", 1, 8)
    world = fleet([machine("m", 8, "low", number=1, own=low), machine("spare", 8, "low", number=2)], [high, low])
    loop = Loop.of(world, fixed(0, 0, 5))
    assert [(a.kind, a.machine) for a in loop.step().actions] == [(Kind.PREEMPT, "spare")]
    again = restart.restarted(loop, restart.file_of(loop), restart.reports_of(loop), 0)
    assert again.machines["spare"].committed_to == "high"
    assert again.step().actions == ()
    lost = restart.restarted(loop, restart.File(), restart.reports_of(loop), 0)
    assert lost.machines["spare"].committed_to == ""


def test_law_7_a_stamp_keeps_a_machine_from_harm_until_its_cluster_reports() -> None:
    high, pinned = need("high", 1, 8, priority=5), need("low", 1, 8, interruption=PINNED)
    loop = Loop.of(fleet([machine("m", 8, "low", number=1, own=pinned)], [high, pinned]), fixed(0, 0, 0))
    reports = [report for report in restart.reports_of(loop) if report.cluster.id == "high"]
    silent = restart.silent("low")
    assert restart.restarted(loop, restart.File(), [*reports, silent], 0).step().actions == ()
