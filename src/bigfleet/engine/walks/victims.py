"""Victims: machines of other clusters that a need may preempt, in the order in which they go.

Compiled; engine section 7.
"""

from bigfleet.engine.codes import COMMITTED, CONFIGURED, EMPTY, PINNED, PROTECTED, STAMPED, UNREQUESTED, ZERO_BUCKET
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import (
    Array,
    Work,
    at,
    domain_at,
    fill,
    put,
    sort,
)
from bigfleet.engine.heap.values import (
    LARGE,
    LOWEST,
    NONE,
    PREEMPT,
    WEIGHT_DRAIN,
    WEIGHT_INTERRUPT,
    WEIGHT_PRIORITY,
    WEIGHT_RECLAIM,
)
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.bind import bind, evict
from bigfleet.engine.walks.capacity import admits, fitting_units, fresh_units, is_eligible, is_pinned
from bigfleet.engine.walks.cohorts import divisible_share, half_dollars
from bigfleet.engine.walks.credit import take, take_divisible

# Seconds that a victim's pods are given: the less, the further the victim stands below the need.
_GRACE_FAR_BELOW, _GRACE_WELL_BELOW, _GRACE_BELOW, _LONGEST_GRACE = 10, 30, 120, 600
_FAR_BELOW, _WELL_BELOW, _BELOW = 900_000, 500_000, 100_000
# A bucket's bound is known in half dollars, the score counts dollars: both are brought to cents.
_CENTS, _HALF_DOLLAR = 100, 50


@walk
def standing(w: Work, machine: int) -> tuple[bool, int, int, int, bool]:
    """What a machine stands by: (whether it serves, priority, interruption bucket, reclamation bucket, PINNED or not).

    It stands by the highest need that it served at any time in this decision. Where the cluster has sent no roll-up, it
    stands by its stamp, and without a stamp as PINNED. Pods that no request speaks for may raise each of these.
    """
    cluster = at(w, c.M_CLUSTER, machine)
    flags = at(w, c.M_FLAGS, machine)
    serves, priority, interruption, reclamation, pinned = False, 0, ZERO_BUCKET, ZERO_BUCKET, False
    if cluster == NONE or not at(w, c.C_REPORTED, cluster):
        if not flags & STAMPED:
            return True, 0, ZERO_BUCKET, ZERO_BUCKET, True
        serves, priority = True, at(w, c.M_STAMP_PRIORITY, machine)
        interruption, reclamation = at(w, c.M_STAMP_INTERRUPTION, machine), at(w, c.M_STAMP_RECLAMATION, machine)
        pinned = interruption == PINNED or reclamation == PINNED
    elif at(w, c.M_STANDS_BY, machine) != NONE:
        need = at(w, c.M_STANDS_BY, machine)
        serves, priority = True, at(w, c.N_PRIORITY, need)
        interruption, reclamation = at(w, c.N_INTERRUPTION, need), at(w, c.N_RECLAMATION, need)
        pinned = at(w, c.M_SERVED_PINNED, machine) == 1
    if flags & UNREQUESTED:
        priority = max(priority, at(w, c.M_STAKES_PRIORITY, machine)) if serves else at(w, c.M_STAKES_PRIORITY, machine)
        interruption = max(interruption, at(w, c.M_STAKES_INTERRUPTION, machine))
        reclamation = max(reclamation, at(w, c.M_STAKES_RECLAMATION, machine))
        pinned = (
            pinned
            or at(w, c.M_STAKES_INTERRUPTION, machine) == PINNED
            or at(w, c.M_STAKES_RECLAMATION, machine) == PINNED
        )
        serves = True
    return serves, priority, interruption, reclamation, pinned


