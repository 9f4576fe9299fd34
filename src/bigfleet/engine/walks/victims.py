"""Victims: machines of other clusters that a need may preempt, in the order in which they go. Compiled; section 7."""

from typing import cast

import numpy as np

from bigfleet.engine.heap.columns import (
    ACTIONS,
    C_PARTIAL,
    C_REPORTED,
    H_HELD,
    H_WANTED,
    LARGE,
    LEN_ACTIONS,
    LEN_MACHINES,
    LEN_SHAPES,
    LEN_VICTIMS,
    LEN_WANTED,
    M_ACTION,
    M_BOUND,
    M_CLUSTER,
    M_DRAIN_SECONDS,
    M_FLAGS,
    M_GONE,
    M_LATER,
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
    N_ACTS,
    N_CLUSTER,
    N_DIVISIBLE,
    N_INTERRUPTION,
    N_MISSING,
    N_PRIORITY,
    N_RECLAMATION,
    N_REQUIREMENT,
    N_TOPOLOGY,
    NONE,
    OVERFLOW,
    PREEMPT,
    T_SCORE_WEIGHTS,
    T_STANDING,
    T_VICTIM,
    T_WANTED,
    VICTIMS,
    Array,
    Work,
)
from bigfleet.engine.heap.heap import (
    at,
    domain_at,
    fill,
    put,
    sort,
)
from bigfleet.engine.jit import walk
from bigfleet.engine.tables.validate import COMMITTED, EMPTY, PROTECTED, STAMPED, UNREQUESTED
from bigfleet.engine.walks.bind import bind, evict
from bigfleet.engine.walks.capacity import admits, fitting_units, fresh_units, is_eligible, is_pinned
from bigfleet.engine.walks.cohorts import divisible_share, half_dollars
from bigfleet.engine.walks.credit import take, take_divisible

CONFIGURED = 5
PINNED = 27
LONGEST_GRACE = 600
LOWEST = cast("int", np.int64(-(1 << 62)))
"""Below every priority: how a machine stands that serves nothing."""


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
    if at(w, M_LATER, machine) or at(w, H_HELD, at(w, M_SHAPE, machine)):
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
    for i in range(w.h[VICTIMS]):
        if at(w, T_STANDING, i) >= at(w, N_PRIORITY, need):
            break
        machine = at(w, T_VICTIM, i)
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
    """Whether some machine that stood below the need when phase 2 began could serve it."""
    for i in range(w.h[VICTIMS]):
        if at(w, T_STANDING, i) >= at(w, N_PRIORITY, need):
            return False
        if is_eligible(w, need, at(w, M_SHAPE, at(w, T_VICTIM, i))):
            return True
    return False


@walk
def is_listed_for(w: Work, need: int) -> bool:
    """Whether the list of victims was made with such a need in mind, or the need may not preempt."""
    return not at(w, N_ACTS, need) or at(w, T_WANTED, at(w, N_REQUIREMENT, need)) >= at(w, N_PRIORITY, need)


@walk
def list_victims(w: Work, order: Array, start: int, met: bool) -> None:
    """List the machines that some unmet need from one place of the order on might preempt, lowest standing first.

    In phase 2 standings only rise and no machine becomes a victim, so its order is a bound. With `met` needs count too
    that are met: they may be robbed.
    """
    fill(w, T_WANTED, w.h[LEN_WANTED], LOWEST)
    some = False
    for i in range(start, order.shape[0]):
        need = order[i]
        if (met or at(w, N_MISSING, need) > 0) and at(w, N_ACTS, need):
            requirement = at(w, N_REQUIREMENT, need)
            put(w, T_WANTED, requirement, max(at(w, T_WANTED, requirement), at(w, N_PRIORITY, need)))
            some = True
    w.h[VICTIMS] = 0
    if not some:
        return
    fill(w, H_WANTED, w.h[LEN_SHAPES], LOWEST)
    for requirement in range(w.h[LEN_WANTED]):
        wanted = at(w, T_WANTED, requirement)
        if wanted > LOWEST:
            for shape in range(w.h[LEN_SHAPES]):
                if w.matches[requirement, shape]:
                    put(w, H_WANTED, shape, max(at(w, H_WANTED, shape), wanted))
    count = 0
    for machine in range(w.h[LEN_MACHINES]):
        if at(w, M_STATE, machine) != CONFIGURED or at(w, M_BOUND, machine) == NONE:
            continue
        highest = at(w, H_WANTED, at(w, M_SHAPE, machine))
        if highest > LOWEST and is_victim(w, machine):
            serves, priority, _, _, _ = standing(w, machine)
            stands = priority if serves else LOWEST
            if stands < highest:
                if count >= w.h[LEN_VICTIMS]:
                    w.h[OVERFLOW] = LEN_VICTIMS
                    return
                put(w, T_VICTIM, count, machine)
                put(w, T_STANDING, count, stands)
                count += 1
    w.h[VICTIMS] = count
    sort(w, w.h[T_STANDING], w.h[T_VICTIM], count)


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
    """Preempt the machine for the need, if there is room to note it."""
    if w.h[ACTIONS] >= w.h[LEN_ACTIONS]:
        w.h[OVERFLOW] = LEN_ACTIONS
        return
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
        if w.h[OVERFLOW]:
            return
        if at(w, N_DIVISIBLE, need):
            if not take_divisible(w, need, machine):
                return
        else:
            take(w, need, machine, min(fitting_units(w, need, machine), at(w, N_MISSING, need)))
