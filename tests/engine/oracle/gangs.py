"""The gang half of section 6: one domain per gang, and serving any row the ordinary way."""

from dataclasses import dataclass

from tests.engine.oracle.picture import Picture
from tests.engine.oracle.rows import Row
from tests.engine.oracle.serve import Binder, Pool, acquire, bind_free, credit, free_pool, walk

NEVER = 2**63
"""Newer than any binding number: what a purchase counts as."""


@dataclass(frozen=True)
class Prospect:
    """What a gang would get in one domain."""

    domain: tuple[str, ...]
    covers: bool
    bound_units: int
    newest: int
    own_units: int
    total: int

    @property
    def rank(self) -> tuple[object, ...]:
        """Section 6: "Rank domains by" ... lowest first."""
        return (
            not self.covers,  # "can cover the whole gang before cannot"
            -self.bound_units,  # "more of it covered by machines bound to its cluster"
            self.newest,  # "the newest binding among the machines it would take, [...] oldest first"
            -self.own_units,  # "more of its own"
            self.total,  # "smaller total over all matching machines in any state but Failed"
            tuple(value.encode() for value in self.domain),  # "value, bytewise"
        )


def serve(picture: Picture, row: Row) -> None:
    """Section 5: "credit, then acquire", phase 1."""
    if row.same_keys:
        serve_gang(picture, row, free_pool, bind_free)
    else:
        credit(picture, row, walk(picture, row))
        acquire(picture, row, free_pool, bind_free)


def credit_only(picture: Picture, row: Row) -> None:
    """What a row takes before it acquires: the ordinary order, a gang in the domain it would choose now."""
    if not row.same_keys:
        credit(picture, row, walk(picture, row))
        return
    best = best_domain(picture, row, free_pool, bind_free)
    if best is not None and best.covers:
        picture.domains[row.index] = best.domain
        picture.satisfiable[row.index] = True
        credit(picture, row, walk(picture, row), best.domain)
    else:
        keep_own(picture, row)


def serve_gang(picture: Picture, row: Row, pool: Pool, bind: Binder) -> None:
    """Section 6: a gang "picks one domain per cycle, and both credit and acquisition stay inside it"."""
    best = best_domain(picture, row, pool, bind)
    if best is None or not best.covers:
        keep_own(picture, row)
        return
    picture.domains[row.index] = best.domain
    picture.satisfiable[row.index] = True
    fill(picture, row, pool, bind, best.domain)


def fill(picture: Picture, row: Row, pool: Pool, bind: Binder, domain: tuple[str, ...]) -> None:
    """Credit, acquire; section 5: "A gang that acquired is credited anew, its new machines among its own"."""
    credit(picture, row, walk(picture, row), domain)
    before = picture.actions
    acquire(picture, row, pool, bind, domain)
    if picture.actions != before:
        picture.untake(row)
        credit(picture, row, walk(picture, row), domain)


def domains_of(picture: Picture, row: Row) -> list[tuple[str, ...]]:
    """The domains in which the shard has an eligible machine in any state but Failed."""
    return sorted({picture.facts.domain(row, m) for m in picture.facts.eligible(row)})


def best_domain(picture: Picture, row: Row, pool: Pool, bind: Binder) -> Prospect | None:
    """The first domain in the ranking."""
    prospects = [prospect(picture, row, pool, bind, domain) for domain in domains_of(picture, row)]
    return min(prospects, key=lambda p: p.rank, default=None)


def prospect(picture: Picture, row: Row, pool: Pool, bind: Binder, domain: tuple[str, ...]) -> Prospect:
    """Try the domain in a copy of the picture."""
    facts = picture.facts
    trial = picture.copy()
    credit(trial, row, walk(trial, row), domain)
    taken = dict(trial.takes[row.index])
    own = {name for name in taken if trial.is_own(row, facts.machines[name])}
    bound_units = row.asked - trial.missing_units(row)
    before = trial.actions
    acquire(trial, row, pool, bind, domain)
    bought = trial.actions != before
    ages = [0 if name in own else trial.bound[name].number for name in taken]
    return Prospect(
        domain=domain,
        covers=trial.met(row),
        bound_units=bound_units,
        newest=NEVER if bought else max(ages, default=0),
        own_units=sum(taken[name].units for name in own),
        total=sum(facts.worth_fresh(row, m) for m in facts.eligible(row) if facts.domain(row, m) == domain),
    )


def keep_own(picture: Picture, row: Row) -> None:
    """Section 6: "A gang that no domain can cover acquires nothing: its domain is the one with most of its own, then
    value; it takes only its own machines there".
    """
    picture.satisfiable[row.index] = False
    picture.domains.pop(row.index, None)
    own = [m for m in walk(picture, row) if picture.is_own(row, m)]
    best: tuple[int, tuple[str, ...]] | None = None
    for domain in domains_of(picture, row):
        trial = picture.copy()
        credit(trial, row, own, domain)
        held = row.asked - trial.missing_units(row)
        if best is None or held > best[0]:
            best = (held, domain)
    if best is not None:
        picture.domains[row.index] = best[1]
        credit(picture, row, own, best[1])
