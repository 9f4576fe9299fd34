"""Providers that lie are caught: by the behaviour that names their defect, and by the suite as a whole."""

from pathlib import Path

import pytest

from bigfleet.conformance.suite import Outcome
from tests.conformance.liars import DURABLE, LIARS
from tests.conformance.stand import certified, certified_process, message, outcomes


@pytest.mark.parametrize("name", LIARS, ids=lambda name: f"liar_{name}")
async def test_liar_is_caught_by_the_behaviour_that_names_its_defect(name: str, tmp_path: Path) -> None:
    liar = LIARS[name]
    only = () if liar.whole else (liar.named_by, *liar.spares)
    report = await certified(liar.make, tmp_path, suite={"only": only}, **liar.options)
    found = outcomes(report)
    assert found[liar.named_by] is Outcome.FAILED, message(report, liar.named_by)
    assert not report.passed
    assert {spared: found[spared] for spared in liar.spares} == dict.fromkeys(liar.spares, Outcome.PASSED)


@pytest.mark.parametrize("name", DURABLE, ids=lambda name: f"liar_{name}")
async def test_liar_that_forgets_in_a_restart_is_caught(name: str, tmp_path: Path) -> None:
    report = await certified_process(tmp_path, "--liar", name, only=("B10", "B208"))
    found = outcomes(report)
    assert found[DURABLE[name]] is Outcome.FAILED, message(report, DURABLE[name])
    assert not report.passed
    assert found["B208"] is Outcome.PASSED
