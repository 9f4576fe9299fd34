"""A world whose pods are those of CapacityRequests."""

from typing import Any

import pytest

from bigfleet.model.crd import CapacityRequest, CapacityRequestSpec, CoLocation, LabelSelector, ObjectMeta
from bigfleet.model.demand.aggregate import aggregate
from bigfleet.model.demand.request import RequestError
from bigfleet.model.labels import RACK
from bigfleet.sim.clusters.request_world import RequestWorld
from bigfleet.sim.clusters.world import Pods
from tests.sim.clusters.frames import add_node

GANG = CoLocation(RACK, LabelSelector(match_labels={"run": "1"}))


def request(name: str, cpu: str = "1", **fields: Any) -> CapacityRequest:
    spec = CapacityRequestSpec(**{"resources": {"cpu": cpu, "memory": "1Gi"}, "priority": 0, **fields})
    return CapacityRequest(metadata=ObjectMeta(name=name, namespace="shop"), spec=spec)


def test_rows_are_those_that_an_operator_makes_of_the_requests() -> None:
    requests = [request("a"), request("b"), request("c", "2"), request("d", priority=5)]
    requests += [request("e", co_location=GANG), request("f", "3", co_location=GANG)]
    world = RequestWorld()
    world.replace_requests(requests)
    assert world.needs() == aggregate(requests)
    assert world.pods() == Pods(6, 0)


def test_pods_that_are_asked_for_still_stay_where_they_are_when_others_come_and_go() -> None:
    world = RequestWorld()
    world.replace_requests([request("a"), request("b"), request("big", "3")])
    add_node(world, "n")
    add_node(world, "m")
    before = world.version
    world.replace_requests([request("b"), request("c"), request("new", priority=9)])
    assert world.version > before
    assert world.pods() == Pods(0, 3)
    assert world.needs() == aggregate([request("b"), request("c"), request("new", priority=9)])
    world.replace_requests([])
    assert (world.pods(), world.needs()) == (Pods(0, 0), ())


def test_requests_that_come_to_the_same_are_no_change() -> None:
    world = RequestWorld()
    world.replace_requests([request("a"), request("b")])
    before = world.version
    world.replace_requests([request("c"), request("d")])
    assert world.version == before


def test_a_gang_runs_whole_or_not_at_all() -> None:
    world = RequestWorld()
    world.replace_requests([request(f"w{number}", "3", co_location=GANG) for number in range(2)])
    add_node(world, "n", {RACK: "r1"})
    add_node(world, "m", {RACK: "r2"})
    assert world.pods() == Pods(2, 0)
    add_node(world, "o", {RACK: "r2"})
    assert world.pods() == Pods(0, 2)


def test_a_request_that_cannot_become_demand_changes_nothing() -> None:
    world = RequestWorld()
    world.replace_requests([request("a")])
    with pytest.raises(RequestError):
        world.replace_requests([request("b", "fast")])
    assert world.needs() == aggregate([request("a")])
