"""Section 7: phase 2. Needs still unmet are served once more, victims being candidates after all others."""

from dataclasses import dataclass

from tests.engine.oracle.gangs import best_domain, credit_only, fill
from tests.engine.oracle.picture import Picture
from tests.engine.oracle.rows import Row
from tests.engine.oracle.serve import Tiers, acquire, bind_free, credit, half_dollars, is_free, preference, walk
from tests.engine.oracle.world import PINNED, Kind, Machine, State

GRACE_OF_GAP = ((900_000, 10), (500_000, 30), (100_000, 120))
LONGEST_GRACE = 600


@dataclass(frozen=True)
class Standing:
    """What stands between a machine and being a victim."""

    serves: bool
    priority: int
    interruption: int
    reclamation: int
    pinned: bool


IDLING = Standing(False, 0, 0, 0, False)
UNTOUCHABLE = Standing(True, 0, 0, 0, True)


def phase_two(picture: Picture) -> Picture:
    """Section 7: "For needs still unmet, in order"; those that lost a machine to a higher one are unmet by then."""
    picture.remember()
    for row in picture.facts.rows:
        if not picture.met(row):
            picture = serve_once_more(picture, row)
            picture.remember()
    return without_idle_purchases(picture)


def without_idle_purchases(picture: Picture) -> Picture:
    """What phase 1 bought and phase 2 made needless is not bought: section 7 drops the mark of a committed machine that
    no need takes from, and here nothing has been done yet (ADR 9.4).
    """
    for _, action in picture.actions:
        if action.kind is not Kind.PREEMPT and not picture.on[action.machine]:
            picture = picture.copy()
            picture.unbind(picture.facts.machines[action.machine])
    return picture


def serve_once_more(picture: Picture, row: Row) -> Picture:
    """Section 7, last paragraph: "with all that later needs of its cluster took free to it"."""
    trial = picture.copy()
    later = [other for other in picture.facts.rows_of(row.need.cluster) if other.index > row.index]
    for other in (row, *later):
        trial.untake(other)
    if row.same_keys:
        # "a gang only in the first domain that victims complete, buying what is free there in the same cycle, and if
        # none, nothing"
        best = best_domain(trial, row, pool_with_victims, bind_any)
        if best is None or not best.covers:
            return picture
        trial.domains[row.index] = best.domain
        trial.satisfiable[row.index] = True
        fill(trial, row, pool_with_victims, bind_any, best.domain)
    else:
        # "A plain need takes what relief there is"
        credit(trial, row, walk(trial, row))
        acquire(trial, row, pool_with_victims, bind_any)
    if trial.actions == picture.actions and not less_missing(trial, picture, row):
        return picture
    # "If it thereby acquires or preempts, those later needs are served once more in their turn, likewise": credited
    # now, so that machines have a standing meanwhile; what is then unmet acquires in its turn of the loop above.
    for other in later:
        credit_only(trial, other)
    return trial


def less_missing(now: Picture, before: Picture, row: Row) -> bool:
    """No dimension is shorter than before and one is less short."""
    new, old = now.missing(row), before.missing(row)
    return new != old and all(new.get(name, 0) <= old.get(name, 0) for name in {*new, *old})


def pool_with_victims(picture: Picture, row: Row) -> Tiers:
    """Section 7: "victims being candidates after all others"."""
    return [free_once_more(picture, row), victims(picture, row)]


def free_once_more(picture: Picture, row: Row) -> list[Machine]:
    """The free machines of section 5, and what later rows of other clusters acquired in this very decision: nothing
    has been done about it yet, and law 4 gives it to the higher need (ADR 9.2).
    """
    facts = picture.facts
    if not facts.may_act(row):
        return []
    retaken = [m for m in facts.eligible(row) if acquired_later(picture, row, m)]
    free = [m for m in facts.eligible(row) if is_free(picture, m)]
    return sorted((*free, *retaken), key=lambda m: preference(picture, row, m))


def acquired_later(picture: Picture, row: Row, machine: Machine) -> bool:
    """Bought free, not preempted, in this decision by a row after this one, of another cluster; and no row before this
    one has come to rely on it since.
    """
    binding = picture.bound.get(machine.id)
    if binding is None or binding.buyer is None or binding.cluster == row.need.cluster:
        return False
    users = {binding.buyer, *picture.on[machine.id]}
    return min(users) > row.index and machine.state is not State.CONFIGURED


