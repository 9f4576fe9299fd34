"""The laws of section 10 as checks: each returns what is wrong, in words, or an empty list."""

import random
from dataclasses import replace

from tests.engine.oracle.bridge import decide
from tests.engine.oracle.decision import phase_one
from tests.engine.oracle.loop import Latency, Loop
from tests.engine.oracle.rows import Facts, Row, whole_units
from tests.engine.oracle.world import ACQUIRING, Action, Decision, Kind, Need, NeedKey, State, Verdict, World

MOST_DECISIONS = 300


def names(actions: list[Action] | tuple[Action, ...]) -> str:
    """Actions, shortly."""
    return ", ".join(f"{a.kind.value} {a.machine} for {a.cluster or '-'}" for a in actions)


def acquiring(decision: Decision) -> list[Action]:
    """The decision's acquisitions."""
    return [a for a in decision.actions if a.kind in ACQUIRING]


def waiting(world: World, decision: Decision) -> set[str]:
    """Clusters with a row that is short and held out: it takes, one cycle later, what a lower row of its cluster buys,
    and the lower row buys again (ADR 9.14).
    """
    held = {(c.id, name) for c in world.clusters for name, until in c.held_out.items() if until > world.now}
    short = {(v.key.cluster, v.key.fingerprint) for v in decision.shortfalls}
    return {cluster for cluster, _ in held & short}


# Law 1


def rest_at_once(world: World, decision: Decision) -> list[str]:
    """Law 1: "at once, where nothing was preempted: deciding again right after its own acquisitions, before anything
    completes, decides nothing". Nothing, that is, for clusters without a short row that is held out.
    """
    if any(a.kind is Kind.PREEMPT for a in decision.actions):
        return []
    exempt = waiting(world, decision)
    loop = Loop.of(world, lambda _operation, _machine, _nth: 0)
    loop.machines = {m.id: m for m in world.machines}  # Loop.of starts what is queued; here nothing starts
    bought = Decision(tuple(acquiring(decision)), (), frozenset(), ())
    loop.apply(bought, start=False)
    loop.clusters = {c.id: c for c in world.clusters}
    again = decide(loop.world())
    wrong = []
    more = [a for a in acquiring(again) if a.cluster not in exempt]
    if more:
        wrong.append(f"law 1 at once: {names(bought.actions)}; then again {names(more)}")
    marks = {m.id: m.committed_to for m in loop.machines.values()}
    if any(marks[name] not in exempt for name in set(again.dropped) - set(decision.dropped)):
        wrong.append(f"law 1 at once: {names(bought.actions)}; then dropped {again.dropped}")
    return wrong


def comes_to_rest(loop: Loop) -> list[str]:
    """Law 1: "after the actions settle, no action ever again"."""
    if loop.settle(MOST_DECISIONS):
        return []
    tail = "; ".join(f"{when}: {names([action])}" for when, action in loop.log[-12:])
    return [f"law 1: no rest after {MOST_DECISIONS} decisions, {len(loop.log)} actions, last: {tail}"]


# Law 2


def buys_the_same(
    settled: World,
    needs: tuple[Need, ...],
    latencies: dict[str, Latency],
    growth: tuple[int, tuple[Need, ...]] = (0, ()),
) -> list[str]:
    """Law 2: "machines acquired for one change of demand do not depend on latency".

    A machine that was given back for this same change and then serves another need is not counted: how much is given
    back does depend on latency, and on the rails (ADR 9.5). So the law holds of what is bought with rails on, too.
    A row that is held out asks for something only when its time is over, and `growth` is demand that follows so many
    cycles later: both are a second change, made while things are in flight. Nothing is asserted where something was
    given back before it, as the fleet it finds is then a matter of latency, or where anything was preempted at all: a
    victim is Configured, so whom the second change may preempt depends on what has been configured by then (ADR 9.37).
    """
    cycles, grown = growth
    held_until = max((until for c in settled.clusters for until in c.held_out.values()), default=0)
    counts: dict[str, int] = {}
    logs: dict[str, str] = {}
    for name, latency in latencies.items():
        loop = Loop.of(settled, latency)
        loop.change(needs)
        for _ in range(cycles):
            loop.step()
        if cycles and any(a.kind is Kind.RECLAIM for _, a in loop.log):
            return []
        loop.change(grown if cycles else needs)
        wrong = comes_to_rest(loop)
        if wrong:
            return [f"{wrong[0]} (latency {name})"]
        if (cycles or held_until) and any(a.kind is Kind.PREEMPT for _, a in loop.log):
            return []
        given_back = {a.machine for _, a in loop.log if a.kind is Kind.RECLAIM}
        if any(when < held_until and a.kind is Kind.RECLAIM for when, a in loop.log):
            return []
        counts[name] = len([a for a in loop.acquired() if not moved(a, loop.log, given_back)])
        logs[name] = "; ".join(f"{when}: {names([action])}" for when, action in loop.log)
    if len(set(counts.values())) > 1:
        detail = "\n".join(f"  {name}: {log}" for name, log in logs.items())
        return [f"law 2: acquired {counts}\n{detail}"]
    return []


