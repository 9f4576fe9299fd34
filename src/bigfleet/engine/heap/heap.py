"""The heap: every column of a decision in one array of whole numbers, read and written by name.

A column is known by its place in the header, which says where the column begins. A vector of resources is WIDTH entries
long. Indices are made unsigned, because numba then does not check whether they count from the end.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bigfleet.engine.heap import columns as c
from bigfleet.engine.jit import walk

Array = npt.NDArray[Any]


class Work(NamedTuple):
    """What every walk is given as `w`: the heap, and which shapes match which requirement lists.

    One argument stands for forty arrays: that makes calls cheap and compiling fast.
    """

    h: Array
    """The heap in cells of 64 bits. It begins with the scalars and the header."""
    g: Array
    """The same memory in entries of 32 bits. Entries of 8 bits are cut out of these."""
    matches: Array
    """By requirement list and shape: 1 where a machine of the shape meets the list, else 0."""


# An entry of 8 bits is cut out of the word of 32 bits that holds it by a shift; the last line allows for byte order.
_WORD, _IN_WORD, _BITS, _BYTE = np.uint64(2), np.uint64(3), np.uint64(3), np.int64(255)
_FLIP = np.uint64(0 if sys.byteorder == "little" else 3)


@walk
def _shift(place: np.uint64) -> np.int64:
    """How many bits of its word stand below the entry of 8 bits at this place."""
    return np.int64(((place & _IN_WORD) ^ _FLIP) << _BITS)


@walk
def at(w: Work, column: int, i: int) -> int:
    """One entry of a column."""
    entry: Any
    place = np.uint64(w.h[column] + i)
    if column >= c.WIDE:
        entry = w.h[place]
    elif column >= c.NARROW:
        entry = np.int64(w.g[place])
    else:
        entry = (np.int64(w.g[place >> _WORD]) >> _shift(place)) & _BYTE
    return entry


@walk
def put(w: Work, column: int, i: int, value: int) -> None:
    """Set one entry of a column."""
    place = np.uint64(w.h[column] + i)
    if column >= c.WIDE:
        w.h[place] = value
    elif column >= c.NARROW:
        w.g[place] = value
    else:
        word, shift = place >> _WORD, _shift(place)
        w.g[word] = (w.g[word] & ~(_BYTE << shift)) | (np.int64(value) << shift)


@walk
def add(w: Work, column: int, i: int, amount: int) -> None:
    """Add to one entry of a column."""
    put(w, column, i, at(w, column, i) + amount)


@walk
def _sift(w: Work, keys: int, values: int, top: int, size: int) -> None:
    """Heapsort's step: let the key at place `top` of a binary heap sink until no key below it is larger."""
    key, value = w.h[keys + top], w.h[values + top]
    while 2 * top + 1 < size:
        below = 2 * top + 1
        if below + 1 < size and w.h[keys + below + 1] > w.h[keys + below]:
            below += 1
        if w.h[keys + below] <= key:
            break
        w.h[keys + top], w.h[values + top] = w.h[keys + below], w.h[values + below]
        top = below
    w.h[keys + top], w.h[values + top] = key, value