def victims(picture: Picture, row: Row) -> list[Machine]:
    """Section 7: the machines that this row may preempt, first to go first."""
    facts = picture.facts
    if not facts.may_act(row):
        return []
    found = [
        (m, standing(picture, m))
        for m in facts.eligible(row)
        if is_anothers(picture, row, m) and not facts.held_out(m) and not m.protected
    ]
    allowed = [(m, s) for m, s in found if not s.pinned and (not s.serves or s.priority < row.need.priority)]
    allowed.sort(
        key=lambda pair: (
            row.pinned and pair[0].interruption_probability > 0,  # "PINNED needs as in section 5"
            pair[1].serves,  # "Machines that serve nothing [...] go first"
            -score(picture, row, *pair),  # "highest first"
            pair[0].id,
        )
    )
    return [m for m, _ in allowed]


def is_anothers(picture: Picture, row: Row, machine: Machine) -> bool:
    """Section 7: "a Configured machine of another cluster", not one that this shard has committed already.

    Protocol.md 13: "in a cluster marked partial a non-empty node that is not named is no victim".
    """
    binding = picture.bound.get(machine.id)
    if machine.state is not State.CONFIGURED or binding is None or binding.bought or machine.committed_to:
        return False
    cluster = picture.facts.clusters.get(machine.cluster)
    if cluster and cluster.partial and not machine.empty and machine.unrequested is None:
        return False
    return binding.cluster != row.need.cluster


def standing(picture: Picture, machine: Machine) -> Standing:
    """Section 7: "Its priority and penalties are those of the highest need it serves this cycle, phase 2 included;
    PINNED if any need it serves is": all that it served at any time this cycle (ADR 9.6). A cluster that has
    not reported: "the ones stamped on it".
    """
    cluster = picture.facts.clusters.get(machine.cluster)
    if cluster is None or not cluster.reported:
        if machine.stamp is None:
            return UNTOUCHABLE  # protocol rule 12: an unstamped machine of such a cluster counts as PINNED
        stamp = machine.stamp
        pinned = PINNED in (stamp.interruption, stamp.reclamation)
        result = Standing(True, stamp.priority, stamp.interruption, stamp.reclamation, pinned)
    else:
        served = [picture.facts.rows[index].need for index in sorted(picture.served[machine.id])]
        if served:
            first = served[0]
            pinned = any(PINNED in (need.interruption, need.reclamation) for need in served)
            result = Standing(True, first.priority, first.interruption, first.reclamation, pinned)
        else:
            result = IDLING
    return with_unrequested(result, machine)


def with_unrequested(base: Standing, machine: Machine) -> Standing:
    """Protocol.md 13: such a machine "as a victim has at least that priority"."""
    pods = machine.unrequested
    if pods is None:
        return base
    return Standing(
        serves=True,
        priority=max(base.priority, pods.priority) if base.serves else pods.priority,
        interruption=max(base.interruption, pods.interruption),
        reclamation=max(base.reclamation, pods.reclamation),
        pinned=base.pinned or PINNED in (pods.interruption, pods.reclamation),
    )


def score(picture: Picture, row: Row, machine: Machine, victim: Standing) -> int:
    """Section 7's formula in billionths, each term rounded down; floors $0.01 and 1 s."""
    policy = picture.facts.policy
    gap = row.need.priority - victim.priority if victim.serves else 0
    return (
        gap * policy.weight_priority
        + policy.weight_drain // max(1, machine.drain_seconds)
        + policy.weight_interrupt * 100 // max(1, 50 * half_dollars(victim.interruption))
        + policy.weight_reclaim * 100 // max(1, 50 * half_dollars(victim.reclamation))
    )


def grace(row: Row, victim: Standing) -> int:
    """Section 7: "Grace by priority gap"; machines that serve nothing have 10 min."""
    if not victim.serves:
        return LONGEST_GRACE
    gap = row.need.priority - victim.priority
    return next((seconds for bound, seconds in GRACE_OF_GAP if gap > bound), LONGEST_GRACE)


def bind_any(picture: Picture, row: Row, machine: Machine) -> None:
    """Section 7: "Preempt is a commitment like Provision (drain, then bootstrap)"."""
    if machine.state is not State.CONFIGURED:
        bind_free(picture, row, machine)
        return
    victim = standing(picture, machine)
    outranked = str(victim.priority) if victim.serves else "nobody"
    reason = f"{row.key.cluster} at {row.need.priority} outranks {outranked}"
    picture.bind(row, machine, Kind.PREEMPT, grace(row, victim), reason)
