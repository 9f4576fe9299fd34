"""Section 5 and the spread half of section 6: credit, then acquire, for one need at a time."""

from collections.abc import Callable
from fractions import Fraction

from tests.engine.oracle.picture import Picture
from tests.engine.oracle.rows import Row
from tests.engine.oracle.world import PINNED, Kind, Machine, Spread, State

Tiers = list[list[Machine]]
Pool = Callable[[Picture, Row], Tiers]
"""Candidates of a row, in tiers: all of an earlier tier before any of a later one. Within a tier, best first."""

Domain = tuple[str, ...] | None
Binder = Callable[[Picture, Row, Machine], None]

INFINITE = (1, Fraction(0))

STATES: dict[State, int | None] = {
    State.IDLE: 0,
    State.DRAINING: 0,
    State.CREATING: 0,
    State.SPECULATIVE: 1,
    State.DELETING: 1,
    State.CONFIGURING: None,
    State.CONFIGURED: None,
    State.FAILED: None,
}


def half_dollars(bucket: int) -> int:
    """A bucket's upper bound in half dollars: 0, 1, 2, 4, 8 ..."""
    return 0 if bucket == 0 else 2 ** (bucket - 1)


# Credit


class Skew:
    """Section 6: how far each domain of each hard spread constraint of a row is filled."""

    def __init__(self, picture: Picture, row: Row, inside: Domain) -> None:
        facts = picture.facts
        self._labels = facts.labels
        self._constraints: list[tuple[Spread, dict[str, int]]] = []
        eligible = [m for m in facts.eligible(row) if inside is None or facts.domain(row, m) == inside]
        for spread in row.hard_spread:
            # "the domains are those in which the shard has an eligible machine in any state but Failed";
            # "A gang with a spread counts [...] over the values inside its domain".
            counts = {facts.labels[m.id][spread.key]: 0 for m in eligible}
            for name, take in picture.takes[row.index].items():
                counts[facts.labels[name][spread.key]] += take.units
            self._constraints.append((spread, counts))

    def allows(self, machine: Machine) -> bool:
        """The machine's domain "may take one more" and all "stay within max_skew of each other"."""
        return all(
            counts[self._labels[machine.id][spread.key]] + 1 - min(counts.values()) <= spread.max_skew
            for spread, counts in self._constraints
        )

    def add(self, machine: Machine) -> None:
        """One unit more in the machine's domain."""
        for spread, counts in self._constraints:
            counts[self._labels[machine.id][spread.key]] += 1

    def level(self, machine: Machine) -> tuple[int, ...]:
        """How full the machine's domain is, per constraint: "the smallest domain first"."""
        return tuple(counts[self._labels[machine.id][spread.key]] for spread, counts in self._constraints)


def credit(picture: Picture, row: Row, order: list[Machine], inside: Domain = None) -> None:
    """Section 5: the row takes from these machines, bound to its cluster, in this order, until it is covered."""
    eligible = {m.id for m in picture.facts.eligible(row)}
    usable = [m for m in order if m.id in eligible and (inside is None or picture.facts.domain(row, m) == inside)]
    if row.divisible:
        for machine in usable:
            picture.take_divisible(row, machine)
    elif row.hard_spread:
        credit_unit_by_unit(picture, row, usable, Skew(picture, row, inside))
    else:
        for machine in usable:
            units = min(picture.fits(row, machine), picture.missing_units(row))
            if units > 0:
                picture.take(row, machine, units)


def credit_unit_by_unit(picture: Picture, row: Row, order: list[Machine], skew: Skew) -> None:
    """Section 6: "credit takes, unit by unit, the first machine in the order whose domain may take one more"."""
    while picture.missing_units(row) > 0:
        first = next((m for m in order if skew.allows(m) and picture.fits(row, m) > 0), None)
        if first is None:
            return
        picture.take(row, first, 1)
        skew.add(first)


def walk(picture: Picture, row: Row) -> list[Machine]:
    """Section 5: plain needs walk in binding order; "a gang its own first, then in binding order"."""
    order = picture.binding_order(row.need.cluster)
    if not row.same_keys:
        return order
    return sorted(order, key=lambda m: not picture.is_own(row, m))


# Acquire


def free_pool(picture: Picture, row: Row) -> Tiers:
    """Section 5: the candidates of phase 1 in one tier, best first; none for demand that may not act."""
    facts = picture.facts
    if not facts.may_act(row):
        return [[]]
    candidates = [m for m in facts.eligible(row) if is_free(picture, m)]
    return [sorted(candidates, key=lambda m: preference(picture, row, m))]


def is_free(picture: Picture, machine: Machine) -> bool:
    """Bound to nobody, in a state that ends in Idle or Speculative, and not held out."""
    ranked = rank_of_state(picture, machine) is not None
    return machine.id not in picture.bound and ranked and not picture.facts.held_out(machine)


def rank_of_state(picture: Picture, machine: Machine) -> int | None:
    """Section 5: "Idle before Speculative"; what is on its way to one of them ranks with it (ADR 9.1).

    The sentence goes on "before what drains for nobody or is being deleted", which lets a drain's latency choose
    between a Speculative machine and the drained one, and so breaks law 2.
    """
    return STATES[State.DRAINING if machine.id in picture.given_back else machine.state]


