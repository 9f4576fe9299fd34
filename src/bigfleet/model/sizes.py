"""Sharing rows: how a profile with too many unit sizes is cut into at most so many groups of neighbours.

Every member of a group is then treated as large as the group's largest, per dimension, so a bad cut costs real
machines. Cutting along one order would put narrow-and-tall beside wide-and-flat; this cuts boxes of sizes where
it saves the most instead, as colour quantisation does.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bigfleet.model.resources import Resources

_SCALE = 2**20  # resolution of a dimension, relative to its largest entry

Ints = npt.NDArray[np.int64]


class _Box(NamedTuple):
    """Sizes that share a row so far, and the cut that would save most."""

    members: Ints
    saving: int
    left: Ints
    right: Ints


def neighbours(sizes: Mapping[Resources, int], limit: int) -> list[list[Resources]]:
    """Sizes (with how often each occurs) in at most `limit` groups; the same answer in any input order."""
    ordered = sorted(sizes)
    if len(ordered) <= limit:
        return [[size] for size in ordered]
    table = _table(ordered)
    counts = np.array([sizes[size] for size in ordered], dtype=np.int64)
    boxes = [_box(np.arange(len(ordered)), table, counts)]
    while len(boxes) < limit:
        best = max(range(len(boxes)), key=lambda i: boxes[i].saving)
        box = boxes[best]
        if not len(box.right):
            break
        boxes[best] = _box(box.left, table, counts)
        boxes.append(_box(box.right, table, counts))
    return [[ordered[i] for i in sorted(box.members.tolist())] for box in boxes]


def _table(ordered: list[Resources]) -> Ints:
    names = sorted({name for size in ordered for name, _ in size})
    column = {name: i for i, name in enumerate(names)}
    table = np.zeros((len(ordered), len(names)), dtype=np.float64)
    for row, size in enumerate(ordered):
        for name, units in size:
            table[row, column[name]] = units
    # Whole numbers from here on: sums of floats would depend on the order in which they were taken.
    whole: Ints = np.ceil(table / table.max(axis=0) * _SCALE).astype(np.int64)
    return whole


def _box(members: Ints, table: Ints, counts: Ints) -> _Box:
    """The box of these members with its best cut: the one after which least is wasted."""
    nothing = np.empty(0, dtype=np.int64)
    if len(members) == 1:
        return _Box(members, -1, members, nothing)
    least, left, right = -1, members, nothing
    waste = 0
    for dimension in range(table.shape[1]):
        order = members[np.argsort(table[members, dimension], kind="stable")]
        rows, times = table[order], counts[order]
        low = _waste_of_prefixes(rows, times)
        high = _waste_of_prefixes(rows[::-1], times[::-1])[::-1]
        waste = int(low[-1])
        after = low[:-1] + high[1:]
        cut = int(after.argmin())
        if least < 0 or after[cut] < least:
            least, left, right = int(after[cut]), order[: cut + 1], order[cut + 1 :]
    return _Box(members, waste - least, np.sort(left), np.sort(right))


def _waste_of_prefixes(rows: Ints, times: Ints) -> Ints:
    """For each prefix: what is lost when all of it is counted as large as its largest, per dimension."""
    peaks = np.maximum.accumulate(rows, axis=0)
    sums = np.cumsum(rows * times[:, None], axis=0)
    waste: Ints = (peaks * np.cumsum(times)[:, None] - sums).sum(axis=1)
    return waste