@walk
def is_victim(w: Work, machine: int) -> bool:
    """Whether anybody at all could preempt the machine: Configured, not committed, protected, held out or PINNED."""
    flags = at(w, c.M_FLAGS, machine)
    if at(w, c.M_VICTIM_TRIED, machine) or at(w, c.M_STATE, machine) != CONFIGURED:
        return False
    if at(w, c.M_BOUND, machine) == NONE or at(w, c.M_ACTION, machine) != NONE:
        return False
    if flags & (COMMITTED | PROTECTED):
        return False
    cluster = at(w, c.M_CLUSTER, machine)
    if cluster != NONE and at(w, c.C_PARTIAL, cluster) and not flags & (EMPTY | UNREQUESTED):
        return False
    if at(w, c.M_NOT_YET, machine) or at(w, c.SHAPE_HELD, at(w, c.M_SHAPE, machine)):
        return False
    return not standing(w, machine)[4]


@walk
def may_preempt(w: Work, need: int, machine: int) -> bool:
    """Whether the need may preempt this machine: another cluster has it, and it stands strictly below the need."""
    if at(w, c.M_BOUND, machine) == at(w, c.N_CLUSTER, need) or not is_victim(w, machine):
        return False
    serves, priority, _, _, _ = standing(w, machine)
    return not serves or priority < at(w, c.N_PRIORITY, need)


@walk
def score(w: Work, need: int, machine: int) -> int:
    """The victim's score of section 7, in billionths, each term rounded down. The highest goes first."""
    serves, priority, interruption, reclamation, _ = standing(w, machine)
    gap = at(w, c.N_PRIORITY, need) - priority if serves else 0
    return (
        gap * at(w, c.T_SCORE_WEIGHTS, WEIGHT_PRIORITY)
        + at(w, c.T_SCORE_WEIGHTS, WEIGHT_DRAIN) // max(1, at(w, c.M_DRAIN_SECONDS, machine))
        + at(w, c.T_SCORE_WEIGHTS, WEIGHT_INTERRUPT) * _CENTS // max(1, _HALF_DOLLAR * half_dollars(interruption))
        + at(w, c.T_SCORE_WEIGHTS, WEIGHT_RECLAIM) * _CENTS // max(1, _HALF_DOLLAR * half_dollars(reclamation))
    )


@walk
def goes_before(w: Work, need: int, one: int, other: int) -> bool:
    """Whether victim `one` is taken before `other`."""
    if is_pinned(w, need):
        one_risky, other_risky = at(w, c.M_PROBABILITY, one) > 0, at(w, c.M_PROBABILITY, other) > 0
        if one_risky != other_risky:
            return other_risky
    one_serves, other_serves = standing(w, one)[0], standing(w, other)[0]
    if one_serves != other_serves:
        return other_serves
    one_score, other_score = score(w, need, one), score(w, need, other)
    if one_score != other_score:
        return one_score > other_score
    return at(w, c.M_RANK, one) < at(w, c.M_RANK, other)


@walk
def counts_for(w: Work, need: int, machine: int) -> bool:
    """Whether the machine, emptied, would hold something that the need lacks."""
    shape = at(w, c.M_SHAPE, machine)
    if at(w, c.N_DIVISIBLE, need):
        return divisible_share(w, need, shape) >= 0
    return fresh_units(w, need, shape) > 0


@walk
def best_victim(w: Work, need: int, domain: int) -> int:
    """The victim that goes first for the need, only inside the domain if one is given; NONE if there is none."""
    topology = at(w, c.N_TOPOLOGY, need)
    best = NONE
    for i in range(w.h[c.VICTIMS]):
        if at(w, c.T_STANDING, i) >= at(w, c.N_PRIORITY, need):
            break
        machine = at(w, c.T_VICTIM, i)
        shape = at(w, c.M_SHAPE, machine)
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
    for i in range(w.h[c.VICTIMS]):
        if at(w, c.T_STANDING, i) >= at(w, c.N_PRIORITY, need):
            return False
        if is_eligible(w, need, at(w, c.M_SHAPE, at(w, c.T_VICTIM, i))):
            return True
    return False


@walk
def is_listed_for(w: Work, need: int) -> bool:
    """Whether the list of victims names all that the need might preempt."""
    return not at(w, c.N_ACTS, need) or at(w, c.T_WANTED, at(w, c.N_REQUIREMENT, need)) >= at(w, c.N_PRIORITY, need)