def preference(picture: Picture, row: Row, machine: Machine) -> tuple[object, ...]:
    """Section 5: the order among candidates.

    PINNED takes interruption_probability 0 before any other. Then Idle, Speculative, draining; then the lowest
    effective_cost / share; ScheduleAnyway breaks ties (section 6); then the last reclamation bucket, price, id.
    """
    return (
        row.pinned and machine.interruption_probability > 0,
        rank_of_state(picture, machine),
        cost_by_share(picture, row, machine),
        soft_level(picture, row, machine),
        machine.stamp.reclamation if machine.stamp else 0,
        machine.price,
        machine.id,
    )


def cost_by_share(picture: Picture, row: Row, machine: Machine) -> tuple[int, Fraction]:
    """Section 5: effective_cost / share, `share = min(1, k / missing units)`; infinity sorts last."""
    share = share_of(picture, row, machine)
    if share == 0 or (row.need.interruption == PINNED and machine.interruption_probability > 0):
        return INFINITE
    cost = 2 * machine.price
    if row.need.interruption != PINNED:
        cost += machine.interruption_probability * half_dollars(row.need.interruption)
    return (0, Fraction(cost) / share)


def share_of(picture: Picture, row: Row, machine: Machine) -> Fraction:
    """Section 5: the part of the gap that the machine closes; divisible: "the smallest share over the missing".

    A candidate comes fresh, whoever was on it before.
    """
    if not row.divisible:
        return min(Fraction(1), Fraction(picture.facts.worth_fresh(row, machine), picture.missing_units(row)))
    fresh = picture.facts.fresh(row.need.cluster, machine)
    return min(min(Fraction(1), Fraction(fresh.get(name, 0), gap)) for name, gap in picture.missing(row).items())


def soft_level(picture: Picture, row: Row, machine: Machine) -> tuple[int, ...]:
    """Section 6: "ScheduleAnyway is a preference: used to break ties": the emptier domain; no label sorts last."""
    labels = picture.facts.labels
    levels = []
    for spread in row.need.spread:
        if spread.hard:
            continue
        value = labels[machine.id].get(spread.key)
        there = [take.units for name, take in picture.takes[row.index].items() if labels[name].get(spread.key) == value]
        levels.append(sum(there) if value is not None else row.asked + 1)
    return tuple(levels)


def bind_free(picture: Picture, row: Row, machine: Machine) -> None:
    """Section 5: "Idle → action Bootstrap; Speculative → action Provision"; what still drains or is deleted waits."""
    deleted = machine.state in (State.SPECULATIVE, State.DELETING) and machine.id not in picture.given_back
    kind = Kind.PROVISION if deleted else Kind.BOOTSTRAP
    picture.bind(row, machine, kind, 0, f"{row.key.cluster} needs {row.key.unit or 'more'}")


def acquire(picture: Picture, row: Row, pool: Pool, bind: Binder, inside: Domain = None) -> None:
    """Section 5: "For what is still missing", one machine at a time, "recomputed as the gap closes"."""
    while not picture.met(row):
        machine = next_candidate(picture, row, pool(picture, row), bind, inside)
        if machine is None:
            return
        bind_and_take(picture, row, machine, bind, inside)


def next_candidate(picture: Picture, row: Row, tiers: Tiers, bind: Binder, inside: Domain) -> Machine | None:
    """The best candidate that counts; with a spread "the smallest domain first" in each tier."""
    for tier in tiers:
        here = [m for m in tier if inside is None or picture.facts.domain(row, m) == inside]
        if row.hard_spread:
            skew = Skew(picture, row, inside)
            here = sorted((m for m in here if skew.allows(m)), key=skew.level)
        for machine in here:
            if counts_for_something(picture, row, machine, bind, inside):
                return machine
    return None


def counts_for_something(picture: Picture, row: Row, machine: Machine, bind: Binder, inside: Domain) -> bool:
    """Section 5: a divisible row needs something free in a missing dimension. Section 6: "Capacity counts, bound or
    bought, only as far as the domains stay within max_skew". For any other row one unit fits, so it counts.
    """
    if row.divisible:
        fresh = picture.facts.fresh(row.need.cluster, machine)
        return any(fresh.get(name, 0) > 0 for name in picture.missing(row))
    if not row.hard_spread:
        return True
    trial = picture.copy()
    bind_and_take(trial, row, machine, bind, inside)
    return trial.missing_units(row) < picture.missing_units(row)


def bind_and_take(picture: Picture, row: Row, machine: Machine, bind: Binder, inside: Domain) -> None:
    """Bind the machine and take from it; with a spread, section 6: "trying credit again after each purchase"."""
    bind(picture, row, machine)
    if row.divisible:
        picture.take_divisible(row, machine)
    elif row.hard_spread:
        picture.untake(row)
        credit(picture, row, walk(picture, row), inside)
    else:
        # A victim's takes are gone once it is bound, so what fits now is what the fresh machine holds.
        picture.take(row, machine, min(picture.fits(row, machine), picture.missing_units(row)))
