"""The whole fleet: whether it could hold a need at all, which tells why a need is unmet. Compiled.

The fleet is taken as if it were empty and all of it the need's own, without machines that are Failed.
"""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Work, at, domain_at, fill, put
from bigfleet.engine.heap.values import NONE
from bigfleet.engine.jit import entry, walk
from bigfleet.engine.walks.capacity import admits, fresh_units, is_eligible
from bigfleet.engine.walks.spread.levels import count_domains, empty_levels
from bigfleet.engine.walks.spread.offers import add_offer, place_on_first, release_offers, reserve_offers, sort_offers
from bigfleet.engine.walks.spread.seats import seat


@entry
def fleet_units(w: Work, need: int) -> int:
    """Units of the need that all untouched machines in any state but Failed would hold; below 0 if none is eligible."""
    units, some = 0, False
    for shape in range(w.h[c.LEN_SHAPES]):
        if at(w, c.SHAPE_COUNT, shape) and is_eligible(w, need, shape):
            some = True
            if not at(w, c.N_DIVISIBLE, need):
                units += at(w, c.SHAPE_COUNT, shape) * fresh_units(w, need, shape)
    return units if some else -1


@entry
def one_domain_could_hold(w: Work, need: int) -> bool:
    """Whether some domain would hold the gang if the whole fleet were empty and all its own."""
    topology, most = at(w, c.N_TOPOLOGY, need), 0
    for shape in range(w.h[c.LEN_SHAPES]):
        domain = domain_at(w, topology, shape)
        if domain != NONE and at(w, c.SHAPE_COUNT, shape) and admits(w, need, shape):
            units = at(w, c.D_POOL, domain) + at(w, c.SHAPE_COUNT, shape) * fresh_units(w, need, shape)
            put(w, c.D_POOL, domain, units)
            most = max(most, units)
    fill(w, c.D_POOL, at(w, c.T_DOMAIN_COUNT, topology), 0)
    return most >= at(w, c.N_ASKED, need)


@entry
def fleet_could_hold(w: Work, need: int, machines: Array) -> bool:
    """Whether the fleet would hold the spread row within the skew if it were empty and all the row's own.

    All machines are given, sorted by shape, then by id.
    """
    topology = at(w, c.N_TOPOLOGY, need)
    if topology < 0:
        return _domain_could_hold(w, need, NONE, machines)
    for domain in range(at(w, c.T_DOMAIN_COUNT, topology)):
        if _domain_could_hold(w, need, domain, machines):
            return True
    return False


@walk
def _domain_could_hold(w: Work, need: int, domain: int, machines: Array) -> bool:
    """Whether one domain, or all of the fleet for NONE, would hold the row: its units are placed one by one."""
    topology, asked, seats, total = at(w, c.N_TOPOLOGY, need), at(w, c.N_ASKED, need), 0, 0
    count_domains(w, need, domain)
    empty_levels(w)
    reserve_offers(w, need, w.h[c.LEN_SHAPES])
    last, units = NONE, 0
    for i in range(machines.shape[0]):
        shape = at(w, c.M_SHAPE, machines[i])
        if shape != last:
            last, units = shape, 0
            if is_eligible(w, need, shape) and (topology < 0 or domain_at(w, topology, shape) == domain):
                units = fresh_units(w, need, shape)
                add_offer(w, need, NONE, seats, units, shape)
        if units > 0:
            seats = seat(w, seats, machines[i], units, NONE)
            total += units
    sort_offers(w, need)
    placed = 0
    while total >= asked and placed < asked and place_on_first(w, need, seats):
        placed += 1
    release_offers(w)
    return placed == asked
