"""Pods that want to be together, apart, or evenly spread."""

from typing import Any

import msgspec
import pytest

from bigfleet.kube.objects.kinds import Pod
from bigfleet.model.crd import CoLocation, LabelSelector, SelectorRequirement, TopologySpreadConstraint
from bigfleet.podcontroller.pod.complaints import APPROXIMATE
from bigfleet.podcontroller.pod.placement import placing, selects

ZONE, RACK, HOST = "topology.kubernetes.io/zone", "topology.bigfleet.lucy.sh/rack", "kubernetes.io/hostname"
OWN, OTHER = {"matchLabels": {"app": "train"}}, {"matchLabels": {"app": "cache"}}


def pod(
    together: list[dict[str, Any]] | None = None,
    apart: list[dict[str, Any]] | None = None,
    spread: list[dict[str, Any]] | None = None,
) -> Pod:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"podAffinity": {required: together or []}, "podAntiAffinity": {required: apart or []}}
    metadata = {"name": "a", "namespace": "ml", "labels": {"app": "train", "rev": "2"}}
    spec = {"affinity": affinity, "topologySpreadConstraints": spread or []}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def term(key: str, selector: dict[str, Any] | None = OWN, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, **({} if selector is None else {"labelSelector": selector}), **more}


def over(
    key: str, selector: dict[str, Any] | None = OWN, skew: int = 1, must: bool = True, **more: Any
) -> dict[str, Any]:
    mode = "DoNotSchedule" if must else "ScheduleAnyway"
    return {**term(key, selector), "maxSkew": skew, "whenUnsatisfiable": mode, **more}


def test_a_pod_that_asks_for_nothing_is_placed_anywhere() -> None:
    found = placing(msgspec.convert({"metadata": {"name": "a"}}, Pod))
    assert (found.co_location, found.max_per_node, found.spread, found.complaints) == (None, None, (), ())


def test_affinity_to_itself_is_a_gang() -> None:
    found = placing(pod(together=[term(RACK)]))
    assert found.co_location == CoLocation(RACK, LabelSelector(match_labels={"app": "train"}))
    assert found.complaints == ()


@pytest.mark.parametrize("where", [{"namespaces": ["ml"]}, {}])
def test_naming_its_own_namespace_changes_nothing(where: dict[str, Any]) -> None:
    found = placing(pod(together=[term(RACK, **where)]))
    assert found.co_location is not None
    assert found.complaints == ()


@pytest.mark.parametrize(
    "where", [{"namespaces": ["ml", "web"]}, {"namespaceSelector": {}}, {"namespaces": ["ml"], "namespaceSelector": {}}]
)
def test_a_gang_over_several_namespaces_is_cut_to_its_own_and_reported(where: dict[str, Any]) -> None:
    found = placing(pod(together=[term(RACK, **where)]))
    assert found.co_location is not None
    assert ["other namespaces" in complaint.note for complaint in found.complaints] == [True]


@pytest.mark.parametrize(
    "to_others",
    [
        term(ZONE, OTHER),
        term(ZONE, None),
        term(ZONE, OWN, namespaces=["web"]),
        term(ZONE, OWN, namespaceSelector={"matchLabels": {"team": "x"}}),
    ],
)
def test_relations_to_other_pods_are_left_out_and_reported(to_others: dict[str, Any]) -> None:
    for made, name in ((pod(together=[to_others]), "podAffinity"), (pod(apart=[to_others]), "podAntiAffinity")):
        found = placing(made)
        assert (found.co_location, found.max_per_node, found.spread) == (None, None, ())
        (complaint,) = found.complaints
        assert complaint.reason == APPROXIMATE
        assert f"the required {name} for {ZONE} is to other pods" in complaint.note


def test_of_two_gangs_the_first_counts() -> None:
    found = placing(pod(together=[term(RACK), term(ZONE)]))
    assert found.co_location is not None
    assert found.co_location.topology_key == RACK
    assert [RACK in complaint.note for complaint in found.complaints] == [True]


@pytest.mark.parametrize("bad", [term(HOST), term(RACK, {})])
def test_a_gang_that_no_request_can_hold_is_left_out_and_reported(bad: dict[str, Any]) -> None:
    found = placing(pod(together=[bad]))
    assert found.co_location is None
    assert len(found.complaints) == 1


def test_anti_affinity_to_itself_on_the_host_is_one_a_node() -> None:
    found = placing(pod(apart=[term(HOST)]))
    assert (found.max_per_node, found.spread, found.complaints) == (1, (), ())


def test_anti_affinity_to_itself_on_a_zone_is_an_even_spread_with_one_a_node_and_a_word_about_it() -> None:
    found = placing(pod(apart=[term(ZONE)], spread=[over(ZONE, skew=3)]))
    assert found.max_per_node == 1
    assert found.spread == (TopologySpreadConstraint(ZONE, 1, "DoNotSchedule"),)
    assert ["replicas beyond the number of places" in complaint.note for complaint in found.complaints] == [True]


def test_spreads_are_kept_as_conditions_and_as_wishes() -> None:
    found = placing(pod(spread=[over(ZONE, skew=2), over(ZONE, must=False), over(RACK, matchLabelKeys=["rev"])]))
    assert found.spread == (
        TopologySpreadConstraint(RACK, 1, "DoNotSchedule"),
        TopologySpreadConstraint(ZONE, 2, "DoNotSchedule"),
        TopologySpreadConstraint(ZONE, 1, "ScheduleAnyway"),
    )
    assert found.complaints == ()


@pytest.mark.parametrize(
    ("constraint", "about"),
    [(over(HOST), "is over nodes"), (over(ZONE, OTHER), "counts other pods"), (over(ZONE, None), "counts other pods")],
)
def test_a_spread_that_no_request_can_say_is_left_out(constraint: dict[str, Any], about: str) -> None:
    found = placing(pod(spread=[constraint]))
    assert found.spread == ()
    assert [about in complaint.note for complaint in found.complaints] == [True]


def test_a_wish_that_no_request_can_say_goes_without_a_word() -> None:
    found = placing(pod(spread=[over(HOST, must=False), over(ZONE, OTHER, must=False, minDomains=3)]))
    assert (found.spread, found.complaints) == ((), ())


def test_a_least_number_of_domains_is_reported() -> None:
    found = placing(pod(spread=[over(ZONE, minDomains=3)]))
    assert len(found.spread) == 1
    assert ["minDomains" in complaint.note for complaint in found.complaints] == [True]


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ("a", "b"), {"k": "a"}, True),
        ("In", ("a",), {}, False),
        ("NotIn", ("a",), {"k": "b"}, True),
        ("NotIn", ("a",), {}, True),
        ("NotIn", ("a",), {"k": "a"}, False),
        ("Exists", (), {"k": ""}, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), {}, True),
        ("DoesNotExist", (), {"k": "a"}, False),
    ],
)
def test_selectors_are_read_as_kubernetes_reads_them(
    operator: Any, values: tuple[str, ...], labels: dict[str, str], expected: bool
) -> None:
    assert selects(LabelSelector(match_expressions=(SelectorRequirement("k", operator, values),)), labels) is expected


def test_every_part_of_a_selector_must_hold() -> None:
    both = LabelSelector({"a": "1"}, (SelectorRequirement("b", "Exists"),))
    assert selects(both, {"a": "1", "b": "2"})
    assert not selects(both, {"a": "1"})
    assert not selects(both, {"a": "2", "b": "2"})
