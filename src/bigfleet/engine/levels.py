"""Levels: how full a spread row has each domain, and which may take one unit more. Compiled; section 6."""

from bigfleet.engine.compiled import walk
from bigfleet.engine.heap import at, domain_at, level_at, put, put_level, room_in_arena
from bigfleet.engine.work import (
    H_COUNT,
    KIND_LEVELS,
    LEN_SHAPES,
    N_KIND,
    N_SPREAD,
    N_TOPOLOGY,
    NEVER,
    NONE,
    P_HARD,
    P_SKEW,
    P_TOPOLOGY,
    PRESENCE,
    T_ARENA,
    T_DOMAIN_COUNT,
    T_LEVEL_LEAST,
    T_SPREAD_START,
    Work,
)
from bigfleet.engine.worth import is_eligible, look


@walk
def has_hard_spread(w: Work, need: int) -> bool:
    """Whether a spread of the row is a rule and not a wish."""
    spread = at(w, N_SPREAD, need)
    for s in range(at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)):
        if at(w, P_HARD, s):
            return True
    return False


@walk
def level_all(w: Work, need: int, domain: int) -> None:
    """Start every domain with an eligible machine in any state but Failed at nothing, all others at NONE."""
    spread, topology, kind = at(w, N_SPREAD, need), at(w, N_TOPOLOGY, need), at(w, N_KIND, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    look(w, need, PRESENCE)
    known = topology < 0 and at(w, KIND_LEVELS, kind) != NONE
    place = at(w, KIND_LEVELS, kind)
    for s in range(start, end):
        for d in range(at(w, T_DOMAIN_COUNT, at(w, P_TOPOLOGY, s))):
            put_level(w, s - start, d, NONE)
            if known:
                put_level(w, s - start, d, at(w, T_ARENA, place))
                place += 1
    if known:
        return
    for shape in range(w.h[LEN_SHAPES]):
        if at(w, H_COUNT, shape) == 0 or not is_eligible(w, need, shape):
            continue
        if topology >= 0 and domain_at(w, topology, shape) != domain:
            continue
        for s in range(start, end):
            if at(w, P_HARD, s):
                put_level(w, s - start, domain_at(w, at(w, P_TOPOLOGY, s), shape), 0)
    if topology < 0:
        size = 0
        for s in range(start, end):
            size += at(w, T_DOMAIN_COUNT, at(w, P_TOPOLOGY, s))
        place = room_in_arena(w, size)
        put(w, KIND_LEVELS, kind, place)
        for s in range(start, end):
            for d in range(at(w, T_DOMAIN_COUNT, at(w, P_TOPOLOGY, s))):
                put(w, T_ARENA, place, level_at(w, s - start, d))
                place += 1


@walk
def _least(w: Work, topology: int, j: int) -> int:
    """The level of the emptiest domain of one constraint."""
    least = NEVER
    for d in range(at(w, T_DOMAIN_COUNT, topology)):
        if level_at(w, j, d) >= 0:
            least = min(least, level_at(w, j, d))
    return least


@walk
def allows(w: Work, need: int, shape: int) -> bool:
    """Whether the domains of a machine of this shape may take one unit more."""
    spread = at(w, N_SPREAD, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    for s in range(start, end):
        if at(w, P_HARD, s):
            d = domain_at(w, at(w, P_TOPOLOGY, s), shape)
            if level_at(w, s - start, d) + 1 - at(w, T_LEVEL_LEAST, s - start) > at(w, P_SKEW, s):
                return False
    return True


@walk
def raise_level(w: Work, need: int, shape: int) -> None:
    """Count one unit more for the domains of a machine of this shape."""
    spread = at(w, N_SPREAD, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    for s in range(start, end):
        if at(w, P_HARD, s):
            topology = at(w, P_TOPOLOGY, s)
            d = domain_at(w, topology, shape)
            put_level(w, s - start, d, level_at(w, s - start, d) + 1)
            if level_at(w, s - start, d) == at(w, T_LEVEL_LEAST, s - start) + 1:
                put(w, T_LEVEL_LEAST, s - start, _least(w, topology, s - start))


@walk
def is_emptier(w: Work, need: int, one: int, other: int) -> int:
    """-1 if the domains of shape `one` are less full, 1 if fuller, 0 if alike, constraint by constraint."""
    spread = at(w, N_SPREAD, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    for s in range(start, end):
        if at(w, P_HARD, s):
            a = level_at(w, s - start, domain_at(w, at(w, P_TOPOLOGY, s), one))
            b = level_at(w, s - start, domain_at(w, at(w, P_TOPOLOGY, s), other))
            if a != b:
                return -1 if a < b else 1
    return 0
