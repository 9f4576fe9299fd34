"""Lists of machines: how they change, and those of a cluster that may have room, for a need to walk along. Compiled."""

from typing import cast

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, at, put, room_in_arena
from bigfleet.engine.heap.values import NONE
from bigfleet.engine.jit import step, walk
from bigfleet.engine.walks.capacity import admits

# Bits in a cell of the arena, whose sign stays clear.
_SHIFT, _REST = cast("int", np.int64(5)), cast("int", np.int64(31))
# Machines that may be passed one by one before it is worth listing them.
_FEW = 16


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
    put(w, c.C_LIVE_HEAD, cluster, at(w, c.C_ALL_HEAD, cluster))
    put(w, c.C_LIVE_TAIL, cluster, at(w, c.C_ALL_TAIL, cluster))
    add(w, c.C_EPOCH, cluster, 1)
    machine = at(w, c.C_ALL_HEAD, cluster)
    while machine >= 0:
        put(w, c.M_LIVE_NEXT, machine, at(w, c.M_ALL_NEXT, machine))
        machine = at(w, c.M_ALL_NEXT, machine)


@step
def after(w: Work, cluster: int, before: int) -> int:
    """The machine that follows on a cluster's list of those with room, leaving off those without; NONE at its end.

    The last stays on the list, so that what is bound next can be reached from every machine that ever was on it.
    """
    machine = at(w, c.C_LIVE_HEAD, cluster) if before == NONE else at(w, c.M_LIVE_NEXT, before)
    first = machine
    while machine != NONE and at(w, c.M_FULL, machine) and at(w, c.M_LIVE_NEXT, machine) != NONE:
        machine = at(w, c.M_LIVE_NEXT, machine)
    if machine != first:
        if before == NONE:
            put(w, c.C_LIVE_HEAD, cluster, machine)
        else:
            put(w, c.M_LIVE_NEXT, before, machine)
    return machine


@walk
def listed(w: Work, need: int) -> tuple[int, int, int, int]:
    """Where in the arena the machines that may have room stand: (from, how many, their bits, last looked at).

    They are those that the need's requirements admit; a bit that is not set says that one has no room. Room shrinks
    until a list is linked anew, so what is too full for one need is so for the next of its kind. What was bound later
    follows the last one looked at. After phase 1 nothing is listed: lists are linked anew all the time.
    """
    if not w.h[c.LISTING]:
        return 0, 0, 0, NONE
    desk, walk_of, epoch = at(w, c.N_DESK, need), at(w, c.N_WALK, need), at(w, c.C_EPOCH, at(w, c.N_CLUSTER, need))
    if at(w, c.R_EPOCH, desk) != epoch:
        put(w, c.R_EPOCH, desk, epoch)
        _list_admitted(w, need, desk)
    start, to = at(w, c.R_FROM, desk), at(w, c.R_TO, desk)
    bits = to
    if walk_of != NONE:
        if at(w, c.W_EPOCH, walk_of) != epoch or at(w, c.W_DESK, walk_of) != start:
            put(w, c.W_EPOCH, walk_of, epoch)
            put(w, c.W_DESK, walk_of, start)
            _copy_bits(w, to, _words(to - start), walk_of)
        bits = at(w, c.W_BITS, walk_of)
    if w.h[c.OVERFLOW]:
        return 0, 0, 0, NONE
    return start, to - start, bits, at(w, c.R_LAST, desk)


@step
def following(w: Work, bits: int, i: int, count: int) -> int:
    """The first place from this one on whose bit is set; the count or more if there is none."""
    left = 0
    while i < count and not left:
        left = at(w, c.T_ARENA, bits + (i >> _SHIFT)) >> (i & _REST)
        if not left:
            i = (i | _REST) + 1
    while left and not left & 1:
        left >>= 1
        i += 1
    return i


@walk
def strike(w: Work, need: int, i: int) -> None:
    """Leave a machine that has no room any more off its kind's list; one that has none for anybody, off all to come.

    To a row that asks for nothing no machine seems to have room.
    """
    walk_of = at(w, c.N_WALK, need)
    if walk_of == NONE or at(w, c.N_ASKED, need) == 0:
        return
    _clear_bit(w, at(w, c.W_BITS, walk_of), i)
    desk = at(w, c.N_DESK, need)
    if at(w, c.M_FULL, at(w, c.T_ARENA, at(w, c.R_FROM, desk) + i)):
        _clear_bit(w, at(w, c.R_TO, desk), i)


@walk
def list_anew(w: Work, need: int, passed: int) -> None:
    """Have the machines listed again if so many, bound since they were, had to be passed one by one."""
    desk = at(w, c.N_DESK, need)
    if w.h[c.LISTING] and passed > _FEW + ((at(w, c.R_TO, desk) - at(w, c.R_FROM, desk)) >> 2):
        put(w, c.R_EPOCH, desk, NONE)


@walk
def _list_admitted(w: Work, need: int, desk: int) -> None:
    """List the machines of the need's cluster that its requirements admit, and a set bit for each."""
    cluster, last = at(w, c.N_CLUSTER, need), NONE
    start = to = w.h[c.ARENA]
    machine = after(w, cluster, last)
    while machine != NONE:
        if at(w, c.M_BOUND, machine) == cluster and admits(w, need, at(w, c.M_SHAPE, machine)):
            if to >= w.h[c.LEN_ARENA]:
                w.h[c.OVERFLOW] = c.LEN_ARENA
                break
            put(w, c.T_ARENA, to, machine)
            to += 1
        last = machine
        machine = after(w, cluster, last)
    w.h[c.ARENA] = to
    put(w, c.R_FROM, desk, start)
    put(w, c.R_TO, desk, to)
    put(w, c.R_LAST, desk, last)
    words = _words(to - start)
    bits = room_in_arena(w, words)
    if not w.h[c.OVERFLOW]:
        for i in range(words):
            put(w, c.T_ARENA, bits + i, (1 << min(_REST + 1, to - start - (i << _SHIFT))) - 1)


@walk
def _copy_bits(w: Work, bits: int, words: int, walk_of: int) -> None:
    """Give one kind of need bits of its own, that begin as these."""
    copy = room_in_arena(w, words)
    put(w, c.W_BITS, walk_of, copy)
    if not w.h[c.OVERFLOW]:
        for i in range(words):
            put(w, c.T_ARENA, copy + i, at(w, c.T_ARENA, bits + i))


@step
def _words(count: int) -> int:
    """Cells for so many bits; never none, so that no two lists begin at one place."""
    return (count >> _SHIFT) + 1


@walk
def _clear_bit(w: Work, bits: int, i: int) -> None:
    cell = bits + (i >> _SHIFT)
    put(w, c.T_ARENA, cell, at(w, c.T_ARENA, cell) & ~(1 << (i & _REST)))
