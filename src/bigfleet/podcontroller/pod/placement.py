"""How a pod is placed among its replicas: gangs, limits per node, spread. A request says nothing about other pods."""

from collections.abc import Iterator, Mapping

import msgspec

from bigfleet.kube.objects.kinds import Pod, PodAffinity, PodAffinityTerm, PodTopologySpreadConstraint
from bigfleet.model.crd import CoLocation, LabelSelector, TopologySpreadConstraint, WhenUnsatisfiable
from bigfleet.podcontroller.pod.complaints import APPROXIMATE, Complaint
from bigfleet.podcontroller.pod.label_sets import MISSING, PRESENT, none_of, one_of
from bigfleet.podcontroller.pod.node_terms import HOST_NAME

_MUST: WhenUnsatisfiable = "DoNotSchedule"
_WISH: WhenUnsatisfiable = "ScheduleAnyway"


class Placing(msgspec.Struct, frozen=True):
    """What a request can express of the pod's placement, and complaints about the rest."""

    co_location: CoLocation | None
    max_per_node: int | None
    spread: tuple[TopologySpreadConstraint, ...]
    complaints: tuple[Complaint, ...]


def placing(pod: Pod) -> Placing:
    """What the pod requires of its own placement and that of its replicas."""
    complaints: list[Complaint] = []
    affinity = pod.spec.affinity
    together = _own_terms(pod, None if affinity is None else affinity.pod_affinity, "podAffinity", complaints)
    apart = _own_terms(pod, None if affinity is None else affinity.pod_anti_affinity, "podAntiAffinity", complaints)
    gang = _gang(list(together), complaints)
    keys = sorted({term.topology_key for term in apart})
    spread = _spread(pod, complaints)
    for key in keys:
        if key != HOST_NAME:
            spread[key, _MUST] = 1
            complaints.append(
                _lost(
                    f"the required podAntiAffinity allows one such pod for each {key}; an even spread with at most one "
                    "a node is asked for instead, so replicas beyond the number of places wait beside unused machines"
                )
            )
    return Placing(
        gang,
        # One for each zone or rack is also one for each node.
        1 if keys else None,
        tuple(TopologySpreadConstraint(key, skew, mode) for (key, mode), skew in sorted(spread.items())),
        tuple(complaints),
    )


def _own_terms(
    pod: Pod, affinity: PodAffinity | None, name: str, complaints: list[Complaint]
) -> Iterator[PodAffinityTerm]:
    """The terms that select the pod itself. A term that selects other pods leads to a complaint."""
    for term in () if affinity is None else affinity.required:
        namespaces = set(term.namespaces)
        if term.namespace_selector is None and not namespaces:
            namespaces = {pod.metadata.namespace}
        everywhere = term.namespace_selector == LabelSelector()
        if (
            term.label_selector is None
            or not selects(term.label_selector, pod.metadata.labels)
            or not (everywhere or pod.metadata.namespace in namespaces)
        ):
            problem = (
                "is to other pods than this one and its like, which no CapacityRequest can say; capacity is asked for "
                "without it"
            )
        else:
            yield term
            if term.namespace_selector is None and namespaces == {pod.metadata.namespace}:
                continue
            problem = "reaches into other namespaces; only pods of this one are counted together"
        complaints.append(_lost(f"the required {name} for {term.topology_key} {problem}"))


def _gang(terms: list[PodAffinityTerm], complaints: list[Complaint]) -> CoLocation | None:
    gang = None
    for term in terms:
        if term.topology_key == HOST_NAME:
            problem = "all of them on one node, which no CapacityRequest can say"
        elif term.label_selector is None or term.label_selector == LabelSelector():
            problem = "every pod of the namespace, which is no gang"
        elif gang is not None:
            problem = f"two places at once, and a CapacityRequest holds one: {gang.topology_key}"
        else:
            gang = CoLocation(term.topology_key, term.label_selector)
            continue
        complaints.append(
            _lost(
                f"the required podAffinity for {term.topology_key} asks for {problem}; capacity is asked for without it"
            )
        )
    return gang


def _spread(pod: Pod, complaints: list[Complaint]) -> dict[tuple[str, WhenUnsatisfiable], int]:
    spread: dict[tuple[str, WhenUnsatisfiable], int] = {}
    for each in pod.spec.topology_spread_constraints:
        mode = _WISH if each.when_unsatisfiable == _WISH else _MUST
        problem = _unspeakable(each, pod.metadata.labels)
        if not problem:
            key = (each.topology_key, mode)
            spread[key] = min(each.max_skew, spread.get(key, each.max_skew))
        elif mode == _MUST:
            complaints.append(_lost(f"the topology spread over {each.topology_key} {problem}"))
        if not problem and mode == _MUST and each.min_domains is not None:
            complaints.append(
                _lost(f"the topology spread over {each.topology_key} has minDomains, which no CapacityRequest can say")
            )
    return spread


def _unspeakable(each: PodTopologySpreadConstraint, labels: Mapping[str, str]) -> str:
    """Why a request cannot express a spread; empty where it can."""
    if each.topology_key == HOST_NAME:
        return "is over nodes, which no CapacityRequest can say; capacity is asked for without it"
    if each.label_selector is None or not selects(each.label_selector, labels):
        return "counts other pods than this one and its like; capacity is asked for without it"
    return ""


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether the selector selects a pod with these labels, as Kubernetes reads it."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    allowed = {"Exists": PRESENT, "DoesNotExist": MISSING}
    return all(
        (allowed.get(each.operator) or (one_of(each.values) if each.operator == "In" else none_of(each.values))).admits(
            labels.get(each.key)
        )
        for each in selector.match_expressions
    )


def _lost(note: str) -> Complaint:
    return Complaint(APPROXIMATE, note)
