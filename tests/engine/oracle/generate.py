"""Random worlds and demand changes: one generator, drawn from a seeded `random.Random` or by hypothesis.

Numbers are small and few on purpose, so that ties, exact fits and rivalry are common.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from hypothesis import strategies as st

from tests.engine.oracle.world import (
    PINNED,
    Cluster,
    Daemon,
    Machine,
    Need,
    Op,
    Policy,
    Requirement,
    Spread,
    Stamp,
    State,
    Unrequested,
    World,
    fingerprint_of,
    unit_text,
)

T = TypeVar("T")
RACK = "topology.bigfleet.lucy.sh/rack"
ZONE = "topology.kubernetes.io/zone"
TYPE = "node.kubernetes.io/instance-type"
DOLLAR = 1_000_000


class Source(Protocol):
    """Where choices come from; low values are the simple ones, so that shrinking simplifies."""

    def integer(self, low: int, high: int) -> int:
        """A number between both, inclusive."""


@dataclass(frozen=True)
class Seeded:
    """Choices from a seed."""

    random: random.Random

    def integer(self, low: int, high: int) -> int:
        """A number between both, inclusive."""
        return self.random.randint(low, high)


@dataclass(frozen=True)
class Drawn:
    """Choices drawn by hypothesis, so that shrinking works."""

    draw: Callable[[st.SearchStrategy[int]], int]

    def integer(self, low: int, high: int) -> int:
        """A number between both, inclusive."""
        return self.draw(st.integers(low, high))


@dataclass(frozen=True)
class Taste:
    """What a world may hold. `calm`: nothing that changes by the clock alone or acts from outside. `rivals`: machines
    much alike and many gangs and spreads, so that rows compete for the same few and domains tie.
    """

    machines: tuple[int, int] = (1, 14)
    clusters: tuple[int, int] = (1, 3)
    rows: tuple[int, int] = (1, 3)
    calm: bool = False
    memory: bool = True
    units: tuple[int, int] = (1, 6)
    rivals: bool = False


def pick(source: Source, choices: Sequence[T]) -> T:
    """One of them, the first being the simplest."""
    return choices[source.integer(0, len(choices) - 1)]


def chance(source: Source, percent: int) -> bool:
    """True so often; shrinks to False."""
    return source.integer(0, 99) >= 100 - percent


def world(source: Source, taste: Taste) -> World:
    """A random world, as a shard might find it: in any state, not settled."""
    clusters = [cluster(source, taste, f"c{i}") for i in range(source.integer(*taste.clusters))]
    memory = taste.memory and chance(source, 40)
    taste = replace(taste, units=pick(source, [(1, 3), (1, 6)]))
    needs = [need for c in clusters if c.reported for need in rows(source, taste, c.id, memory, 0)]
    if not taste.calm and needs and chance(source, 10):
        held = pick(source, needs)
        clusters = [replace(c, held_out={held.fingerprint: 1040}) if c.id == held.cluster else c for c in clusters]
    count = source.integer(*taste.machines)
    numbers = list(range(1, count + 1))
    machines = []
    for i in range(count):
        number = numbers.pop(source.integer(0, len(numbers) - 1))
        machines.append(machine(source, taste, f"m{i:03}", clusters, needs, memory, number))
    return World(
        machines=tuple(machines),
        needs=tuple(needs),
        clusters=tuple(clusters),
        policy=policy(source, taste),
        now=1000,
        next_binding=count + 1,
    )


def policy(source: Source, taste: Taste) -> Policy:
    """Short holds, so that loops settle soon; sometimes a shape held out."""
    shapes = {}
    if not taste.calm and chance(source, 15):
        shapes[pick(source, ["t", "u"]), pick(source, ["z0", "z1"]), pick(source, ["OnDemand", "Spot"])] = 1050
    return Policy(
        idle_hold={"OnDemand": pick(source, [30, 0, 300]), "Spot": pick(source, [20, 60])},
        reclaim_after=pick(source, [30, 0, 10]),
        reclaim_percent=pick(source, [5, 50, 100]),
        draining_percent=pick(source, [25, 100]),
        held_out_shapes=shapes,
    )


def cluster(source: Source, taste: Taste, name: str) -> Cluster:
    """A cluster, most of them reporting and live."""
    daemons: tuple[Daemon, ...] = ()
    if chance(source, 20):
        only: tuple[Requirement, ...] = (Requirement(TYPE, Op.IN, ("t",)),) if chance(source, 40) else ()
        daemons = (Daemon({"cpu": 1}, only),)
    return Cluster(
        id=name,
        reported=taste.calm or not chance(source, 8),
        live=taste.calm or not chance(source, 8),
        partial=chance(source, 8),
        excess_since=960 if chance(source, 50) else None,
        daemons=daemons,
    )


def requirements(source: Source) -> list[Requirement]:
    """Usually none or one."""
    kind = source.integer(0, 9)
    if kind <= 4:
        return []
    if kind == 5:
        return [Requirement(TYPE, Op.IN, (pick(source, ["t", "u", "v"]),))]
    if kind == 6:
        return [Requirement(TYPE, Op.IN, ("t", "v"))]
    if kind == 7:
        return [Requirement(ZONE, Op.IN, (pick(source, ["z0", "z1"]),))]
    if kind == 8:
        return [Requirement(TYPE, Op.NOT_IN, (pick(source, ["t", "u"]),))]
    return [pick(source, [Requirement(RACK, Op.EXISTS), Requirement(RACK, Op.DOES_NOT_EXIST)])]


def rows(source: Source, taste: Taste, cluster_id: str, memory: bool, arrival: int) -> list[Need]:
    """Some rows of one cluster."""
    return [row(source, taste, cluster_id, memory, arrival) for _ in range(source.integer(*taste.rows))]


def row(source: Source, taste: Taste, cluster_id: str, memory: bool, arrival: int) -> Need:
    """One row: plain, gang, spread, limited or divisible."""
    wanted = [r for r in requirements(source) if not (taste.rivals and r.key == TYPE)]
    spread: list[Spread] = []
    limit = 0
    group = ""
    kind = pick(source, [0, 8, 8, 12, 13, 14, 14, 16]) if taste.rivals else source.integer(0, 19)
    if 8 <= kind <= 13:
        keep = [r for r in wanted if r.key != RACK]
        wanted = [*keep, Requirement(pick(source, [RACK, ZONE]), Op.SAME)]
        group = pick(source, ["", "g1", "g2"])
    if kind in (13, 14, 15, 16):
        spread.append(Spread(pick(source, [ZONE, RACK]), pick(source, [1, 2])))
        if chance(source, 15):
            spread.append(Spread(pick(source, [RACK, TYPE]), 1))
    if kind == 17:
        spread.append(Spread(ZONE, 1, hard=False))
    if kind in (16, 18):
        limit = pick(source, [1, 2])
    unit = {"cpu": pick(source, [1, 1, 2, 2, 3, 4, 5, 8])}
    if memory and chance(source, 60):
        unit["memory"] = pick(source, [1, 2, 8, 16])
    count = source.integer(*taste.units)
    aggregate = {name: amount * count for name, amount in unit.items()}
    if chance(source, 10):
        aggregate["cpu"] -= 1 if unit["cpu"] > 1 else 0
    if kind == 19:
        unit = {}
    need = Need(
        cluster=cluster_id,
        fingerprint="",
        aggregate=aggregate,
        unit=unit,
        requirements=tuple(wanted),
        spread=tuple(spread),
        priority=pick(source, [0, 0, 1, 5, -5, 200_000, 1_000_000]),
        interruption=pick(source, [0, 0, 0, 1, 5, 10, PINNED]),
        reclamation=pick(source, [0, 0, 0, 1, 5, PINNED]),
        max_per_machine=limit,
        group=group,
        arrival=arrival,
    )
    return replace(need, fingerprint=fingerprint_of(need))


def machine(
    source: Source, taste: Taste, name: str, clusters: list[Cluster], needs: list[Need], memory: bool, number: int
) -> Machine:
    """One machine in any state."""
    capacity = pick(source, ["OnDemand", "OnDemand", "Spot", "Reserved", "BareMetal", ""])
    cores = pick(source, [4, 2, 3, 7, 8, 16])
    allocatable = {"cpu": cores}
    if memory:
        allocatable["memory"] = cores * pick(source, [2, 1, 4])
    if chance(source, 8):
        allocatable["pods"] = pick(source, [1, 2, 3])
    labels = {} if chance(source, 8) else {RACK: pick(source, ["r0", "r1", "r2"])}
    risk = pick(source, [10_000, 100_000]) if capacity == "Spot" else pick(source, [0, 0, 0, 1_000])
    bare = Machine(
        id=name,
        state=State.SPECULATIVE,
        allocatable=allocatable,
        instance_type=pick(source, ["t", "u", "v"]),
        zone="" if chance(source, 5) else pick(source, ["z0", "z1", "z2"]),
        capacity_type=capacity,
        labels=labels,
        price=pick(source, [1, 2, 2, 3, 5, 9]) * DOLLAR,
        interruption_probability=risk,
        drain_seconds=pick(source, [60, 60, 1, 600]),
        idle_since=pick(source, [1000, 900, 0]),
    )
    if taste.rivals:
        bare = alike(bare)
    return in_some_state(source, taste, bare, clusters, needs, number)


def alike(machine: Machine) -> Machine:
    """One of few kinds: two sizes, two zones, two racks, two prices."""
    large = machine.allocatable["cpu"] > 4
    allocatable = {"cpu": 8 if large else 4, **({"memory": 16} if "memory" in machine.allocatable else {})}
    return replace(
        machine,
        allocatable=allocatable,
        instance_type="t",
        zone="z1" if machine.zone == "z1" else "z0",
        labels={RACK: "r1" if machine.labels.get(RACK) == "r1" else "r0"},
        capacity_type="OnDemand",
        price=(2 if large else 1) * DOLLAR,
        interruption_probability=0,
    )


def in_some_state(
    source: Source, taste: Taste, bare: Machine, clusters: list[Cluster], needs: list[Need], number: int
) -> Machine:
    """Put the machine into a state that the contract allows."""
    state = pick(source, [State.SPECULATIVE] * 4 + [State.IDLE] * 2 + [State.CONFIGURED] * 6 + list(State))
    owner = pick(source, clusters).id
    stamp = some_stamp(source, needs, owner, number)
    if not taste.calm and chance(source, 5):
        bare = replace(bare, not_before=1040)
    match state:
        case State.SPECULATIVE | State.IDLE | State.CREATING | State.DELETING:
            committed = owner if state is State.CREATING or chance(source, 15) else ""
            if state is State.CREATING and chance(source, 10):
                committed = ""
            return replace(bare, state=state, committed_to=committed, stamp=stamp if committed else None)
        case State.CONFIGURED:
            return configured(source, taste, replace(bare, state=state, cluster=owner, stamp=stamp))
        case State.CONFIGURING:
            return replace(bare, state=state, cluster=owner, stamp=stamp)
        case State.DRAINING:
            heir = pick(source, ["", *(c.id for c in clusters)])
            return replace(
                bare, state=state, cluster=owner, committed_to=heir, stamp=some_stamp(source, needs, heir, number)
            )
        case _:
            return replace(bare, state=state)


def configured(source: Source, taste: Taste, machine: Machine) -> Machine:
    """A Configured machine with what an operator may say of it."""
    machine = replace(machine, empty=chance(source, 30))
    if chance(source, 5):
        pods = Unrequested(pick(source, [0, 5, 200_000]), 0, pick(source, [0, PINNED]))
        machine = replace(machine, unrequested=pods, empty=False)
    if not taste.calm and chance(source, 4):
        machine = replace(machine, ready_failed=True)
    if not taste.calm and chance(source, 4):
        machine = replace(machine, protected=True)
    if not taste.calm and chance(source, 4):
        machine = replace(machine, reclaim_hold_until=1060)
    return machine


def some_stamp(source: Source, needs: list[Need], owner: str, number: int) -> Stamp | None:
    """Mostly the stamp of a row of the owner, else a forgotten row's, else none."""
    mine = [need for need in needs if need.cluster == owner]
    if mine and chance(source, 75):
        need = pick(source, mine)
        return Stamp(
            need.fingerprint,
            unit_text(need.unit),
            need.group,
            need.priority,
            need.interruption,
            need.reclamation,
            number,
        )
    if chance(source, 20):
        return None
    return Stamp("forgotten", "", "", pick(source, [0, 5]), 0, pick(source, [0, 5]), number)