@walk
def list_victims(w: Work, order: Array, start: int, met: bool) -> None:
    """List the machines that an unmet need from place `start` of the order on might preempt, lowest standing first.

    In phase 2 machines only come to stand higher, and none becomes a victim. So a need can stop at the first entry that
    is listed at its own priority or above. With `met`, needs that lack nothing count too, since they may be robbed.
    """
    fill(w, c.T_WANTED, w.h[c.LEN_REQUIREMENTS], LOWEST)
    some = False
    for i in range(start, order.shape[0]):
        need = order[i]
        if (met or at(w, c.N_MISSING, need) > 0) and at(w, c.N_ACTS, need):
            requirement = at(w, c.N_REQUIREMENT, need)
            put(w, c.T_WANTED, requirement, max(at(w, c.T_WANTED, requirement), at(w, c.N_PRIORITY, need)))
            some = True
    w.h[c.VICTIMS] = 0
    if not some:
        return
    fill(w, c.SHAPE_WANTED, w.h[c.LEN_SHAPES], LOWEST)
    for requirement in range(w.h[c.LEN_REQUIREMENTS]):
        wanted = at(w, c.T_WANTED, requirement)
        if wanted > LOWEST:
            for shape in range(w.h[c.LEN_SHAPES]):
                if w.matches[requirement, shape]:
                    put(w, c.SHAPE_WANTED, shape, max(at(w, c.SHAPE_WANTED, shape), wanted))
    count = 0
    for machine in range(w.h[c.LEN_MACHINES]):
        if at(w, c.M_STATE, machine) != CONFIGURED or at(w, c.M_BOUND, machine) == NONE:
            continue
        highest = at(w, c.SHAPE_WANTED, at(w, c.M_SHAPE, machine))
        if highest > LOWEST and is_victim(w, machine):
            serves, priority, _, _, _ = standing(w, machine)
            stands = priority if serves else LOWEST
            if stands < highest:
                if count >= w.h[c.LEN_VICTIMS]:
                    w.h[c.OVERFLOW] = c.LEN_VICTIMS
                    return
                put(w, c.T_VICTIM, count, machine)
                put(w, c.T_STANDING, count, stands)
                count += 1
    w.h[c.VICTIMS] = count
    sort(w, w.h[c.T_STANDING], w.h[c.T_VICTIM], count)


@walk
def grace_of(w: Work, need: int, machine: int) -> int:
    """Seconds that the victim's pods are given, by how far the victim stands below the need."""
    serves, priority, _, _, _ = standing(w, machine)
    if not serves:
        return _LONGEST_GRACE
    gap = at(w, c.N_PRIORITY, need) - priority
    if gap > _FAR_BELOW:
        return _GRACE_FAR_BELOW
    if gap > _WELL_BELOW:
        return _GRACE_WELL_BELOW
    if gap > _BELOW:
        return _GRACE_BELOW
    return _LONGEST_GRACE


@walk
def take_victim(w: Work, need: int, machine: int) -> None:
    """Preempt the machine for the need, unless there is no room for one acquisition more."""
    if w.h[c.ACTIONS] >= w.h[c.LEN_ACTIONS]:
        w.h[c.OVERFLOW] = c.LEN_ACTIONS
        return
    serves, priority, _, _, _ = standing(w, machine)
    grace = grace_of(w, need, machine)
    evict(w, machine)
    bind(w, need, machine, PREEMPT, grace, priority if serves else LARGE)


@walk
def preempt(w: Work, need: int, domain: int) -> None:
    """Preempt victim after victim until the need lacks nothing or no victim is left."""
    while at(w, c.N_MISSING, need) > 0:
        machine = best_victim(w, need, domain)
        if machine == NONE:
            return
        take_victim(w, need, machine)
        if w.h[c.OVERFLOW]:
            return
        if at(w, c.N_DIVISIBLE, need):
            if not take_divisible(w, need, machine):
                return
        else:
            take(w, need, machine, min(fitting_units(w, need, machine), at(w, c.N_MISSING, need)))
