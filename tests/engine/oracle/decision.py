"""The decision engine's rules in plain, slow Python: `decide(world)`. engine.md sections 2 to 9, in that order."""

from tests.engine.oracle.gangs import serve
from tests.engine.oracle.giveback import dropped_marks, reclaim, reclaim_action, releases
from tests.engine.oracle.picture import Picture
from tests.engine.oracle.preempt import phase_two
from tests.engine.oracle.rows import Facts, Row
from tests.engine.oracle.serve import Skew
from tests.engine.oracle.world import Action, Decision, Kind, Verdict, World


def decide(world: World) -> Decision:
    """What a shard does this cycle; the same answer for the same input in any input order."""
    facts = Facts(world)
    picture = phase_one(facts)
    picture = phase_two(picture)
    dropped = dropped_marks(picture)
    actions = [action for _, action in picture.actions]
    excess = set()
    capped = set()
    for cluster in sorted(world.clusters, key=lambda c: c.id):
        result = reclaim(picture, cluster)
        actions += [reclaim_action(cluster.id, machine) for machine in result.machines]
        if result.excess:
            excess.add(cluster.id)
        if result.capped:
            capped.add(cluster.id)
    actions += releases(picture, dropped)
    verdicts = tuple(verdict(picture, row) for row in facts.rows)
    return Decision(tuple(actions), verdicts, frozenset(excess), tuple(dropped), frozenset(capped))


def phase_one(facts: Facts) -> Picture:
    """Section 5: "Needs are served one at a time in that order: credit, then acquire, then the next need"."""
    picture = Picture(facts)
    for row in facts.rows:
        serve(picture, row)
    return picture


def verdict(picture: Picture, row: Row) -> Verdict:
    """What ShardRead shows of one need."""
    mine = [action for index, action in picture.actions if index == row.index]
    takes = picture.takes[row.index]
    return Verdict(
        key=row.key,
        satisfied=picture.met(row),
        missing_units=0 if row.divisible else picture.missing_units(row),
        residual=picture.missing(row),
        claimed_machines=len(takes),
        bootstrap_count=count(mine, Kind.BOOTSTRAP),
        provision_count=count(mine, Kind.PROVISION),
        preempt_count=count(mine, Kind.PREEMPT),
        domain=picture.domains.get(row.index, ()),
        same_satisfiable=picture.satisfiable.get(row.index, True),
        unmet_reason="" if picture.met(row) else unmet_reason(picture, row, count(mine, Kind.PREEMPT)),
        takes={name: take.vector for name, take in sorted(takes.items())},
    )


def count(actions: list[Action], kind: Kind) -> int:
    """How many of this kind."""
    return sum(1 for action in actions if action.kind is kind)


def unmet_reason(picture: Picture, row: Row, preempted: int) -> str:
    """Reporting only (contract.md, UnmetReason): the first of no supply, topology, preemption, priority."""
    eligible = picture.facts.eligible(row)
    if not eligible:
        return "NO_MATCHING_SUPPLY"
    if not row.divisible:
        fleet = sum(picture.facts.worth_fresh(row, m) for m in eligible)
        if fleet < row.asked:
            return "NO_MATCHING_SUPPLY"
        if not topology_could_hold(picture, row):
            return "TOPOLOGY_UNSATISFIABLE"
    return "PREEMPTION_EXHAUSTED" if preempted else "PRIORITY_STARVED"


def topology_could_hold(picture: Picture, row: Row) -> bool:
    """Whether the whole fleet, empty and all this row's, would hold the row within its domain and skew."""
    facts = picture.facts
    domains = {facts.domain(row, m) for m in facts.eligible(row)}
    return any(domain_could_hold(picture, row, domain) for domain in domains)


def domain_could_hold(picture: Picture, row: Row, domain: tuple[str, ...]) -> bool:
    """The same inside one domain: place unit by unit on fresh machines, smallest domain first."""
    facts = picture.facts
    bare = picture.copy()
    bare.untake(row)
    skew = Skew(bare, row, domain)
    room = {m.id: facts.worth_fresh(row, m) for m in facts.eligible(row) if facts.domain(row, m) == domain}
    for _ in range(row.asked):
        fitting = [facts.machines[name] for name, k in room.items() if k > 0 and skew.allows(facts.machines[name])]
        if not fitting:
            return False
        first = min(fitting, key=lambda m: (skew.level(m), m.id))
        room[first.id] -= 1
        skew.add(first)
    return True