def moved(action: Action, log: list[tuple[int, Action]], given_back: set[str]) -> bool:
    """Whether this acquisition takes a machine that was given back before it."""
    if action.machine not in given_back:
        return False
    of_machine = [a for _, a in log if a.machine == action.machine]
    return any(a.kind is Kind.RECLAIM for a in of_machine[: of_machine.index(action)])


# Law 3


def conserves(world: World, decision: Decision) -> list[str]:
    """Law 3: "no machine serves two clusters; what needs take from a machine never exceeds allocatable"; and each take
    is whole units on a machine that is bound to the need's cluster after the decision.
    """
    wrong = []
    facts = Facts(world)
    holder = {m.id: m.committed_to or m.cluster for m in world.machines}
    for action in acquiring(decision):
        holder[action.machine] = action.cluster
    used: dict[str, dict[str, int]] = {}
    clusters: dict[str, set[str]] = {}
    for verdict, row in zip(decision.verdicts, facts.rows, strict=True):
        for name, vector in verdict.takes.items():
            clusters.setdefault(name, set()).add(verdict.key.cluster)
            total = used.setdefault(name, {})
            for dimension, amount in vector.items():
                total[dimension] = total.get(dimension, 0) + amount
            if not row.divisible and any(vector[d] != whole_units(vector, row.unit) * u for d, u in row.unit.items()):
                wrong.append(f"law 3: {verdict.key} takes {vector} of {name}, not whole units")
    for name, served in clusters.items():
        if served != {holder[name]}:
            wrong.append(f"law 3: {name} serves {sorted(served)}, bound to {holder[name]!r}")
        fresh = facts.fresh(holder[name], facts.machines[name])
        over = {d: amount for d, amount in used[name].items() if amount > fresh.get(d, 0)}
        if over:
            wrong.append(f"law 3: {over} taken of {name}, which has {fresh}")
    acted = [a.machine for a in decision.actions]
    if len(acted) != len(set(acted)):
        wrong.append(f"law 3: two actions on one machine: {names(decision.actions)}")
    return wrong


def shorter(now: Verdict, before: Verdict) -> bool:
    """Some dimension is missing more."""
    return any(amount > before.residual.get(name, 0) for name, amount in now.residual.items())


def longer(now: Verdict, before: Verdict) -> bool:
    """No dimension is missing more, and some is missing less."""
    return not shorter(now, before) and now.residual != before.residual


def opens_no_gap(world: World, decision: Decision) -> list[str]:
    """Law 3: it "never opens a gap: deciding again without what was given back leaves every need as covered".

    Except by priority alone (ADR 9.35): a machine given back is free to all, so it may complete a higher need that
    takes what a lower need of its cluster had. Hence, cluster by cluster in the order of needs: the first need whose
    coverage changed is covered better, and acquires something that another cluster has just given back. Clusters with
    a short row that is held out are exempt: ADR 9.14.
    """
    given_back = {a.machine: a.cluster for a in decision.actions if a.kind is Kind.RECLAIM}
    givers = set(given_back.values())
    if not givers or any(a.kind is Kind.PREEMPT for a in decision.actions):
        return []
    loop = Loop.of(world, lambda _operation, _machine, _nth: 0)
    loop.apply(replace(decision, dropped=()), start=False)
    again = decide(loop.world())
    if any(a.kind is Kind.PREEMPT for a in again.actions):
        return []
    before = {v.key: v for v in decision.verdicts}
    wrong = []
    relieved = waiting(world, decision)
    for v in again.verdicts:
        if longer(v, before[v.key]) and any(given_back.get(m, v.key.cluster) != v.key.cluster for m in v.takes):
            relieved.add(v.key.cluster)
        elif shorter(v, before[v.key]) and v.key.cluster not in relieved:
            was = before[v.key].residual
            wrong.append(f"law 3: after {names(decision.actions)}: {v.key} is short of {v.residual}, was {was}")
    rebought = [a for a in acquiring(again) if a.cluster in givers - waiting(world, decision)]
    if rebought and all(before[v.key].satisfied for v in again.verdicts if v.key.cluster in givers):
        wrong.append(f"law 3: after {names(decision.actions)}: {names(rebought)}")
    return wrong


