"""Whether a pod is demand, and the request it gets."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.kube.objects.kinds import Pod
from bigfleet.model.crd import CapacityRequestSpec, SelectorRequirement
from bigfleet.podcontroller.pod.penalties import Penalties
from bigfleet.podcontroller.pod.reading import read, request_name

CPU = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
WHEN = "2026-01-01T00:00:00Z"


def pod(
    metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None
) -> Pod:
    named = {"name": "web-0", "namespace": "shop", "uid": "u1", **(metadata or {})}
    return msgspec.convert({"metadata": named, "spec": {**CPU, **(spec or {})}, "status": status or {}}, Pod)


def request(made: Pod, **more: Any) -> CapacityRequestSpec:
    demand = read(made).demand
    assert demand is not None
    return demand.request(more.pop("defaults", {}), **more)


def owned(kind: str, controller: bool = True) -> dict[str, Any]:
    return {
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "y", "controller": controller}]
    }


@pytest.mark.parametrize(
    "made",
    [
        pod(status={"phase": "Succeeded"}),
        pod(status={"phase": "Failed"}),
        pod(owned("DaemonSet")),
        pod({"annotations": {"kubernetes.io/config.mirror": "abc"}}),
        pod(spec={"schedulingGates": [{"name": "quota"}]}),
        pod({"deletionTimestamp": WHEN}),
        pod({"deletionTimestamp": WHEN}, {"nodeName": "n1"}, {"phase": "Succeeded"}),
    ],
)
def test_no_demand(made: Pod) -> None:
    assert read(made).demand is None


@pytest.mark.parametrize(
    "made",
    [
        pod(),
        pod(status={"phase": "Pending"}),
        pod(status={"phase": "Running"}),
        pod(status={"phase": "Unknown"}),
        pod(owned("ReplicaSet")),
        pod(owned("DaemonSet", controller=False)),
        pod({"deletionTimestamp": WHEN}, {"nodeName": "n1"}, {"phase": "Running"}),
    ],
)
def test_demand(made: Pod) -> None:
    assert read(made).demand is not None


def test_a_pod_becomes_a_request() -> None:
    made = pod(
        {"annotations": {"bigfleet.lucy.sh/interruption-penalty": "16"}, "labels": {"app": "web"}},
        {
            "priority": 1000,
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
                    ]
                }
            },
        },
    )
    assert request(made) == CapacityRequestSpec(
        resources={"cpu": "1"},
        priority=1000,
        requirements=(SelectorRequirement("zone", "In", ("a",)),),
        interruption_penalty="16",
        max_per_node=1,
    )


def test_priority_is_zero_where_none_is_given_and_may_be_negative() -> None:
    assert request(pod()).priority == 0
    assert request(pod(spec={"priority": -10})).priority == -10


def test_penalties_come_from_the_annotation_then_the_class_then_zero() -> None:
    defaults = {"batch": Penalties(interruption_penalty="8", reclamation_penalty=4)}
    made = pod({"annotations": {"bigfleet.lucy.sh/reclamation-penalty": "1"}}, {"priorityClassName": "batch"})
    asked = request(made, defaults=defaults)
    assert (asked.interruption_penalty, asked.reclamation_penalty) == ("8", "1")
    asked = request(pod(spec={"priorityClassName": "other"}), defaults=defaults)
    assert (asked.interruption_penalty, asked.reclamation_penalty) == (0, 0)


def test_a_placed_pod_asks_for_the_alternative_that_its_node_meets() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}, {"key": "t", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    made = pod(spec={"affinity": affinity})
    first = (SelectorRequirement("t", "Exists"), SelectorRequirement("zone", "In", ("a",)))
    assert request(made).requirements == first
    assert request(made, node_labels={"zone": "b"}).requirements == (SelectorRequirement("zone", "In", ("b",)),)
    assert request(made, node_labels={"zone": "c"}).requirements == first


def test_what_cannot_be_counted_is_reported_and_gets_no_request() -> None:
    reading = read(pod(spec={"overhead": {"cpu": "much"}}))
    assert reading.demand is None
    assert ["cannot be counted" in complaint.note for complaint in reading.complaints] == [True]


def test_complaints_of_all_parts_are_gathered() -> None:
    spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    made = pod({"annotations": {"bigfleet.lucy.sh/reclamation-penalty": "?"}}, {"topologySpreadConstraints": [spread]})
    assert [complaint.reason for complaint in read(made).complaints] == ["CapacityApproximated", "MalformedPenalty"]
    assert read(made).demand is not None


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}, True),
        ({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}, False),
        ({"type": "PodScheduled", "status": "True"}, False),
        ({"type": "Ready", "status": "False", "reason": "Unschedulable"}, False),
    ],
)
def test_unschedulable_is_the_schedulers_word(condition: dict[str, str], expected: bool) -> None:
    assert read(pod(status={"conditions": [condition]})).unschedulable is expected


def test_a_requests_name_is_the_pods_for_its_whole_life() -> None:
    assert request_name("web-0", "u1") == request_name("web-0", "u1")
    assert request_name("web-0", "u1").startswith("cr-pod-web-0-")
    assert request_name("web-0", "u1") != request_name("web-0", "u2")


@pytest.mark.parametrize("middle", [".", "-", "--", "x"])
def test_a_long_name_is_cut_where_a_name_may_end(middle: str) -> None:
    name = request_name("a" * (235 - len(middle)) + middle + "b" * 18, "u1")
    assert len(name) <= 253
    assert name.rpartition("-")[0].endswith(("a", "x"))


part = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@given(st.lists(part, min_size=1, max_size=30).map(lambda parts: ".".join(parts)[:253].rstrip("-.")), st.uuids())
def test_every_pods_request_has_a_name_that_kubernetes_takes(pod_name: str, uid: Any) -> None:
    name = request_name(pod_name, str(uid))
    assert len(name) <= 253
    for label in name.split("."):
        assert label
        assert not label.startswith("-")
        assert not label.endswith("-")
