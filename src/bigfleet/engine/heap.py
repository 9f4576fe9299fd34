"""The heap: every table of a decision in one array of whole numbers, read and written by name.

A column is known by the place in the header that says where it begins; a vector of resources is WIDTH entries long.
"""

from collections.abc import Mapping

import numpy as np

from bigfleet.engine import work as places
from bigfleet.engine.compiled import walk
from bigfleet.engine.work import (
    ARENA,
    HEADER,
    LEN_SHAPES,
    LEN_T_ARENA,
    MOST_DOMAINS,
    OVERFLOW,
    SCALARS,
    T_DOMAIN,
    T_DOMAIN_RANK,
    T_LEVEL,
    WIDTH,
    Array,
    Work,
)

GROUPS = {
    "machines": places.M_SHAPE,
    "needs": places.N_CLUSTER,
    "clusters": places.C_DAEMONS,
    "kinds": places.KIND_POOL,
    "starts": places.W_PAST,
    "cohorts": places.K_SHAPE,
    "entries": places.E_MACHINE,
    "seats": places.S_MACHINE,
    "sums": places.D_BOUND,
    "shapes": places.H_COUNT,
    "spreads": places.P_TOPOLOGY,
    "actions": places.A_KIND,
}
"""Tables of several columns, each with its first column; the others follow it in the header."""


@walk
def at(w: Work, column: int, i: int) -> int:
    """One entry of a column."""
    return w.h[w.h[column] + i]


@walk
def put(w: Work, column: int, i: int, value: int) -> None:
    """Set one entry of a column."""
    w.h[w.h[column] + i] = value


@walk
def cell(w: Work, table: int, i: int, d: int) -> int:
    """One dimension of the i-th vector of a table."""
    return w.h[w.h[table] + i * w.h[WIDTH] + d]


@walk
def put_cell(w: Work, table: int, i: int, d: int, value: int) -> None:
    """Set one dimension of the i-th vector of a table."""
    w.h[w.h[table] + i * w.h[WIDTH] + d] = value


@walk
def row(w: Work, table: int, i: int) -> Array:
    """The i-th vector of a table, to read and to write."""
    begin = w.h[table] + i * w.h[WIDTH]
    return w.h[begin : begin + w.h[WIDTH]]


@walk
def column(w: Work, name: int, length: int) -> Array:
    """A whole column, to read and to write; `length` is the place of its length."""
    return w.h[w.h[name] : w.h[name] + w.h[length]]


@walk
def domain_at(w: Work, topology: int, shape: int) -> int:
    """The domain of a shape in a topology, NONE if it has none."""
    return w.h[w.h[T_DOMAIN] + topology * w.h[LEN_SHAPES] + shape]


@walk
def domain_rank_at(w: Work, topology: int, domain: int) -> int:
    """The place of a domain among all of its topology, by value."""
    return w.h[w.h[T_DOMAIN_RANK] + topology * w.h[MOST_DOMAINS] + domain]


@walk
def level_at(w: Work, constraint: int, domain: int) -> int:
    """How far a spread has filled a domain, NONE if it is none of its domains."""
    return w.h[w.h[T_LEVEL] + constraint * w.h[MOST_DOMAINS] + domain]


@walk
def put_level(w: Work, constraint: int, domain: int, value: int) -> None:
    """Set how far a spread has filled a domain."""
    w.h[w.h[T_LEVEL] + constraint * w.h[MOST_DOMAINS] + domain] = value


@walk
def room_in_arena(w: Work, size: int) -> int:
    """So many cells, all 0, for what is worked out once and kept until the end; at its start if there is no room left."""
    start = w.h[ARENA]
    if start + size > w.h[LEN_T_ARENA]:
        w.h[OVERFLOW] = 1
        return 0
    w.h[ARENA] = start + size
    return start


class Tables:
    """The heap seen from Python: columns and tables as arrays, which are views and no copies."""

    def __init__(self, matches: Array, scalars: Array, tables: Mapping[str, Array]) -> None:
        h = np.zeros(HEADER + sum(table.size for table in tables.values()), np.int64)
        h[:SCALARS] = scalars
        self.work = Work(h, matches)
        self._shapes: dict[int, tuple[int, ...]] = {}
        begin = HEADER
        for name, table in tables.items():
            h[begin : begin + table.size] = table.ravel()
            self._write_header(name, begin, table.shape)
            begin += table.size
        h[WIDTH], h[MOST_DOMAINS] = tables["free"].shape[1], tables["level"].shape[1]

    def _write_header(self, name: str, begin: int, shape: tuple[int, ...]) -> None:
        h = self.work.h
        first = GROUPS.get(name)
        if first is None:
            place = getattr(places, f"T_{name.upper()}")
            h[place] = begin
            self._shapes[place] = shape
            length = getattr(places, f"LEN_T_{name.upper()}", None)
            if length is not None:
                h[length] = shape[0]
            return
        h[getattr(places, f"LEN_{name.upper()}")] = shape[1]
        for i in range(shape[0]):
            h[first + i] = begin + i * shape[1]
            self._shapes[first + i] = (shape[1],)

    def table(self, place: int) -> Array:
        """A column or a table by its place in the header."""
        begin, shape = self.work.h[place], self._shapes[place]
        view: Array = self.work.h[begin : begin + int(np.prod(shape))].reshape(shape)
        return view
