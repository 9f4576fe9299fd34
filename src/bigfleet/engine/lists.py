"""Lists of machines: how they change, and those of a cluster that may have room, for a need to walk along. Compiled."""

from bigfleet.engine.compiled import step, walk
from bigfleet.engine.heap import at, put
from bigfleet.engine.work import (
    ARENA,
    C_ALL_HEAD,
    C_ALL_TAIL,
    C_EPOCH,
    C_LIVE_HEAD,
    C_LIVE_TAIL,
    LEN_ARENA,
    LISTING,
    M_ALL_NEXT,
    M_BOUND,
    M_FULL,
    M_LIVE_NEXT,
    M_SHAPE,
    N_CLUSTER,
    N_DESK,
    N_WALK,
    NONE,
    OVERFLOW,
    R_EPOCH,
    R_FROM,
    R_LAST,
    R_TO,
    T_ARENA,
    W_EPOCH,
    W_FROM,
    W_LAST,
    W_TIMES,
    W_TO,
    Work,
)
from bigfleet.engine.worth import admits, fitting_units


@walk
def append(w: Work, heads: int, tails: int, nexts: int, owner: int, machine: int) -> None:
    """Put a machine last on its owner's list, which is known by its columns."""
    put(w, nexts, machine, NONE)
    last = at(w, tails, owner)
    if last == NONE:
        put(w, heads, owner, machine)
    else:
        put(w, nexts, last, machine)
    put(w, tails, owner, machine)


@walk
def leave(w: Work, heads: int, tails: int, nexts: int, owner: int, machine: int) -> None:
    """Take a machine off its owner's list, on which it must be."""
    before, place = NONE, at(w, heads, owner)
    while place != machine:
        before, place = place, at(w, nexts, place)
    if before == NONE:
        put(w, heads, owner, at(w, nexts, machine))
    else:
        put(w, nexts, before, at(w, nexts, machine))
    if at(w, tails, owner) == machine:
        put(w, tails, owner, before)


@walk
def relink(w: Work, cluster: int) -> None:
    """Put every machine of the cluster back on the list of those with room."""
    put(w, C_LIVE_HEAD, cluster, at(w, C_ALL_HEAD, cluster))
    put(w, C_LIVE_TAIL, cluster, at(w, C_ALL_TAIL, cluster))
    put(w, C_EPOCH, cluster, at(w, C_EPOCH, cluster) + 1)
    machine = at(w, C_ALL_HEAD, cluster)
    while machine >= 0:
        put(w, M_LIVE_NEXT, machine, at(w, M_ALL_NEXT, machine))
        machine = at(w, M_ALL_NEXT, machine)


@step
def after(w: Work, cluster: int, before: int) -> int:
    """The machine that follows on a cluster's list of those with room, leaving off those without; NONE at its end.

    The last stays on the list, so that what is bound next can be reached from every machine that ever was on it.
    """
    machine = at(w, C_LIVE_HEAD, cluster) if before == NONE else at(w, M_LIVE_NEXT, before)
    first = machine
    while machine != NONE and at(w, M_FULL, machine) and at(w, M_LIVE_NEXT, machine) != NONE:
        machine = at(w, M_LIVE_NEXT, machine)
    if machine != first:
        if before == NONE:
            put(w, C_LIVE_HEAD, cluster, machine)
        else:
            put(w, M_LIVE_NEXT, before, machine)
    return machine


@walk
def listed(w: Work, need: int) -> tuple[int, int, int, bool]:
    """Where in the arena the machines that may have room stand: (from, to, last looked at, whether its kind's own).

    Room only shrinks until a list is linked anew, so what is too full for one need is so for the next of its kind. What
    was bound later follows the last one looked at. After phase 1 nothing is listed: lists are linked anew all the time.
    """
    if not w.h[LISTING]:
        return 0, 0, NONE, False
    walk_of, epoch = at(w, N_WALK, need), at(w, C_EPOCH, at(w, N_CLUSTER, need))
    if walk_of != NONE and at(w, W_EPOCH, walk_of) == epoch:
        if at(w, W_TIMES, walk_of) == 1:
            put(w, W_TIMES, walk_of, 2)
            _list_with_room(w, need, at(w, N_DESK, need), walk_of)
        return at(w, W_FROM, walk_of), at(w, W_TO, walk_of), at(w, W_LAST, walk_of), True
    if walk_of != NONE:
        put(w, W_EPOCH, walk_of, epoch)
        put(w, W_TIMES, walk_of, 1)
    desk = at(w, N_DESK, need)
    if at(w, R_EPOCH, desk) != epoch:
        put(w, R_EPOCH, desk, epoch)
        _list_admitted(w, need, desk)
    return at(w, R_FROM, desk), at(w, R_TO, desk), at(w, R_LAST, desk), False


@walk
def _list(w: Work, to: int, machine: int) -> int:
    if to >= w.h[LEN_ARENA]:
        w.h[OVERFLOW] = LEN_ARENA
        return to
    put(w, T_ARENA, to, machine)
    return to + 1


@walk
def _list_admitted(w: Work, need: int, desk: int) -> None:
    """List the machines of the need's cluster that its requirements admit."""
    cluster, to, last = at(w, N_CLUSTER, need), w.h[ARENA], NONE
    put(w, R_FROM, desk, to)
    machine = after(w, cluster, last)
    while machine != NONE:
        if at(w, M_BOUND, machine) == cluster and admits(w, need, at(w, M_SHAPE, machine)):
            to = _list(w, to, machine)
        last = machine
        machine = after(w, cluster, last)
    w.h[ARENA] = to
    put(w, R_TO, desk, to)
    put(w, R_LAST, desk, last)


@walk
def _list_with_room(w: Work, need: int, desk: int, walk_of: int) -> None:
    """List those of them that have room for a unit."""
    cluster, to, last = at(w, N_CLUSTER, need), w.h[ARENA], at(w, R_LAST, desk)
    put(w, W_FROM, walk_of, to)
    for i in range(at(w, R_FROM, desk), at(w, R_TO, desk)):
        if fitting_units(w, need, at(w, T_ARENA, i)) > 0:
            to = _list(w, to, at(w, T_ARENA, i))
    machine = after(w, cluster, last)
    while machine != NONE:
        if admits(w, need, at(w, M_SHAPE, machine)) and fitting_units(w, need, machine) > 0:
            to = _list(w, to, machine)
        last = machine
        machine = after(w, cluster, last)
    w.h[ARENA] = to
    put(w, W_TO, walk_of, to)
    put(w, W_LAST, walk_of, last)


@walk
def strike(w: Work, need: int, i: int) -> None:
    """Leave a machine that has no room any more off its kind's own list."""
    walk_of = at(w, N_WALK, need)
    put(w, T_ARENA, i, NONE)
    if i == at(w, W_FROM, walk_of):
        put(w, W_FROM, walk_of, i + 1)