# Law 4


def respects_priority(world: World, decision: Decision) -> list[str]:
    """Law 4: "a need never acquires a machine while a higher one that could use it goes without".

    Checked for higher plain needs without spread, where "could use it" needs no further thought.
    """
    facts = Facts(world)
    wrong: list[str] = []
    for verdict, row in zip(decision.verdicts, facts.rows, strict=True):
        plain = not row.same_keys and not row.hard_spread
        if verdict.satisfied or not plain or not facts.may_act(row):
            continue
        gap = set(verdict.residual)
        usable = {
            m.id for m in facts.eligible(row) if gap & {d for d, n in facts.fresh(row.need.cluster, m).items() if n}
        }
        for action in acquiring(decision):
            other = next(r for r in facts.rows if made_for(r, action))
            if other.index > row.index and action.machine in usable - set(verdict.takes):
                wrong.append(f"law 4: {row.key} is short, yet {names([action])}, a lower need")
    return wrong


def made_for(row: Row, action: Action) -> bool:
    """Whether the action was decided for this row."""
    return row.key == NeedKey(action.cluster, action.fingerprint, action.group, action.unit)


def ignores_lower_demand(world: World) -> list[str]:
    """Law 4: "adding lower-priority demand changes no acquisition and no coverage of phase 1 above it"."""
    facts = Facts(world)
    if not facts.rows:
        return []
    lowest = facts.rows[-1].need.priority
    above = tuple(n for n in world.needs if n.priority > lowest)
    with_lower = phase_one(facts)
    without = phase_one(Facts(replace(world, needs=above)))
    for row in without.facts.rows:
        if with_lower.takes[row.index] != without.takes[row.index]:
            return [f"law 4: lower demand changed what {row.key} takes in phase 1"]
    kept = [a for i, a in with_lower.actions if i < len(without.facts.rows)]
    if kept != [a for _, a in without.actions]:
        return ["law 4: lower demand changed what is acquired above it in phase 1"]
    return []


# Law 5


def is_deterministic(world: World, decision: Decision, seed: int) -> list[str]:
    """Law 5: "shuffling the input changes nothing, byte for byte"."""
    source = random.Random(seed)
    shuffled = replace(
        world,
        machines=tuple(source.sample(world.machines, len(world.machines))),
        needs=tuple(source.sample(world.needs, len(world.needs))),
        clusters=tuple(source.sample(world.clusters, len(world.clusters))),
    )
    return [] if repr(decide(shuffled)) == repr(decision) else ["law 5: another order, another answer"]


def static_laws(world: World, seed: int) -> list[str]:
    """All laws that need one decision, or two."""
    decision = decide(world)
    return [
        *rest_at_once(world, decision),
        *conserves(world, decision),
        *opens_no_gap(world, decision),
        *respects_priority(world, decision),
        *ignores_lower_demand(world),
        *is_deterministic(world, decision, seed),
        *acts_legally(world, decision),
    ]


def acts_legally(world: World, decision: Decision) -> list[str]:
    """Every action fits the state of its machine, and demand that may not act does not."""
    legal = {
        Kind.BOOTSTRAP: {State.IDLE, State.DRAINING, State.CREATING},
        Kind.PROVISION: {State.SPECULATIVE, State.DELETING},
        Kind.PREEMPT: {State.CONFIGURED},
        Kind.RECLAIM: {State.CONFIGURED},
        Kind.DELETE: {State.IDLE},
    }
    machines = {m.id: m for m in world.machines}
    clusters = {c.id: c for c in world.clusters}
    wrong = []
    for action in decision.actions:
        machine = machines[action.machine]
        if machine.state not in legal[action.kind] or machine.committed_to:
            wrong.append(f"{names([action])}: it is {machine.state.value} {machine.committed_to!r}")
        if action.kind in ACQUIRING and not clusters[action.cluster].live:
            wrong.append(f"{names([action])}: its demand is not live")
        if action.kind in (Kind.PREEMPT, Kind.RECLAIM) and machine.protected:
            wrong.append(f"{names([action])}: it is protected")
    return wrong
