"""Victims: machines of other clusters that a need may preempt, in the order in which they go. Compiled; section 7."""

from bigfleet.engine.acquire import bind, divisible_share, evict, half_dollars
from bigfleet.engine.compiled import walk
from bigfleet.engine.credit import (
    LARGE,
    NONE,
    admits,
    fitting_units,
    fresh_units,
    is_pinned,
    take,
    take_divisible,
)
from bigfleet.engine.heap import at, column, domain_at, put
from bigfleet.engine.inventory import COMMITTED, EMPTY, PROTECTED, STAMPED, UNREQUESTED
from bigfleet.engine.work import (
    C_PARTIAL,
    C_REPORTED,
    H_HELD,
    H_LOWEST,
    KIND_VERSION,
    KIND_VICTIM,
    LEN_SHAPES,
    LEN_T_CONFIGURED,
    LOWEST_VERSION,
    M_ACTION,
    M_BOUND,
    M_CLUSTER,
    M_DRAIN_SECONDS,
    M_FLAGS,
    M_GONE,
    M_NOT_BEFORE,
    M_PROBABILITY,
    M_RANK,
    M_SHAPE,
    M_STAKES_INTERRUPTION,
    M_STAKES_PRIORITY,
    M_STAKES_RECLAMATION,
    M_STAMP_INTERRUPTION,
    M_STAMP_PRIORITY,
    M_STAMP_RECLAMATION,
    M_STATE,
    M_STOOD,
    M_STOOD_PINNED,
    N_CLUSTER,
    N_DIVISIBLE,
    N_INTERRUPTION,
    N_KIND,
    N_MISSING,
    N_PRIORITY,
    N_RECLAMATION,
    N_TOPOLOGY,
    NOW,
    PREEMPT,
    T_CONFIGURED,
    T_SCORE_WEIGHTS,
    VERSION,
    Work,
)

CONFIGURED = 5
PINNED = 27
LONGEST_GRACE = 600


@walk
def standing(w: Work, machine: int) -> tuple[bool, int, int, int, bool]:
    """What stands between a machine and being a victim: (serves, priority, interruption, reclamation, pinned).

    It stands by the highest need that it served at any time in this decision.
    """
    cluster = at(w, M_CLUSTER, machine)
    flags = at(w, M_FLAGS, machine)
    serves, priority, interruption, reclamation, pinned = False, 0, 1, 1, False
    if cluster == NONE or not at(w, C_REPORTED, cluster):
        if not flags & STAMPED:
            return True, 0, 1, 1, True
        serves, priority = True, at(w, M_STAMP_PRIORITY, machine)
        interruption, reclamation = at(w, M_STAMP_INTERRUPTION, machine), at(w, M_STAMP_RECLAMATION, machine)
        pinned = interruption == PINNED or reclamation == PINNED
    elif at(w, M_STOOD, machine) != NONE:
        need = at(w, M_STOOD, machine)
        serves, priority = True, at(w, N_PRIORITY, need)
        interruption, reclamation = at(w, N_INTERRUPTION, need), at(w, N_RECLAMATION, need)
        pinned = at(w, M_STOOD_PINNED, machine) == 1
    if flags & UNREQUESTED:
        priority = max(priority, at(w, M_STAKES_PRIORITY, machine)) if serves else at(w, M_STAKES_PRIORITY, machine)
        interruption = max(interruption, at(w, M_STAKES_INTERRUPTION, machine))
        reclamation = max(reclamation, at(w, M_STAKES_RECLAMATION, machine))
        pinned = (
            pinned or at(w, M_STAKES_INTERRUPTION, machine) == PINNED or at(w, M_STAKES_RECLAMATION, machine) == PINNED
        )
        serves = True
    return serves, priority, interruption, reclamation, pinned


@walk
def is_victim(w: Work, machine: int) -> bool:
    """Whether anybody at all could preempt the machine: Configured, not committed, protected, held out or PINNED."""
    flags = at(w, M_FLAGS, machine)
    if at(w, M_GONE, machine) or at(w, M_STATE, machine) != CONFIGURED:
        return False
    if at(w, M_BOUND, machine) == NONE or at(w, M_ACTION, machine) != NONE:
        return False
    if flags & (COMMITTED | PROTECTED):
        return False
    cluster = at(w, M_CLUSTER, machine)
    if cluster != NONE and at(w, C_PARTIAL, cluster) and not flags & (EMPTY | UNREQUESTED):
        return False
    if at(w, M_NOT_BEFORE, machine) > w.h[NOW] or at(w, H_HELD, at(w, M_SHAPE, machine)):
        return False
    return not standing(w, machine)[4]


@walk
def may_preempt(w: Work, need: int, machine: int) -> bool:
    """Whether the need may take this machine from another cluster, whose own need is strictly lower."""
    if at(w, M_BOUND, machine) == at(w, N_CLUSTER, need) or not is_victim(w, machine):
        return False
    serves, priority, _, _, _ = standing(w, machine)
    return not serves or priority < at(w, N_PRIORITY, need)


