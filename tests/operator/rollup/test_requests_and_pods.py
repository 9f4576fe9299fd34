"""Requests and pods as the watches show them: rows, what waits, who is in no request, who found no place."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.kube.objects.kinds import Condition, Container, Pod, PodSpec, PodStatus, ResourceRequirements
from bigfleet.model.crd import (
    CapacityRequest,
    CapacityRequestSpec,
    CapacityRequestStatus,
    ObjectMeta,
    OwnerReference,
    RequestPhase,
)
from bigfleet.model.demand.aggregate import aggregate
from bigfleet.model.demand.need import UnrequestedNode
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.request import RequestError
from bigfleet.operator.core import ClusterView
from bigfleet.operator.rollup.requests import Requests


def request(
    name: str, *, cpu: str = "1", priority: int = 0, phase: RequestPhase = "Pending", pod: str = "", uid: str = ""
) -> CapacityRequest:
    owners = (OwnerReference(api_version="v1", kind="Pod", name=pod, uid=pod, controller=True),) if pod else ()
    return CapacityRequest(
        metadata=ObjectMeta(name=name, namespace="team", uid=uid or f"uid-{name}", owner_references=owners),
        spec=CapacityRequestSpec(resources={"cpu": cpu}, priority=priority),
        status=CapacityRequestStatus(phase),
    )


def pod(
    name: str,
    node: str = "",
    *,
    priority: int = 0,
    annotations: dict[str, str] | None = None,
    owner: str = "",
    phase: str = "Running",
    unschedulable: bool = False,
) -> Pod:
    owners = (OwnerReference(api_version="apps/v1", kind=owner, name="o", uid="o", controller=True),) if owner else ()
    reason = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="team", uid=name, annotations=annotations or {}, owner_references=owners
        ),
        spec=PodSpec(
            node_name=node,
            priority=priority,
            containers=(Container(name="c", resources=ResourceRequirements(requests={"cpu": "1"})),),
        ),
        status=PodStatus(phase=phase, conditions=(reason,) if unschedulable else ()),
    )


class Seen:
    def __init__(self) -> None:
        self.urgent = 0
        self.nodes: list[str] = []
        self.complaints: list[tuple[str, str]] = []
        self.view = ClusterView(self._urgent, self.nodes.append, self.nodes.append, self._complain)

    def _urgent(self) -> None:
        self.urgent += 1

    def _complain(self, about: CapacityRequest, error: RequestError) -> None:
        self.complaints.append((about.metadata.name, error.field))


@pytest.fixture
def seen() -> Seen:
    return Seen()


class TestRequests:
    @pytest.mark.parametrize(("gone", "stays"), [("first", "second"), ("second", "first")])
    def test_of_two_requests_for_a_pod_the_one_that_stays_speaks_for_it(
        self, seen: Seen, gone: str, stays: str
    ) -> None:
        requests = seen.view.requests
        requests.put(request("first", pod="a"))
        requests.put(request("second", pod="a"))
        requests.removed(request(gone, pod="a"))
        assert requests.has_request("a")
        assert requests.row_of_pod("a") is not None
        requests.put(request(gone, pod="b"))
        requests.removed(request(stays, pod="a"))
        assert not requests.has_request("a")
        assert requests.has_request("b")

    def test_they_make_the_rows_that_aggregation_makes(self, seen: Seen) -> None:
        requests = [request("a"), request("b", cpu="2"), request("c", priority=7)]
        seen.view.requests.replaced(requests)
        assert seen.view.requests.needs() == aggregate(requests)
        seen.view.requests.removed(requests[1])
        assert seen.view.requests.needs() == aggregate([requests[0], requests[2]])

    def test_a_row_names_the_owners_of_its_pods_or_else_of_its_requests(self, seen: Seen) -> None:
        requests, pods = seen.view.requests, seen.view.pods
        requests.put(request("a", pod="p"))
        requests.put(request("b", cpu="2"))
        small, large = requests.needs()
        assert requests.owners(pods.owner_of) == {small.key: ("team/p",), large.key: ("team/b",)}
        pods.put(pod("p", owner="ReplicaSet"))
        assert requests.owners(pods.owner_of)[small.key] == ("team/o",)

    def test_owners_are_few_short_and_never_change_the_rows(self, seen: Seen) -> None:
        requests, pods = seen.view.requests, seen.view.pods
        for i in range(20):
            requests.put(request(f"r{i:02}" + "x" * 200))
        (row,) = requests.needs()
        named = requests.owners(pods.owner_of)[row.key]
        assert (len(named), {len(owner) for owner in named}) == (3, {100})
        # The requests that were remembered go, and others of their kind are named in their place.
        for i in range(15):
            requests.removed(request(f"r{i:02}" + "x" * 200))
        (row,) = requests.needs()
        assert requests.owners(pods.owner_of)[row.key][0].startswith("team/r15")

    def test_a_request_that_changes_its_size_names_its_owner_in_its_new_row_only(self, seen: Seen) -> None:
        requests, pods = seen.view.requests, seen.view.pods
        requests.put(request("a"))
        requests.put(request("a", cpu="3"))
        (row,) = requests.needs()
        assert requests.owners(pods.owner_of) == {row.key: ("team/a",)}
        requests.put(request("a", cpu="bad"))
        assert requests.owners(pods.owner_of) == {}

    def test_one_waits_until_it_is_acknowledged_and_another_of_its_name_waits_anew(self, seen: Seen) -> None:
        requests = seen.view.requests
        requests.put(request("a"))
        assert [each.uid for each in requests.waiting()] == ["uid-a"]
        requests.put(request("a", phase="Acknowledged"))
        assert requests.waiting() == []
        requests.put(request("a", uid="second"))
        assert [each.uid for each in requests.waiting()] == ["second"]

    def test_a_list_after_a_gap_takes_away_what_is_gone(self, seen: Seen) -> None:
        requests = seen.view.requests
        requests.replaced([request("a"), request("b", cpu="no number"), request("c")])
        requests.replaced([request("c")])
        assert len(requests) == 1
        assert [each.name for each in requests.waiting()] == ["c"]

    def test_one_that_cannot_be_counted_is_left_out_and_complained_of_once(self, seen: Seen) -> None:
        requests = seen.view.requests
        for _ in range(2):
            requests.put(request("bad", cpu="-1", pod="p"))
        assert seen.complaints == [("bad", "spec.resources[cpu]")]
        assert requests.needs() == ()
        assert requests.waiting() == []
        assert not requests.has_request("p")
        requests.put(request("bad", cpu="1", pod="p"))
        assert requests.has_request("p")

    def test_a_new_one_above_batch_is_urgent_and_only_while_it_is_new(self, seen: Seen) -> None:
        requests = seen.view.requests
        requests.put(request("batch", priority=100))
        assert seen.urgent == 0
        requests.put(request("web", priority=101))
        requests.put(request("web", priority=101, phase="Acknowledged"))
        assert seen.urgent == 1

    @given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcd"), st.sampled_from(["1", "2", "bad"]))))
    def test_whatever_comes_the_rows_are_those_of_what_is_there(self, steps: list[tuple[bool, str, str]]) -> None:
        requests = Requests(lambda: None, lambda _: None, lambda *_: None)
        there: dict[str, CapacityRequest] = {}
        for put, name, cpu in steps:
            each = request(name, cpu=cpu)
            if put:
                requests.put(each)
                there[name] = each
            else:
                requests.removed(each)
                there.pop(name, None)
        good = [each for each in there.values() if each.spec.resources["cpu"] != "bad"]
        assert requests.needs() == aggregate(good)
        assert {each.name for each in requests.waiting()} == {each.metadata.name for each in good}
        assert len(requests) == len(there)


class TestPods:
    def test_a_node_is_empty_while_nothing_but_daemons_runs_there(self, seen: Seen) -> None:
        pods = seen.view.pods
        pods.put(pod("d", "n", owner="DaemonSet"))
        pods.put(pod("m", "n", annotations={"kubernetes.io/config.mirror": "x"}))
        pods.put(pod("done", "n", phase="Succeeded"))
        assert pods.is_empty("n")
        pods.put(pod("w", "n"))
        assert not pods.is_empty("n")
        pods.put(pod("w", "n", phase="Failed"))
        assert pods.is_empty("n")
        assert [each.metadata.name for each in pods.on("n")] == ["d", "m"]

    def test_a_node_with_pods_in_no_request_is_named_with_the_highest_stakes(self, seen: Seen) -> None:
        view = seen.view
        view.pods.put(pod("a", "n", priority=5, annotations={"bigfleet.lucy.sh/interruption-penalty": "3"}))
        view.pods.put(pod("b", "n", priority=9, annotations={"bigfleet.lucy.sh/reclamation-penalty": "rubbish"}))
        view.pods.put(pod("d", "other", owner="DaemonSet"))
        expected = UnrequestedNode("n", 9, PenaltyBucket.from_dollars(3), PenaltyBucket.ZERO)
        assert view.pods.unrequested() == (expected,)
        view.requests.put(request("ra", pod="a"))
        assert view.pods.unrequested()[0].interruption is PenaltyBucket.ZERO
        view.requests.put(request("rb", pod="b"))
        assert view.pods.unrequested() == ()
        view.requests.removed(request("ra", pod="a"))
        assert [each.node for each in view.pods.unrequested()] == ["n"]

    def test_pods_that_found_no_place_are_known_until_they_have_one_or_go(self, seen: Seen) -> None:
        view = seen.view
        view.requests.put(request("ra", pod="a"))
        view.pods.put(pod("a", unschedulable=True, phase="Pending"))
        assert list(view.pods.unschedulable()) == ["a"]
        assert view.requests.row_of_pod("a") == view.requests.needs()[0].key
        assert view.pods.named("a") == ("team", "a")
        view.pods.put(pod("a", "n"))
        assert list(view.pods.unschedulable()) == []

    def test_a_list_after_a_gap_takes_away_what_is_gone_and_tells_of_its_node(self, seen: Seen) -> None:
        view = seen.view
        view.pods.replaced([pod("a", "n1"), pod("b", "n2")])
        seen.nodes.clear()
        view.pods.replaced([pod("b", "n2")])
        assert "n1" in seen.nodes
        assert view.pods.is_empty("n1")

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["put", "remove", "ask", "drop"]),
                st.sampled_from("abc"),
                st.sampled_from(["", "n1", "n2"]),
                st.sampled_from(["", "DaemonSet"]),
            )
        )
    )
    def test_whatever_comes_nodes_are_judged_by_what_is_there(self, steps: list[tuple[str, str, str, str]]) -> None:
        view = Seen().view
        pods: dict[str, Pod] = {}
        asked: set[str] = set()
        for what, name, node, owner in steps:
            if what == "put":
                pods[name] = pod(name, node, owner=owner)
                view.pods.put(pods[name])
            elif what == "remove":
                view.pods.removed(pods.pop(name, pod(name)))
            elif what == "ask":
                asked.add(name)
                view.requests.put(request(f"r-{name}", pod=name))
            else:
                asked.discard(name)
                view.requests.removed(request(f"r-{name}", pod=name))
        counted = Counter(
            each.spec.node_name for each in pods.values() if each.spec.node_name and not each.metadata.owner_references
        )
        assert {node for node in ("n1", "n2") if not view.pods.is_empty(node)} == set(counted)
        unspoken = {
            each.spec.node_name
            for name, each in pods.items()
            if each.spec.node_name and not each.metadata.owner_references and name not in asked
        }
        assert {each.node for each in view.pods.unrequested()} == unspoken
