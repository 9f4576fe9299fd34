"""Sharing rows: how a profile with too many unit sizes is cut into a limited number of groups of neighbours.

A shared row asks for machines that fit its largest member. So the sizes that share a row should be alike in every
dimension, relative to their own size. One order by size would put narrow-and-tall beside wide-and-flat; instead the
widest group is cut in half across its widest side, again and again.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from bigfleet.model.resources import Resources

_STEP_BITS = 12  # steps in one doubling, as a power of two


class _Box(NamedTuple):
    """Sizes that share a row so far. Boxes compare by their first two fields, so the widest box comes first."""

    narrowness: int
    """The width of the widest side, negative."""
    first: int
    """The first member; it makes the order total."""
    members: list[int]
    """The sizes, by their position among all sizes."""
    side: int
    """The dimension in which the box is widest."""
    middle: int
    """Where the box is cut across that side."""


def neighbours(sizes: Iterable[Resources], limit: int) -> list[list[Resources]]:
    """The sizes in at most `limit` groups: the same for the same sizes, in whatever order they come."""
    ordered = sorted(sizes)
    if len(ordered) <= limit:
        return [[size] for size in ordered]
    if limit == 1:
        return [ordered]
    names = sorted({name for size in ordered for name, _ in size})
    points = [tuple(_logarithm(dict(size).get(name, 0)) for name in names) for size in ordered]
    boxes = [_box(list(range(len(ordered))), points)]
    while len(boxes) < limit:
        box = boxes[0]
        low = [i for i in box.members if points[i][box.side] <= box.middle]
        high = [i for i in box.members if points[i][box.side] > box.middle]
        if not high:
            # Even the widest box is a single point: its sizes differ by less than a step.
            break
        heapq.heapreplace(boxes, _box(low, points))
        heapq.heappush(boxes, _box(high, points))
    return [[ordered[i] for i in box.members] for box in sorted(boxes, key=lambda box: box.first)]


def _logarithm(units: int) -> int:
    """About log2, in whole steps: exact at powers of two and straight between them, alike on every machine."""
    if units == 0:
        return 0
    bits = units.bit_length()
    return (bits << _STEP_BITS) + ((units << _STEP_BITS) >> (bits - 1)) - (1 << _STEP_BITS)


def _box(members: list[int], points: list[tuple[int, ...]]) -> _Box:
    best, side, middle = -1, 0, 0
    for d in range(len(points[0])):
        column = [points[i][d] for i in members]
        low, high = min(column), max(column)
        if high - low > best:
            best, side, middle = high - low, d, (low + high) // 2
    return _Box(-best, members[0], members, side, middle)
