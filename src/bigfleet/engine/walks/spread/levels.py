"""Levels: how many units a spread row has in each domain, and which domains may take one more.

Compiled; engine section 6.

A rule is a spread that must be kept, a wish one that need not be. `j` is the number of a spread within its row.

Only domains that hold a unit are ever written, and only those are cleared. A host name has as many domains as there
are machines, and most rows use few of them.
"""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, at, domain_at, level_at, put, put_level, room_in_arena
from bigfleet.engine.heap.values import NEVER, NONE, PRESENCE
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import is_eligible, note_reliance


@walk
def has_hard_spread(w: Work, need: int) -> bool:
    """Whether a spread of the row is a rule and not a wish."""
    spread = at(w, c.N_SPREAD, need)
    for s in range(at(w, c.T_SPREAD_START, spread), at(w, c.T_SPREAD_START, spread + 1)):
        if at(w, c.SPREAD_HARD, s):
            return True
    return False


@walk
def count_domains(w: Work, need: int, domain: int) -> None:
    """Set T_LEVEL_DOMAINS: for each rule of the row, how many domains have an eligible machine that is not Failed."""
    spread, topology, kind = at(w, c.N_SPREAD, need), at(w, c.N_TOPOLOGY, need), at(w, c.N_KIND, need)
    start, end = at(w, c.T_SPREAD_START, spread), at(w, c.T_SPREAD_START, spread + 1)
    note_reliance(w, need, PRESENCE)
    place = at(w, c.KIND_LEVELS, kind)
    if topology < 0 and place != NONE:
        for j in range(end - start):
            put(w, c.T_LEVEL_DOMAINS, j, at(w, c.T_ARENA, place + j))
        return
    for j in range(end - start):
        put(w, c.T_LEVEL_DOMAINS, j, 0)
    empty_levels(w)
    for shape in range(w.h[c.LEN_SHAPES]):
        if at(w, c.SHAPE_COUNT, shape) == 0 or (topology >= 0 and domain_at(w, topology, shape) != domain):
            continue
        if not is_eligible(w, need, shape):
            continue
        for s in range(start, end):
            if at(w, c.SPREAD_HARD, s):
                d = domain_at(w, at(w, c.SPREAD_TOPOLOGY, s), shape)
                if level_at(w, s - start, d) == 0:
                    _use(w, s - start, d)
                    put_level(w, s - start, d, 1)
                    add(w, c.T_LEVEL_DOMAINS, s - start, 1)
    empty_levels(w)
    if topology < 0:
        place = room_in_arena(w, end - start)
        put(w, c.KIND_LEVELS, kind, place)
        for j in range(end - start):
            put(w, c.T_ARENA, place + j, at(w, c.T_LEVEL_DOMAINS, j))


@walk
def empty_levels(w: Work) -> None:
    """Let every domain hold nothing and no seat wait; then all domains that were counted are the emptiest."""
    for j in range(w.h[c.MOST_SPREADS]):
        first = j * w.h[c.MOST_DOMAINS]
        for i in range(at(w, c.T_LEVEL_USED_COUNT, j)):
            d = at(w, c.T_LEVEL_USED, first + i)
            put_level(w, j, d, 0)
            put(w, c.T_WAITING, first + d, 0)
        put(w, c.T_LEVEL_USED_COUNT, j, 0)
        put(w, c.T_LEVEL_LEAST, j, 0)
        put(w, c.T_LEVEL_COUNT, j, at(w, c.T_LEVEL_DOMAINS, j))


@walk
def _use(w: Work, j: int, domain: int) -> None:
    """List a domain that is about to hold its first unit."""
    used = at(w, c.T_LEVEL_USED_COUNT, j)
    put(w, c.T_LEVEL_USED, j * w.h[c.MOST_DOMAINS] + used, domain)
    put(w, c.T_LEVEL_USED_COUNT, j, used + 1)


@walk
def _find_least(w: Work, j: int) -> None:
    """Find the emptiest domains of a rule, given that all its domains hold something."""
    first, least, count = j * w.h[c.MOST_DOMAINS], NEVER, 0
    for i in range(at(w, c.T_LEVEL_USED_COUNT, j)):
        level = level_at(w, j, at(w, c.T_LEVEL_USED, first + i))
        if level < least:
            least, count = level, 0
        if level == least:
            count += 1
    put(w, c.T_LEVEL_LEAST, j, least)
    put(w, c.T_LEVEL_COUNT, j, count)


@walk
def may_take(w: Work, j: int, skew: int, domain: int) -> bool:
    """Whether one rule lets a domain take one unit more."""
    return level_at(w, j, domain) + 1 - at(w, c.T_LEVEL_LEAST, j) <= skew


@walk
def blocking_domain(w: Work, need: int, shape: int) -> int:
    """The first domain of the shape that may not take one unit more, as a place of T_WAITING; NONE if all may."""
    spread = at(w, c.N_SPREAD, need)
    start, end = at(w, c.T_SPREAD_START, spread), at(w, c.T_SPREAD_START, spread + 1)
    for s in range(start, end):
        if at(w, c.SPREAD_HARD, s):
            d = domain_at(w, at(w, c.SPREAD_TOPOLOGY, s), shape)
            if not may_take(w, s - start, at(w, c.SPREAD_SKEW, s), d):
                return (s - start) * w.h[c.MOST_DOMAINS] + d
    return NONE


@walk
def raise_levels(w: Work, need: int, shape: int, units: int) -> bool:
    """Add units to the domains of the shape; whether the emptiest domains of some rule hold more by that."""
    spread = at(w, c.N_SPREAD, need)
    start, end = at(w, c.T_SPREAD_START, spread), at(w, c.T_SPREAD_START, spread + 1)
    rose = False
    for s in range(start, end):
        j = s - start
        d = domain_at(w, at(w, c.SPREAD_TOPOLOGY, s), shape)
        if d == NONE:
            continue
        level = level_at(w, j, d)
        if level == 0:
            _use(w, j, d)
        put_level(w, j, d, level + units)
        if at(w, c.SPREAD_HARD, s) and level == at(w, c.T_LEVEL_LEAST, j):
            add(w, c.T_LEVEL_COUNT, j, -1)
            if at(w, c.T_LEVEL_COUNT, j) == 0:
                _find_least(w, j)
                rose = True
    if rose:
        w.h[c.LEVEL_RISES] = w.h[c.LEVEL_RISES] + 1
    return rose


@walk
def compare_levels(w: Work, need: int, one: int, other: int) -> int:
    """-1 if the domains of shape `one` hold less than those of `other`, 1 if more, 0 if the same, rule by rule."""
    spread = at(w, c.N_SPREAD, need)
    start, end = at(w, c.T_SPREAD_START, spread), at(w, c.T_SPREAD_START, spread + 1)
    for s in range(start, end):
        if at(w, c.SPREAD_HARD, s):
            a = level_at(w, s - start, domain_at(w, at(w, c.SPREAD_TOPOLOGY, s), one))
            b = level_at(w, s - start, domain_at(w, at(w, c.SPREAD_TOPOLOGY, s), other))
            if a != b:
                return -1 if a < b else 1
    return 0
