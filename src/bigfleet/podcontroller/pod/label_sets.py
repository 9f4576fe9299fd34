"""Conditions on node labels as sets of allowed values, so that "and" and "or" are exact.

A box is a conjunction: it maps labels to what each may be. A label that is not in the box may be anything.
"""

from collections.abc import Iterable, Mapping

import msgspec

from bigfleet.model.crd import SelectorRequirement

NONE: frozenset[str] = frozenset()
"""No values."""


class Allowed(msgspec.Struct, frozen=True):
    """What one label may be."""

    #: The values that are allowed, or with `all_but` those that are not.
    listed: frozenset[str]
    all_but: bool
    #: Whether the label may be missing.
    absent: bool

    def admits(self, value: str | None) -> bool:
        """Whether a node with this value is allowed; None stands for a node without the label."""
        return self.absent if value is None else (value in self.listed) != self.all_but

    def both(self, other: "Allowed") -> "Allowed":
        """What both this and the other allow."""
        absent = self.absent and other.absent
        if self.all_but and other.all_but:
            return Allowed(self.listed | other.listed, True, absent)
        if self.all_but:
            return Allowed(other.listed - self.listed, False, absent)
        if other.all_but:
            return Allowed(self.listed - other.listed, False, absent)
        return Allowed(self.listed & other.listed, False, absent)

    def either(self, other: "Allowed") -> "Allowed":
        """What this or the other allows."""
        return self._inverse().both(other._inverse())._inverse()

    def _inverse(self) -> "Allowed":
        return Allowed(self.listed, not self.all_but, not self.absent)

    @property
    def writable(self) -> bool:
        """Whether a list of conditions can express it. "One of these, or missing" cannot be expressed."""
        return not (self.absent and self.listed and not self.all_but)

    def written(self, key: str) -> tuple[SelectorRequirement, ...]:
        """The conditions on the label `key` that express it; all of them must hold."""
        values = tuple(sorted(self.listed))
        if not self.all_but:
            return (SelectorRequirement(key, "In", values) if values else SelectorRequirement(key, "DoesNotExist"),)
        exists = () if self.absent else (SelectorRequirement(key, "Exists"),)
        return (*exists, SelectorRequirement(key, "NotIn", values)) if values else exists


ANYTHING = Allowed(NONE, True, True)
NOTHING = Allowed(NONE, False, False)
PRESENT = Allowed(NONE, True, False)
MISSING = Allowed(NONE, False, True)

Box = Mapping[str, Allowed]


def one_of(values: Iterable[str]) -> Allowed:
    """What the operator In allows."""
    return Allowed(frozenset(values), False, False)


def none_of(values: Iterable[str]) -> Allowed:
    """What the operator NotIn allows: a missing label too."""
    return Allowed(frozenset(values), True, True)


def narrowed(box: Box, key: str, allowed: Allowed) -> dict[str, Allowed]:
    """The box with one more condition."""
    return {**box, key: box.get(key, ANYTHING).both(allowed)}


def possible(box: Box) -> bool:
    """Whether a node can be in the box at all."""
    return NOTHING not in box.values()


def holds(box: Box, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is in the box."""
    return all(allowed.admits(labels.get(key)) for key, allowed in box.items())


def folded(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """Fewer boxes that together hold the same nodes, each in the place of the first box that went into it.

    A box inside another is dropped. Two boxes that differ in one label become one where that can be expressed.
    """
    kept: list[Box] = []
    for box in boxes:
        new: Box = box
        place = len(kept)
        while (found := _joining(kept, new)) is not None:
            at, new = found
            del kept[at]
            place = min(place, at)
        kept.insert(place, new)
    return tuple(kept)


def _joining(kept: list[Box], new: Box) -> tuple[int, Box] | None:
    for at, old in enumerate(kept):
        joined = _joined(old, new)
        if joined is not None:
            return at, joined
    return None


def _joined(one: Box, other: Box) -> Box | None:
    """One box that holds the nodes of both, or None where no box does."""
    differing = [key for key in one.keys() | other.keys() if one.get(key, ANYTHING) != other.get(key, ANYTHING)]
    if not differing or _inside(other, one, differing):
        return one
    if _inside(one, other, differing):
        return other
    if len(differing) > 1:
        return None
    (key,) = differing
    union = one[key].either(other[key])
    if not union.writable:
        return None
    return {k: allowed for k, allowed in {**one, key: union}.items() if allowed != ANYTHING}


def _inside(one: Box, other: Box, differing: list[str]) -> bool:
    """Whether every node of the first box is in the other; the two differ in these labels."""
    return all(_within(one.get(key, ANYTHING), other.get(key, ANYTHING)) for key in differing)


def _within(one: Allowed, other: Allowed) -> bool:
    return one.both(other) == one


def written(box: Box) -> tuple[SelectorRequirement, ...]:
    """The box as conditions that must all hold, in order of labels."""
    return tuple(requirement for key in sorted(box) for requirement in box[key].written(key))
