"""Lists of machines that needs walk along. Compiled.

A linked list has a head and a tail by owner and a next by machine, each a column. A cluster has two: all its machines,
and those with room, both in binding order. In phase 1 machines with room are also listed in the arena, once for each
requirement list (ADMITTED_), with a bit for each machine and each kind of need (FITTING_) that says whether it may fit.
"""

from typing import cast

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, at, put, room_in_arena
from bigfleet.engine.heap.values import NONE
from bigfleet.engine.jit import step, walk
from bigfleet.engine.walks.capacity import admits

# A cell of the arena holds 32 bits, so that its sign stays clear: a bit's cell, and its place in that.
_SHIFT, _REST = cast("int", np.int64(5)), cast("int", np.int64(31))
_FEW = 16
"""So many machines may be passed one by one before it is worth listing them again."""


@walk
def append(w: Work, heads: int, tails: int, nexts: int, owner: int, machine: int) -> None:
    """Put a machine last on its owner's list; the columns say which list."""
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
def list_all_with_room(w: Work, cluster: int) -> None:
    """Put every machine of the cluster on the list of those with room, and begin an epoch."""
    put(w, c.C_ROOM_HEAD, cluster, at(w, c.C_ALL_HEAD, cluster))
    put(w, c.C_ROOM_TAIL, cluster, at(w, c.C_ALL_TAIL, cluster))
    add(w, c.C_EPOCH, cluster, 1)
    machine = at(w, c.C_ALL_HEAD, cluster)
    while machine >= 0:
        put(w, c.M_ROOM_NEXT, machine, at(w, c.M_ALL_NEXT, machine))
        machine = at(w, c.M_ALL_NEXT, machine)


@step
def next_with_room(w: Work, cluster: int, before: int) -> int:
    """The machine behind `before` on the cluster's list of machines with room, the first for NONE; NONE at the end.

    Machines that are full are taken off on the way. The last machine stays even if it is full: what is bound next is
    appended to it, and must be reachable from every machine that ever was on the list.
    """
    machine = at(w, c.C_ROOM_HEAD, cluster) if before == NONE else at(w, c.M_ROOM_NEXT, before)
    first = machine
    while machine != NONE and at(w, c.M_FULL, machine) and at(w, c.M_ROOM_NEXT, machine) != NONE:
        machine = at(w, c.M_ROOM_NEXT, machine)
    if machine != first:
        if before == NONE:
            put(w, c.C_ROOM_HEAD, cluster, machine)
        else:
            put(w, c.M_ROOM_NEXT, before, machine)
    return machine


@walk
def machines_with_room(w: Work, need: int) -> tuple[int, int, int, int]:
    """The cluster's machines that may have room for the need: (place in the arena, how many, place of bits, last).

    The need's requirements admit all of them; a clear bit says that a machine has no room. Within an epoch room only
    shrinks, so a machine that is too full for one need is too full for the next of its kind. Machines that were bound
    later are not listed: they follow behind `last` on the linked list. After phase 1 the answer is an empty list,
    because each need served again begins an epoch.
    """
    if not w.h[c.LISTS_IN_USE]:
        return 0, 0, 0, NONE
    admitted, fitting = at(w, c.N_ADMITTED, need), at(w, c.N_FITTING, need)
    epoch = at(w, c.C_EPOCH, at(w, c.N_CLUSTER, need))
    if at(w, c.ADMITTED_EPOCH, admitted) != epoch:
        put(w, c.ADMITTED_EPOCH, admitted, epoch)
        _list_admitted(w, need, admitted)
    start, to = at(w, c.ADMITTED_FROM, admitted), at(w, c.ADMITTED_TO, admitted)
    bits = to
    if fitting != NONE:
        if at(w, c.FITTING_EPOCH, fitting) != epoch or at(w, c.FITTING_FROM, fitting) != start:
            put(w, c.FITTING_EPOCH, fitting, epoch)
            put(w, c.FITTING_FROM, fitting, start)
            _copy_bits(w, to, _words(to - start), fitting)
        bits = at(w, c.FITTING_BITS, fitting)
    if w.h[c.OVERFLOW]:
        return 0, 0, 0, NONE
    return start, to - start, bits, at(w, c.ADMITTED_LAST, admitted)


