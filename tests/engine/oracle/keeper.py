"""One engine that lives on from decision to decision and is told only what changed; law 6 holds it to a new one."""

from dataclasses import fields

from bigfleet.engine.engine import Engine
from bigfleet.model.demand.need import NeedKey as ModelKey
from tests.engine.oracle import bridge
from tests.engine.oracle.world import Cluster, Decision, Machine, Need, World


class Keeper:
    """An engine and what it was last told.

    `engine` starts empty, as after a restart: the first world brings its arrivals along, as the shard's file would.
    From then on a roll-up brings none, and the engine counts them itself: see `arrived`.
    """

    def __init__(self) -> None:
        self.engine = Engine()
        self._machines: dict[str, Machine] = {}
        self._clusters: dict[str, Cluster] = {}
        self._demand: dict[str, tuple[Need, ...]] = {}
        self._started = False

    def decide(self, world: World) -> Decision:
        """What the engine decides after being told what is new in this world."""
        self.tell(world)
        return bridge.decide_with(self.engine, world)

    def decide_in_full(self, world: World) -> Decision:
        """The same engine's answer from scratch."""
        self.tell(world)
        return bridge.decide_with(self.engine, world, full=True)

    def tell(self, world: World, *, everything: bool = False) -> None:
        """Apply the differences; with `everything`, repeat what has not changed too, as a full list does."""
        there = {m.id: m for m in world.machines}
        # Another type under an old name is another machine.
        reborn = [m.id for m in world.machines if m.id in self._machines and other_type(self._machines[m.id], m)]
        self.engine.inventory.remove([*(name for name in self._machines if name not in there), *reborn])
        changed = [m for m in world.machines if everything or self._machines.get(m.id) != m]
        self.engine.inventory.apply(bridge.machine_record(m) for m in changed)
        for cluster in world.clusters:
            if everything or self._clusters.get(cluster.id) != cluster:
                self.engine.set_cluster(bridge.cluster_record(cluster))
        demand = demand_of(world.needs)
        for name in roll_up_order({*self._demand, *demand}):
            if everything or self._demand.get(name) != demand.get(name):
                rows, arrivals = bridge.rows_and_arrivals(demand.get(name, ()))
                self.engine.needs.replace(name, rows, None if self._started else arrivals)
        self._machines, self._demand = there, demand
        self._clusters = {c.id: c for c in world.clusters}
        self._started = True


def other_type(one: Machine, other: Machine) -> bool:
    """Whether the two cannot be one machine."""
    return one.instance_type != other.instance_type


def demand_of(needs: tuple[Need, ...]) -> dict[str, tuple[Need, ...]]:
    """The rows by cluster."""
    return {name: tuple(n for n in needs if n.cluster == name) for name in dict.fromkeys(n.cluster for n in needs)}


def roll_up_order(clusters: set[str]) -> list[str]:
    """The order in which roll-ups of one cycle come in. Not the order of ids, so that arrival decides something."""
    return sorted(clusters, key=lambda name: name[::-1], reverse=True)


def row_key(need: Need) -> tuple[str, ModelKey]:
    """What makes two rows one row."""
    return need.cluster, bridge.need_row(need).key


def arrived(before: tuple[Need, ...], after: tuple[Need, ...]) -> tuple[Need, ...]:
    """The rows of `after` with arrivals as a shard counts them that had seen `before`.

    A row that stays keeps its arrival. The new rows of one roll-up share one, and each roll-up's is later than all
    before it (section 4, protocol rule 19).
    """
    known: dict[tuple[str, ModelKey], int] = {}
    for need in before:
        known[row_key(need)] = min(need.arrival, known.get(row_key(need), need.arrival))
    nothing_yet = max((need.arrival for need in before), default=0)
    at = {name: nothing_yet + 1 + i for i, name in enumerate(roll_up_order({n.cluster for n in after}))}
    return tuple(with_arrival(need, known.get(row_key(need), at[need.cluster])) for need in after)


def with_arrival(need: Need, arrival: int) -> Need:
    """The same row, arrived then."""
    return need if need.arrival == arrival else Need(**{**vars(need), "arrival": arrival})


def difference(kept: Decision, fresh: Decision) -> str:
    """Where two answers differ first, in words; empty when they are equal to the byte, prose included."""
    for field in fields(Decision):
        mine, other = getattr(kept, field.name), getattr(fresh, field.name)
        if isinstance(mine, frozenset):
            mine, other = tuple(sorted(mine)), tuple(sorted(other))
        if repr(mine) == repr(other):
            continue
        at = next((i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if repr(a) != repr(b)), None)
        if at is None:
            common = min(len(mine), len(other))
            return f"{field.name}: kept also {mine[common:]}, fresh also {other[common:]}"
        return f"{field.name}[{at}]: kept {mine[at]}, fresh {other[at]}"
    return ""


class Twins:
    """A keeper and, for every decision, a new engine told the whole world. Law 6: both answer alike."""

    def __init__(self, *, in_full: bool = False) -> None:
        self.keeper = Keeper()
        self.in_full = in_full
        self.wrong: list[str] = []
        self.decisions = 0

    def decide(self, world: World) -> Decision:
        """The fresh answer; a difference is noted.

        Now and then the keeper is told everything again, or asked for a decision from scratch too, before or after the
        incremental one: neither may change what it answers.
        """
        self.decisions += 1
        fresh = bridge.decide(world)
        if self.in_full and self.decisions % 5 == 3:
            self._compare("from scratch", self.keeper.decide_in_full(world), fresh)
        if self.decisions % 7 == 6:
            self.keeper.tell(world, everything=True)
        self._compare("from what changed", self.keeper.decide(world), fresh)
        if self.in_full and self.decisions % 5 == 1:
            self._compare("from scratch", self.keeper.decide_in_full(world), fresh)
        return fresh

    def _compare(self, how: str, kept: Decision, fresh: Decision) -> None:
        found = difference(kept, fresh)
        if found:
            self.wrong.append(f"law 6: decision {self.decisions}, {how}: {found}")
