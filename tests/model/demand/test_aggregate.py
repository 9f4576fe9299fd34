import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bigfleet.model.crd import CapacityRequest
from bigfleet.model.demand.aggregate import MAX_SIZES, Aggregator, aggregate
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator
from bigfleet.model.demand.request import RequestError
from bigfleet.model.resources import demand, largest, total


def request(name: str = "a", namespace: str = "shop", **spec: Any) -> CapacityRequest:
    document = {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"resources": {"cpu": "1"}, "priority": 0} | spec,
    }
    return msgspec.convert(document, CapacityRequest)


def rack(app: str, key: str = "rack") -> dict[str, Any]:
    return {"coLocation": {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}}


def test_equal_requests_become_one_row_that_sums_them() -> None:
    needs = aggregate(request(f"r{i}", resources={"cpu": "500m", "memory": "1Gi"}) for i in range(7))
    assert [(need.aggregate, need.unit) for need in needs] == [
        ((("cpu", 3_500), ("memory", 7 * 2**20)), (("cpu", 500), ("memory", 2**20)))
    ]
    assert needs[0].units == 7


def test_each_unit_size_has_a_row_of_its_own() -> None:
    needs = aggregate([request("a", resources={"cpu": "1"}), request("b", resources={"cpu": "2"})])
    assert [need.unit for need in needs] == [(("cpu", 1000),), (("cpu", 2000),)]
    assert len({need.profile.fingerprint for need in needs}) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"priority": 1},
        {"interruptionPenalty": "5"},
        {"reclamationPenalty": 5},
        {"requirements": [{"key": "gpu", "operator": "Exists"}]},
        {"topologySpread": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]},
        {"maxPerNode": 1},
        rack("db"),
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_requests_that_differ_in_anything_but_size_stay_apart(other: dict[str, Any]) -> None:
    assert len(aggregate([request("a"), request("b", **other)])) == 2


def test_penalties_that_share_a_bucket_share_a_row() -> None:
    needs = aggregate([request("a", interruptionPenalty="5"), request("b", interruptionPenalty="7500m")])
    assert [need.profile.interruption for need in needs] == [PenaltyBucket.P_8]


def test_the_order_of_requirements_makes_no_row() -> None:
    one = [{"key": "a", "operator": "In", "values": ["x", "y"]}, {"key": "b", "operator": "Exists"}]
    other = [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "In", "values": ["y", "x"]}]
    assert len(aggregate([request("a", requirements=one), request("b", requirements=other)])) == 1


def test_a_gang_is_one_row_whatever_its_sizes() -> None:
    members = [request(f"r{i}", resources={"cpu": str(i + 1), "memory": f"{9 - i}Gi"}, **rack("t")) for i in range(3)]
    (need,) = aggregate(members)
    assert need.unit == (("cpu", 3000), ("memory", 9 * 2**20))
    assert need.aggregate == (("cpu", 6000), ("memory", 24 * 2**20))
    assert need.group
    assert [(r.key, r.operator) for r in need.profile.same] == [("rack", Operator.SAME)]


def test_gangs_are_told_apart_by_namespace_domain_key_and_selector() -> None:
    needs = aggregate(
        [
            request("a", "red", **rack("x")),
            request("b", "red", **rack("x")),
            request("c", "blue", **rack("x")),
            request("d", "red", **rack("y")),
            request("e", "red", **rack("x", "zone")),
        ]
    )
    assert len(needs) == 4
    assert len({need.group for need in needs}) == 4


def test_a_profile_takes_no_more_rows_than_allowed_and_loses_nothing() -> None:
    requests = [request(f"r{i}", resources={"cpu": f"{i + 1}m", "memory": f"{i % 37 + 1}Mi"}) for i in range(500)]
    needs = aggregate(requests)
    assert len(needs) <= MAX_SIZES
    assert total((need.aggregate, 1) for need in needs) == total((demand(r.spec.resources), 1) for r in requests)
    for r in requests:
        size = demand(r.spec.resources)
        assert any(largest([need.unit, size]) == need.unit for need in needs)
    assert len({need.key for need in needs}) == len(needs)


def test_the_machine_limit_travels_with_the_profile() -> None:
    assert aggregate([request(maxPerNode=1)])[0].profile.max_per_machine == 1


def test_a_pod_that_asks_for_nothing_still_takes_a_place() -> None:
    (need,) = aggregate([request("a", resources={"cpu": "0"}), request("b", resources={"memory": "0"})])
    assert (need.unit, need.aggregate, need.units) == ((("pods", 1),), (("pods", 2),), 2)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"resources": {"cpu": "fast"}}, "spec.resources[cpu]"),
        ({"resources": {"cpu": "-1"}}, "spec.resources[cpu]"),
        ({"interruptionPenalty": "-5"}, "spec.interruptionPenalty"),
        ({"reclamationPenalty": "dear"}, "spec.reclamationPenalty"),
        ({"requirements": [{"key": "a", "operator": "In"}]}, "spec.requirements[0].values"),
        ({"requirements": [{"key": "", "operator": "Exists"}]}, "spec.requirements[0].key"),
        (
            {"topologySpread": [{"topologyKey": "", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpread[0].topologyKey",
        ),
        (rack("x", ""), "spec.coLocation.topologyKey"),
    ],
)
def test_a_request_that_cannot_be_demand_is_named_and_changes_nothing(spec: dict[str, Any], field: str) -> None:
    aggregator = Aggregator()
    aggregator.put(request("a"))
    before = aggregator.needs()
    with pytest.raises(RequestError) as caught:
        aggregator.put(request("a", **spec))
    assert (caught.value.name, caught.value.field) == ("shop/a", field)
    assert aggregator.needs() == before


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_the_order_of_requests_changes_nothing(seed: int, count: int) -> None:
    rng = random.Random(seed)
    requests = [
        request(
            f"r{i}",
            resources={"cpu": rng.randrange(1, 9), "memory": f"{rng.randrange(1, 9)}Gi"},
            priority=rng.randrange(2),
            **(rack(rng.choice("xy")) if rng.random() < 0.3 else {}),
        )
        for i in range(count)
    ]
    shuffled = rng.sample(requests, count)
    assert aggregate(requests) == aggregate(shuffled)


class Churn(RuleBasedStateMachine):
    """Requests come, change and go; what is kept up to date must equal what is made from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.aggregator = Aggregator()
        self.live: dict[tuple[str, str], CapacityRequest] = {}

    @rule(
        name=st.sampled_from("abcd"), team=st.sampled_from(["red", "blue"]), cpu=st.integers(0, 3), gang=st.booleans()
    )
    def put(self, name: str, team: str, cpu: int, gang: bool) -> None:
        changed = request(name, team, resources={"cpu": cpu}, **(rack("t") if gang else {}))
        self.live[team, name] = changed
        self.aggregator.put(changed)

    @rule(name=st.sampled_from("abcd"), team=st.sampled_from(["red", "blue"]))
    def remove(self, name: str, team: str) -> None:
        self.live.pop((team, name), None)
        self.aggregator.remove(team, name)

    @invariant()
    def kept_equals_made_anew(self) -> None:
        kept: tuple[Need, ...] = self.aggregator.needs()
        assert kept == aggregate(self.live.values())
        assert len(self.aggregator) == len(self.live)


Churn.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestChurn = Churn.TestCase