@walk
def sort(w: Work, keys: int, values: int, size: int) -> None:
    """Sort `size` keys that begin at one cell of the heap, and move the values beginning at another along."""
    for top in range(size // 2 - 1, -1, -1):
        _sift(w, keys, values, top, size)
    for last in range(size - 1, 0, -1):
        key, value = w.h[keys], w.h[values]
        w.h[keys], w.h[values] = w.h[keys + last], w.h[values + last]
        w.h[keys + last], w.h[values + last] = key, value
        _sift(w, keys, values, 0, last)


@walk
def cell(w: Work, table: int, i: int, d: int) -> int:
    """One dimension of the i-th vector of a table."""
    return w.h[np.uint64(w.h[table] + i * w.h[c.WIDTH] + d)]


@walk
def put_cell(w: Work, table: int, i: int, d: int, value: int) -> None:
    """Set one dimension of the i-th vector of a table."""
    w.h[np.uint64(w.h[table] + i * w.h[c.WIDTH] + d)] = value


@walk
def add_cell(w: Work, table: int, i: int, d: int, amount: int) -> None:
    """Add to one dimension of the i-th vector of a table."""
    put_cell(w, table, i, d, cell(w, table, i, d) + amount)


@walk
def fill(w: Work, column: int, length: int, value: int) -> None:
    """Set the first `length` entries of a column."""
    for i in range(length):
        put(w, column, i, value)


@walk
def domain_at(w: Work, topology: int, shape: int) -> int:
    """The domain of a shape in a topology, NONE if it has none."""
    return w.h[np.uint64(w.h[c.T_DOMAIN] + topology * w.h[c.LEN_SHAPES] + shape)]


@walk
def domain_rank_at(w: Work, topology: int, domain: int) -> int:
    """A number that compares with those of other domains of the topology as their values do."""
    return w.h[w.h[c.T_DOMAIN_RANK] + topology * w.h[c.MOST_DOMAINS] + domain]


@walk
def level_at(w: Work, constraint: int, domain: int) -> int:
    """How many units of the row being served stand in a domain of one of its spreads."""
    return w.h[w.h[c.T_LEVEL] + constraint * w.h[c.MOST_DOMAINS] + domain]


@walk
def put_level(w: Work, constraint: int, domain: int, value: int) -> None:
    """Set how many units of the row being served stand in a domain of one of its spreads."""
    w.h[w.h[c.T_LEVEL] + constraint * w.h[c.MOST_DOMAINS] + domain] = value


@walk
def room_in_arena(w: Work, size: int) -> int:
    """Take `size` cells from the arena, all 0; where they begin. Without room OVERFLOW is set, and the answer is 0."""
    start = w.h[c.ARENA_END]
    if start + size > w.h[c.LEN_ARENA]:
        w.h[c.OVERFLOW] = c.LEN_ARENA
        return 0
    w.h[c.ARENA_END] = start + size
    for i in range(start, start + size):
        put(w, c.T_ARENA, i, 0)
    return start


class Heap:
    """The heap seen from Python. Columns have room to spare; when one outgrows its room, all are moved."""

    def __init__(self) -> None:
        self._capacity = dict.fromkeys(range(c.SCALARS, c.HEADER), 0)
        h = np.zeros(c.HEADER, np.int64)
        self.work = Work(h, h.view(np.int32), np.zeros((1, 1), np.uint8))
        self.decision = 0
        """How many decisions have been laid out in the heap."""

    def reserve(self, sizes: Mapping[int, int]) -> None:
        """Give each of these columns room for so many entries. Entries that were there stay; new ones are 0."""
        if all(size <= self._capacity[place] for place, size in sizes.items()):
            return
        old, had = self.work, dict(self._capacity)
        for place, size in sizes.items():
            if size > had[place]:
                self._capacity[place] = max(size, had[place] * 3 // 2) if had[place] else size
        cells = {place: -(-size // _in_cell(place)) for place, size in self._capacity.items()}
        h = np.zeros(c.HEADER + sum(cells.values()), np.int64)
        h[: c.HEADER] = old.h[: c.HEADER]
        begin = c.HEADER
        for place, size in cells.items():
            scale, before = _in_cell(place), int(old.h[place])
            source, target = _entries(old.h, place), _entries(h, place)
            # Of the arena only the beginning is in use.
            length = min(had[place], int(old.h[c.ARENA_END])) if place == c.T_ARENA else had[place]
            target[begin * scale : begin * scale + length] = source[before : before + length]
            h[place] = begin * scale
            begin += size
        self.work = Work(h, h.view(np.int32), old.matches)

    def use_matches(self, matches: Array) -> None:
        """Use this grid as `Work.matches`."""
        self.work = self.work._replace(matches=matches)

    def column(self, place: int, size: int | None = None) -> Array:
        """The first `size` entries of a column, or all of them, as a view."""
        begin = int(self.work.h[place])
        heap: Array = self.work.g if c.NARROW <= place < c.WIDE else _entries(self.work.h, place)
        return heap[begin : begin + (self._capacity[place] if size is None else size)]

    def vectors(self, table: int, count: int) -> Array:
        """The first vectors of a table, as a view."""
        width = int(self.work.h[c.WIDTH])
        return self.column(table, count * width).reshape(count, width)

    def capacity(self, place: int) -> int:
        """How many entries a column has room for."""
        return self._capacity[place]

    def footprint(self) -> dict[int, int]:
        """The bytes of each column."""
        return {place: size * 8 // _in_cell(place) for place, size in self._capacity.items()}


def _in_cell(place: int) -> int:
    """How many entries of a column 64 bits hold."""
    return 1 if place >= c.WIDE else 2 if place >= c.NARROW else 8


def _entries(heap: Array, place: int) -> Array:
    """The whole heap as entries of the width that a column has."""
    return heap if place >= c.WIDE else heap.view(np.int32) if place >= c.NARROW else heap.view(np.uint8)