@step
def next_set_bit(w: Work, bits: int, i: int, count: int) -> int:
    """The first place from `i` on whose bit is set; `count` or more if there is none."""
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
def strike_off(w: Work, need: int, i: int) -> None:
    """Clear the bit of the i-th machine for the need's kind; for all kinds to come as well if the machine is full.

    A need that asks for no units clears nothing: to it no machine seems to have room.
    """
    fitting = at(w, c.N_FITTING, need)
    if fitting == NONE or at(w, c.N_ASKED, need) == 0:
        return
    _clear_bit(w, at(w, c.FITTING_BITS, fitting), i)
    admitted = at(w, c.N_ADMITTED, need)
    if at(w, c.M_FULL, at(w, c.T_ARENA, at(w, c.ADMITTED_FROM, admitted) + i)):
        _clear_bit(w, at(w, c.ADMITTED_TO, admitted), i)


@walk
def relist_if_long(w: Work, need: int, passed: int) -> None:
    """Have the machines listed again if `passed`, the number of those bound since, is large beside the list."""
    admitted = at(w, c.N_ADMITTED, need)
    listed = at(w, c.ADMITTED_TO, admitted) - at(w, c.ADMITTED_FROM, admitted)
    if w.h[c.LISTS_IN_USE] and passed > _FEW + listed // 4:
        put(w, c.ADMITTED_EPOCH, admitted, NONE)


@walk
def _list_admitted(w: Work, need: int, admitted: int) -> None:
    """List the machines of the need's cluster that its requirements admit, with a set bit for each."""
    cluster, last = at(w, c.N_CLUSTER, need), NONE
    start = to = w.h[c.ARENA_END]
    machine = next_with_room(w, cluster, last)
    while machine != NONE:
        if at(w, c.M_BOUND, machine) == cluster and admits(w, need, at(w, c.M_SHAPE, machine)):
            if to >= w.h[c.LEN_ARENA]:
                w.h[c.OVERFLOW] = c.LEN_ARENA
                break
            put(w, c.T_ARENA, to, machine)
            to += 1
        last = machine
        machine = next_with_room(w, cluster, last)
    w.h[c.ARENA_END] = to
    put(w, c.ADMITTED_FROM, admitted, start)
    put(w, c.ADMITTED_TO, admitted, to)
    put(w, c.ADMITTED_LAST, admitted, last)
    words = _words(to - start)
    bits = room_in_arena(w, words)
    if not w.h[c.OVERFLOW]:
        for i in range(words):
            put(w, c.T_ARENA, bits + i, (1 << min(_REST + 1, to - start - (i << _SHIFT))) - 1)


@walk
def _copy_bits(w: Work, bits: int, words: int, fitting: int) -> None:
    """Give one kind of need bits of its own, as a copy of these."""
    copy = room_in_arena(w, words)
    put(w, c.FITTING_BITS, fitting, copy)
    if not w.h[c.OVERFLOW]:
        for i in range(words):
            put(w, c.T_ARENA, copy + i, at(w, c.T_ARENA, bits + i))


@step
def _words(count: int) -> int:
    """Cells for so many bits. At least one, so that no two lists begin at the same place."""
    return (count >> _SHIFT) + 1


@walk
def _clear_bit(w: Work, bits: int, i: int) -> None:
    """Clear the i-th of the bits that begin at this place of the arena."""
    cell = bits + (i >> _SHIFT)
    put(w, c.T_ARENA, cell, at(w, c.T_ARENA, cell) & ~(1 << (i & _REST)))