@walk
def score(w: Work, need: int, machine: int) -> int:
    """Section 7's score in billionths, each term rounded down."""
    serves, priority, interruption, reclamation, _ = standing(w, machine)
    gap = at(w, N_PRIORITY, need) - priority if serves else 0
    return (
        gap * at(w, T_SCORE_WEIGHTS, 0)
        + at(w, T_SCORE_WEIGHTS, 1) // max(1, at(w, M_DRAIN_SECONDS, machine))
        + at(w, T_SCORE_WEIGHTS, 2) * 100 // max(1, 50 * half_dollars(interruption))
        + at(w, T_SCORE_WEIGHTS, 3) * 100 // max(1, 50 * half_dollars(reclamation))
    )


@walk
def goes_before(w: Work, need: int, one: int, other: int) -> bool:
    """Whether victim `one` is taken before `other`."""
    if is_pinned(w, need):
        one_risky, other_risky = at(w, M_PROBABILITY, one) > 0, at(w, M_PROBABILITY, other) > 0
        if one_risky != other_risky:
            return other_risky
    one_serves, other_serves = standing(w, one)[0], standing(w, other)[0]
    if one_serves != other_serves:
        return other_serves
    one_score, other_score = score(w, need, one), score(w, need, other)
    if one_score != other_score:
        return one_score > other_score
    return at(w, M_RANK, one) < at(w, M_RANK, other)


@walk
def counts_for(w: Work, need: int, machine: int) -> bool:
    """Whether the machine, emptied, would hold something that the need misses."""
    shape = at(w, M_SHAPE, machine)
    if at(w, N_DIVISIBLE, need):
        return divisible_share(w, need, shape) >= 0
    return fresh_units(w, need, shape) > 0


@walk
def best_victim(w: Work, need: int, domain: int) -> int:
    """The machine that goes first for the need, inside its domain if it has one; NONE if there is none."""
    topology = at(w, N_TOPOLOGY, need)
    best = NONE
    for i in range(w.h[LEN_T_CONFIGURED]):
        machine = at(w, T_CONFIGURED, i)
        shape = at(w, M_SHAPE, machine)
        if domain != NONE and domain_at(w, topology, shape) != domain:
            continue
        if not admits(w, need, shape) or not may_preempt(w, need, machine) or not counts_for(w, need, machine):
            continue
        if best == NONE or goes_before(w, need, machine, best):
            best = machine
    return best


@walk
def may_have_victims(w: Work, need: int) -> bool:
    """Whether some machine that could serve such a need stands below it; worked out once a kind and version."""
    kind = at(w, N_KIND, need)
    if at(w, KIND_VERSION, kind) != w.h[VERSION]:
        _note_lowest(w)
        lowest = LARGE
        for shape in range(w.h[LEN_SHAPES]):
            if at(w, H_LOWEST, shape) < lowest and admits(w, need, shape):
                lowest = at(w, H_LOWEST, shape)
        put(w, KIND_VERSION, kind, w.h[VERSION])
        put(w, KIND_VICTIM, kind, lowest)
    return at(w, KIND_VICTIM, kind) < at(w, N_PRIORITY, need)


@walk
def _note_lowest(w: Work) -> None:
    """For each shape, the lowest standing among its machines that anybody could preempt; once a version."""
    if w.h[LOWEST_VERSION] == w.h[VERSION]:
        return
    w.h[LOWEST_VERSION] = w.h[VERSION]
    column(w, H_LOWEST, LEN_SHAPES)[:] = LARGE
    for i in range(w.h[LEN_T_CONFIGURED]):
        machine = at(w, T_CONFIGURED, i)
        if is_victim(w, machine):
            serves, priority, _, _, _ = standing(w, machine)
            shape = at(w, M_SHAPE, machine)
            put(w, H_LOWEST, shape, min(at(w, H_LOWEST, shape), priority if serves else -LARGE))


@walk
def victim_units(w: Work, need: int, domain: int) -> int:
    """Units that victims of one domain would hold, all of them emptied."""
    topology, units = at(w, N_TOPOLOGY, need), 0
    for i in range(w.h[LEN_T_CONFIGURED]):
        machine = at(w, T_CONFIGURED, i)
        shape = at(w, M_SHAPE, machine)
        if domain_at(w, topology, shape) == domain and admits(w, need, shape) and may_preempt(w, need, machine):
            units += fresh_units(w, need, shape)
    return units


@walk
def grace_of(w: Work, need: int, machine: int) -> int:
    """Seconds that the victim's pods are given, by the gap in priority."""
    serves, priority, _, _, _ = standing(w, machine)
    if not serves:
        return LONGEST_GRACE
    gap = at(w, N_PRIORITY, need) - priority
    if gap > 900_000:
        return 10
    if gap > 500_000:
        return 30
    if gap > 100_000:
        return 120
    return LONGEST_GRACE


@walk
def take_victim(w: Work, need: int, machine: int) -> None:
    """Preempt the machine for the need."""
    serves, priority, _, _, _ = standing(w, machine)
    grace = grace_of(w, need, machine)
    evict(w, machine)
    bind(w, need, machine, PREEMPT, grace, priority if serves else LARGE)


@walk
def preempt(w: Work, need: int, domain: int) -> None:
    """Take victims, first to go first, until nothing is missing or nobody is left."""
    while at(w, N_MISSING, need) > 0:
        machine = best_victim(w, need, domain)
        if machine == NONE:
            return
        take_victim(w, need, machine)
        if at(w, N_DIVISIBLE, need):
            if not take_divisible(w, need, machine):
                return
        else:
            take(w, need, machine, min(fitting_units(w, need, machine), at(w, N_MISSING, need)))
