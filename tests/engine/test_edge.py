"""The engine's edge: settings and answers that cannot be taken are refused by name."""

from typing import Any

import pytest

from bigfleet.engine.decide import Engine
from bigfleet.engine.records import ClusterRecord, Policy, PolicyError, UnmetReason
from bigfleet.engine.verdicts import StaleError
from bigfleet.model.machine import CapacityType
from bigfleet.model.need import Need
from bigfleet.model.profile import Profile


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("weight_priority", 2.5),
        ("weight_drain", -0.1),
        ("weight_interrupt", float("nan")),
        ("weight_reclaim", float("inf")),
        ("reclaim_percent", 101),
        ("draining_percent", -1),
        ("reclaim_after", -1),
        ("idle_hold", {CapacityType.SPOT: -1}),
    ],
)
def test_a_setting_that_cannot_be_reckoned_with_is_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(PolicyError, match=setting):
        Policy(**{setting: value})


def test_verdicts_are_those_of_the_last_decision_only() -> None:
    engine = Engine()
    engine.set_cluster(ClusterRecord(id="c"))
    unit = (("cpu", 1000),)
    engine.needs.replace("c", [Need(Profile(), unit, unit)])
    decision = engine.decide(Policy(), 0, 1)
    first = decision.verdicts
    assert first[0].unmet_reason is UnmetReason.NO_MATCHING_SUPPLY
    assert decision.shortfalls() == [first[0]]
    engine.decide(Policy(), 1, 1)
    with pytest.raises(StaleError, match="before the next one"):
        _ = first[0]
