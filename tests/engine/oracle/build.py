"""Short hands for tests that read like a sentence: machines, needs and clusters with little to say about each."""

from dataclasses import replace

from tests.engine.oracle.generate import DOLLAR, RACK, TYPE, ZONE
from tests.engine.oracle.loop import Latency, Loop, fixed
from tests.engine.oracle.world import (
    Action,
    Cluster,
    Decision,
    Kind,
    Machine,
    Need,
    Op,
    Policy,
    Requirement,
    Spread,
    Stamp,
    State,
    Verdict,
    World,
    fingerprint_of,
    unit_text,
)

IN_A_WORD = {
    "speculative": State.SPECULATIVE,
    "idle": State.IDLE,
    "creating": State.CREATING,
    "draining": State.DRAINING,
    "deleting": State.DELETING,
    "failed": State.FAILED,
}


def machine(
    name: str,
    cpu: int,
    where: str = "speculative",
    *,
    kind: str = "",
    zone: str = "",
    rack: str = "",
    memory: int | None = None,
    pods: int | None = None,
    price: int = 1,
    number: int = 0,
    capacity: str = "OnDemand",
    own: Need | None = None,
    **more: object,
) -> Machine:
    """A machine: `where` is a state in lower case, or the name of the cluster that it is Configured for."""
    allocatable = {"cpu": cpu}
    if memory is not None:
        allocatable["memory"] = memory
    if pods is not None:
        allocatable["pods"] = pods
    state = IN_A_WORD.get(where, State.CONFIGURED)
    result = Machine(
        id=name,
        state=state,
        allocatable=allocatable,
        cluster=where if state is State.CONFIGURED else "",
        instance_type=kind,
        zone=zone,
        labels={RACK: rack} if rack else {},
        capacity_type=capacity,
        price=price * DOLLAR,
        stamp=stamp(own, number) if own else (Stamp("other", "", "", 0, 0, 0, number) if number else None),
    )
    return replace(result, **more)  # type: ignore[arg-type]


def stamp(need: Need, number: int) -> Stamp:
    """A binding made for this need."""
    return Stamp(
        need.fingerprint,
        unit_text(need.unit),
        need.group,
        need.priority,
        need.interruption,
        need.reclamation,
        number,
    )


def need(
    cluster: str,
    count: int,
    cpu: int,
    *,
    priority: int = 0,
    memory: int | None = None,
    kind: tuple[str, ...] = (),
    zone: tuple[str, ...] = (),
    same: str = "",
    spread: int = 0,
    limit: int = 0,
    group: str = "",
    interruption: int = 0,
    reclamation: int = 0,
    arrival: int = 0,
) -> Need:
    """`count` units of so many cores; `same` is a gang's key, `spread` a skew over zones."""
    unit = {"cpu": cpu} if memory is None else {"cpu": cpu, "memory": memory}
    wanted = [Requirement(TYPE, Op.IN, kind)] if kind else []
    wanted += [Requirement(ZONE, Op.IN, zone)] if zone else []
    wanted += [Requirement(same, Op.SAME)] if same else []
    row = Need(
        cluster=cluster,
        fingerprint="",
        aggregate={name: amount * count for name, amount in unit.items()},
        unit=unit,
        requirements=tuple(wanted),
        spread=(Spread(ZONE, spread),) if spread else (),
        priority=priority,
        interruption=interruption,
        reclamation=reclamation,
        max_per_machine=limit,
        group=group,
        arrival=arrival,
    )
    return replace(row, fingerprint=fingerprint_of(row))


def fleet(
    machines: list[Machine], needs: list[Need], clusters: list[Cluster] | None = None, policy: Policy | None = None
) -> World:
    """A world at 1000 s with every cluster that anything names, live and reported."""
    named = {n.cluster for n in needs} | {m.cluster for m in machines} | {m.committed_to for m in machines}
    given = {c.id: c for c in clusters or []}
    everyone = [given.get(name, Cluster(name)) for name in sorted((named | set(given)) - {""})]
    newest = max((m.stamp.number for m in machines if m.stamp), default=0)
    return World(tuple(machines), tuple(needs), tuple(everyone), policy or Policy(), 1000, newest + 1)


def verdict(decision: Decision, row: Need) -> Verdict:
    """The verdict on this row."""
    return next(
        v
        for v in decision.verdicts
        if (v.key.cluster, v.key.fingerprint, v.key.group, v.key.unit)
        == (row.cluster, fingerprint_of(row), row.group, unit_text(row.unit))
    )


def acted(decision: Decision, *kinds: Kind) -> list[str]:
    """The machines that were acted on in one of these ways, in the order of decision."""
    return [a.machine for a in decision.actions if a.kind in kinds]


def settled(world: World, latency: Latency | None = None) -> Loop:
    """The world run to rest; fails when it never rests."""
    loop = Loop.of(world, latency or fixed(0, 0, 0))
    if not loop.settle():
        tail = [(when, a.kind.value, a.machine, a.cluster) for when, a in loop.log[-10:]]
        raise AssertionError(f"no rest: {tail}")
    return loop


def counted(actions: list[Action] | tuple[Action, ...]) -> dict[str, int]:
    """How many actions of each kind."""
    counts: dict[str, int] = {}
    for action in actions:
        counts[action.kind.value] = counts.get(action.kind.value, 0) + 1
    return counts


def bound_to(loop: Loop, cluster: str) -> set[str]:
    """The machines Configured for a cluster."""
    return {m.id for m in loop.machines.values() if m.state is State.CONFIGURED and m.cluster == cluster}
