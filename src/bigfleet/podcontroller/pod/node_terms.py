"""Which nodes a pod may run on, as alternatives that a request can ask for (docs/adr/0018).

A machine that fits any of these alternatives always meets the pod's own conditions. Where a request cannot express a
condition, the whole alternative is left out, never the condition alone.
"""

import re

import msgspec

from bigfleet.kube.objects.kinds import NodeSelectorRequirement, NodeSelectorTerm, Pod
from bigfleet.podcontroller.pod.complaints import APPROXIMATE, UNTRANSLATABLE, Complaint
from bigfleet.podcontroller.pod.label_sets import (
    ANYTHING,
    MISSING,
    NOTHING,
    PRESENT,
    Allowed,
    Box,
    folded,
    narrowed,
    none_of,
    one_of,
    possible,
)

HOST_NAME = "kubernetes.io/hostname"
"""The label that every node has with a value of its own. A machine has it only once it is a node."""

MAX_TERMS = 32
"""Alternatives of a pod that are looked at; further ones are left out."""

_NAME_FIELD = "metadata.name"
_COMPARISONS = frozenset({"Gt", "Lt"})
_WHOLE = re.compile(r"[+-]?[0-9]+")
# Longer numbers may exceed 64 bits; Kubernetes lets those match nothing.
_DIGITS = 18


class Places(msgspec.Struct, frozen=True):
    """The alternatives in the pod's order; none where a request can ask for none of them."""

    alternatives: tuple[Box, ...]
    complaints: tuple[Complaint, ...] = ()


class _Term(msgspec.Struct, frozen=True):
    """One term of the node affinity."""

    box: Box
    #: Whether the term names nodes that exist.
    pinned: bool = False
    #: The label that the term compares with Gt or Lt, where no values are listed.
    compares: str = ""


def places(pod: Pod) -> Places:
    """Where the pod may run by its nodeSelector and its required node affinity."""
    selector: Box = {}
    for key, value in pod.spec.node_selector.items():
        selector = narrowed(selector, key, one_of((value,)))
    affinity = None if pod.spec.affinity is None else pod.spec.affinity.node_affinity
    required = None if affinity is None else affinity.required
    written = (None,) if required is None else required.node_selector_terms
    terms = [_read(selector, term) for term in written[:MAX_TERMS]]
    open_ = [term for term in terms if possible(term.box)]
    boxes = folded(term.box for term in open_ if not term.pinned and not term.compares)
    compared = sorted({term.compares for term in open_ if term.compares and not term.pinned})
    if not boxes:
        return _without(open_, compared)
    lost = (len(boxes) > 1) + len(compared) + (len(written) > MAX_TERMS) + any(term.pinned for term in open_)
    return Places(boxes, (_only_one(len(written)),) if lost else ())


def _without(open_: list[_Term], compared: list[str]) -> Places:
    if compared:
        note = (
            f"the required node affinity compares {', '.join(compared)} with Gt or Lt, which no CapacityRequest can "
            "say, so none is made for this pod; list the values with In"
        )
        return Places((), (Complaint(UNTRANSLATABLE, note),))
    if open_:
        # Every term names a node that exists, which no new machine can be.
        return Places(())
    note = (
        "nodeSelector and required node affinity contradict each other, so no node can ever fit, and no "
        "CapacityRequest is made for this pod"
    )
    return Places((), (Complaint(UNTRANSLATABLE, note),))


def _only_one(count: int) -> Complaint:
    return Complaint(
        APPROXIMATE,
        f"the required node affinity has {count} alternatives and a CapacityRequest holds one: the first that can be "
        "said is asked for until the pod is placed, then the one that its node meets; alternatives that differ in the "
        "values of one label are joined into one",
    )


def _read(selector: Box, term: NodeSelectorTerm | None) -> _Term:
    if term is None:
        return _finished(selector, pinned=False, compares="")
    if not term.match_expressions and not term.match_fields:
        # The scheduler lets an empty term match nothing.
        return _Term({"": NOTHING})
    box = selector
    for each in term.match_expressions:
        if each.operator not in _COMPARISONS:
            box = narrowed(box, each.key, _allowed(each))
    compares = ""
    for each in term.match_expressions:
        if each.operator in _COMPARISONS:
            allowed = box.get(each.key, ANYTHING).both(PRESENT)
            if allowed.all_but:
                compares = each.key
                box = {**box, each.key: allowed}
            else:
                # The values are listed, so the comparison chooses among them.
                box = {**box, each.key: one_of(value for value in allowed.listed if _compares(each, value))}
    # A term that excludes nodes by name excludes no new machine.
    pinned = any(each.key == _NAME_FIELD and each.operator == "In" for each in term.match_fields)
    return _finished(box, pinned=pinned, compares=compares)


def _finished(box: Box, *, pinned: bool, compares: str) -> _Term:
    """The term without its condition on the host name. Only listed host names exclude new machines."""
    host = box.get(HOST_NAME, ANYTHING)
    if host == MISSING:
        # Every node has a host name.
        return _Term({HOST_NAME: NOTHING})
    if host in (ANYTHING, NOTHING):
        return _Term(box, pinned, compares)
    rest = {key: allowed for key, allowed in box.items() if key != HOST_NAME}
    return _Term(rest, pinned or not host.all_but, compares)


def _allowed(condition: NodeSelectorRequirement) -> Allowed:
    match condition.operator:
        case "In":
            return one_of(condition.values)
        case "NotIn":
            return none_of(condition.values)
        case "Exists":
            return PRESENT
        case "DoesNotExist":
            return MISSING
        case _:
            # An operator of a later Kubernetes; what meets it is not known.
            return NOTHING


def _compares(condition: NodeSelectorRequirement, value: str) -> bool:
    """Gt and Lt as Kubernetes reads them: both sides whole numbers in decimal, otherwise no match."""
    numbers = [int(text) for text in (value, *condition.values) if _WHOLE.fullmatch(text) and len(text) <= _DIGITS]
    if len(numbers) != 2 or len(condition.values) != 1:
        return False
    return numbers[0] > numbers[1] if condition.operator == "Gt" else numbers[0] < numbers[1]