def changed(source: Source, taste: Taste, before: World, arrival: int) -> tuple[Need, ...]:
    """The next demand: some rows withdrawn, some grown or shrunk, some new."""
    memory = any("memory" in m.allocatable for m in before.machines)
    after: list[Need] = []
    for need in before.needs:
        what = source.integer(0, 9)
        if what <= 4:
            after.append(need)
        elif what <= 7:
            factor = pick(source, [2, 1, 3])
            over = pick(source, [1, 2, 3])
            aggregate = {name: -(-amount * factor // over) for name, amount in need.aggregate.items()}
            after.append(replace(need, aggregate=aggregate))
    reporting = [c.id for c in before.clusters if c.reported]
    after += [row(source, taste, name, memory, arrival) for name in reporting if chance(source, 50)]
    return tuple(after)


@st.composite
def worlds(draw: Callable[[st.SearchStrategy[int]], int], taste: Taste | None = None) -> World:
    """Worlds for hypothesis."""
    return world(Drawn(draw), taste or Taste())


@st.composite
def cases(draw: Callable[[st.SearchStrategy[int]], int], taste: Taste | None = None) -> tuple[World, tuple[Need, ...]]:
    """A world and the demand that follows."""
    source = Drawn(draw)
    first = world(source, taste or Taste())
    return first, changed(source, taste or Taste(), first, 1)
