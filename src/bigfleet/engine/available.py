"""What could still be given: for each profile of a cluster, the machines that are free and hold one unit more.

The answer is a hint and no reservation. Machines are as the last decision left them, without those that it bought; rows
are as they are now. A profile's unit is the largest of its rows, dimension by dimension, so a machine that counts holds
a unit of any of its rows. The answer is rough: others may want the same machines, and the skew of a spread does not
count. Nothing here changes the engine.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from bigfleet.engine.codes import NOBODY, PODS_DIM
from bigfleet.engine.engine import Engine
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array
from bigfleet.engine.stock import IDLE, SPOT, Lots, Victims, free_machines, in_lots, preemptible_machines
from bigfleet.engine.tables.needs import NO_TOPOLOGY
from bigfleet.engine.tables.shapes import MISSING
from bigfleet.model.demand.profile import Profile
from bigfleet.model.labels import INSTANCE_TYPE
from bigfleet.model.resources import Resources

_LARGE = 1 << 62
"""More units than any machine holds."""
_MICRO = 1_000_000
"""Prices are kept in millionths of a dollar."""
_SOME = -1
"""In a unit: any amount above 0 is enough. A divisible row asks for no more of a machine."""


class Supply(msgspec.Struct, frozen=True, gc=False):
    """How many machines a profile could get and how, and the terms of the cheapest. A gang's are all in one domain."""

    idle: int = 0
    owned: int = 0
    on_demand: int = 0
    spot: int = 0
    preemptible: int = 0
    """Machines of other clusters that stand below the profile; 0 unless nothing is free. The number is rough: taking
    one machine may change how others stand."""
    atomic: bool = False
    """Whether all of these could be had together. A gang is bought whole or not at all, so this says whether the domain
    holds one more gang like the largest. Everything else is bought machine by machine, so this says whether all of them
    are idle or owned, which cannot fail to come."""
    price: float = 0.0
    """Dollars an hour for the cheapest."""
    instance_type: str = ""
    """The instance type of the cheapest."""
    room: Resources = ()
    """What the cheapest has for pods: allocatable less the cluster's daemons."""

    @property
    def count(self) -> int:
        """How many machines there are in all."""
        return self.idle + self.owned + self.on_demand + self.spot + self.preemptible


NOTHING = Supply()
"""No machine could be had."""


class Available(msgspec.Struct, frozen=True, gc=False):
    """What one profile of a cluster could get."""

    profile: Profile
    supply: Supply


def available(engine: Engine, clusters: Iterable[str]) -> dict[str, list[Available]]:
    """What every profile of these clusters could get; NOTHING for a profile that is held out. Changes nothing.

    Ask between decisions, never while one is made. Ask for many clusters at once, since counting all machines is what
    takes time.
    """
    answers: dict[str, list[Available]] = {name: [] for name in clusters}
    if answers:
        _Survey(engine).fill(answers)
    return answers


class _Wanted(NamedTuple):
    """Profiles of clusters, in columns: one slot of each, and everything that decides which machines would serve it."""

    slot: Array
    cluster: Array
    requirement: Array
    limit: Array
    topology: Array
    asked: Array
    daemons: Array
    unit: Array

    def keys(self) -> list[bytes]:
        """A key for each profile, equal for profiles that ask for the same."""
        columns = self.requirement, self.limit, self.topology, self.asked, self.daemons
        return _cut(np.column_stack([*columns, self.unit]).astype(np.int64))


class _Pick(NamedTuple):
    """Machines for a profile: how many of each level, whether a whole gang fits, in which domain, and the cheapest."""

    levels: list[int]
    whole: bool
    domain: int
    price: int
    shape: int


class _Stock(NamedTuple):
    """Lots in columns, each of one class, domain and level, with price and shape of its cheapest machine."""

    klass: Array
    domain: Array
    level: Array
    machines: Array
    price: Array
    shape: Array


class _Supplies:
    """Free machines or victims, in lots. Shapes that meet the same requirement lists and hold as much are a class."""

    def __init__(self, engine: Engine, lots: Lots) -> None:
        self._shapes, self._daemons, self._lots = engine.inventory.shapes, engine.daemons, lots
        shapes, used = self._shapes, np.unique(lots.shape)
        matches = np.packbits(shapes.matches.view[:, used], axis=0).T
        allocatable = shapes.allocatable.view[used].view(np.uint8)
        classes: dict[bytes, int] = {}
        numbers = [classes.setdefault(row, len(classes)) for row in _cut(np.hstack([allocatable, matches]))]
        self.classes = np.full(len(shapes), MISSING, np.int64)
        self.classes[used] = numbers
        leader = used[np.unique(numbers, return_index=True)[1].astype(np.int64)]
        self._matches, self._allocatable = shapes.matches.view[:, leader], shapes.allocatable.view[leader]
        self._type, self._types = shapes.label(INSTANCE_TYPE)
        self._rooms: dict[int, Array] = {}
        self._stocks: dict[tuple[int, int | None], _Stock] = {}
        self._picks: dict[tuple[int, int, int | None, bytes], _Pick | None] = {}

    def units(self, wanted: _Wanted, rows: Array, daemons: int) -> Array:
        """How many units of each of these profiles a machine of each class holds, and could be used."""
        room, unit, limit = self._room(daemons), wanted.unit[rows], wanted.limit[rows]
        units = np.full((len(rows), len(room)), _LARGE, np.int64)
        for d in range(unit.shape[1]):
            some = np.flatnonzero(unit[:, d] > 0)
            units[some] = np.minimum(units[some], room[:, d] // unit[some, d, None])
        for i in np.flatnonzero((unit <= 0).all(axis=1)).tolist():
            units[i] = (room[:, PODS_DIM] > 0) & (room[:, unit[i] == _SOME] > 0).any(axis=1)
        most = np.maximum(1, wanted.asked[rows])
        most = np.where(limit > 0, np.minimum(most, limit), most)
        return np.minimum(units, most[:, None]) * self._matches[wanted.requirement[rows]]

    def pick(self, topology: int, asked: int, units: Array, below: int | None = None) -> _Pick | None:
        """The machines for a profile, given the units that a machine of each class holds; with `below`, victims.

        Profiles that differ only in the daemons of their clusters often get the same answer, so answers are kept.
        """
        key = topology, asked, below, units.tobytes()
        if key not in self._picks:
            self._picks[key] = self._search(self._stock(topology, below), topology, asked, units)
        return self._picks[key]

    def terms(self, pick: _Pick, daemons: int) -> tuple[float, str, Resources]:
        """(Price, instance type, room) of the cheapest."""
        room = self._room(daemons)[self.classes[pick.shape]]
        amounts = zip(self._shapes.dimensions.names, room.tolist(), strict=True)
        number = int(self._type[pick.shape])
        instance_type = "" if number == MISSING else self._types[number]
        return pick.price / _MICRO, instance_type, tuple(sorted(entry for entry in amounts if entry[1]))

    def domains(self, topology: int, shape: Array) -> Array:
        """The domain of each shape; 0 for all without a topology."""
        if topology == NO_TOPOLOGY:
            return np.zeros(len(shape), np.int64)
        domains: Array = self._shapes.topologies.domain.view[topology, shape]
        return domains

    def _room(self, daemons: int) -> Array:
        """What a machine of each class has for pods beside these daemons, one row a class."""
        room = self._rooms.get(daemons)
        if room is None:
            width = len(self._shapes.dimensions)
            room = self._daemons.room(daemons, self._allocatable, self._matches, width)
            self._rooms[daemons] = room
        return room

    def _stock(self, topology: int, below: int | None) -> _Stock:
        stock = self._stocks.get((topology, below))
        if stock is None:
            lots = self._lots
            if below is not None:
                lots = lots.only(lots.level < below)
                lots = lots._replace(level=np.zeros_like(lots.level))
            stock = self._stocks[topology, below] = self._gathered(lots, topology)
        return stock

    def _gathered(self, lots: Lots, topology: int) -> _Stock:
        """Put lots of one class, domain and level together."""
        lots = lots.only(self.domains(topology, lots.shape) != MISSING)
        klass, domain = self.classes[lots.shape], self.domains(topology, lots.shape)
        keys = (klass * (domain.max(initial=0) + 1) + domain) * (SPOT + 1) + lots.level
        order = np.lexsort((lots.shape, lots.price, keys))
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        first = order[starts]
        machines = np.add.reduceat(lots.machines[order], starts) if len(starts) else lots.machines
        return _Stock(klass[first], domain[first], lots.level[first], machines, lots.price[first], lots.shape[first])

    def _search(self, stock: _Stock, topology: int, asked: int, units: Array) -> _Pick | None:
        """The best domain's machines: it holds the gang whole, then has them soonest, then has most of them."""
        held = units[stock.klass]
        lots = np.flatnonzero(held)
        if not len(lots):
            return None
        domain, whole = 0, True
        if topology != NO_TOPOLOGY:
            where, count = stock.domain[lots], stock.machines[lots]
            machines, incomplete = np.bincount(where, count), np.bincount(where, count * held[lots]) < asked
            soonest = np.full(len(machines), SPOT)
            np.minimum.at(soonest, where, stock.level[lots])
            best = np.flatnonzero(machines)
            for rank in (incomplete, soonest, -machines, self._shapes.topologies.rank.view[topology]):
                best = best[rank[best] == rank[best].min()]
            domain = int(best[0])
            whole, lots = not incomplete[domain], lots[where == domain]
        cheapest = lots[np.argmin(stock.price[lots])]
        levels = np.bincount(stock.level[lots], stock.machines[lots], SPOT + 1).astype(np.int64).tolist()
        return _Pick(levels, whole, domain, int(stock.price[cheapest]), int(stock.shape[cheapest]))


class _Survey:
    """What the last decision left, counted once and asked for many profiles."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._heap = engine, engine.heap
        capacity_type = engine.inventory.shapes.capacity_type.view
        self._free = _Supplies(engine, free_machines(self._heap, capacity_type))
        self._supplies: dict[bytes, Supply] = {}
        self._taken: dict[tuple[bytes, int], tuple[_Pick | None, Array]] = {}

    @cached_property
    def _victims(self) -> Victims:
        return preemptible_machines(self._heap)

    @cached_property
    def _bound(self) -> _Supplies:
        v = self._victims
        return _Supplies(self._engine, in_lots(v.shape, v.level, v.price))

    def fill(self, answers: dict[str, list[Available]]) -> None:
        """Add an answer for every profile of these clusters."""
        engine, records = self._engine, self._engine.clusters
        wanted = self._wanted(answers)
        keys = wanted.keys()
        self._look_up(wanted, keys)
        now, names = int(self._heap.work.h[c.NOW]), engine.inventory.clusters.values
        held = {name: records[name].held_out for name in answers if name in records and records[name].held_out}
        for i, (key, slot, cluster) in enumerate(zip(keys, wanted.slot.tolist(), wanted.cluster.tolist(), strict=True)):
            need, name, supply = engine.needs.need[slot], str(names[cluster]), self._supplies[key]
            assert need is not None  # noqa: S101 - live slots only
            if name in held and held[name].get(need.profile.fingerprint, now) > now:
                supply = NOTHING
            elif supply is NOTHING:
                supply = self._preemptible(wanted, i, key, need.profile.priority)
            answers[name].append(Available(need.profile, supply))

    def _wanted(self, clusters: Iterable[str]) -> _Wanted:
        """The profiles of these clusters."""
        engine, needs = self._engine, self._engine.needs
        # A cluster that is not known has the number -1, which is the last place here; no row looks there.
        asking = np.zeros(len(engine.inventory.clusters) + 1, np.bool_)
        daemons = np.zeros(len(asking), np.int64)
        for name in clusters:
            number, record = engine.inventory.clusters.find(name), engine.clusters.get(name)
            asking[number] = True
            daemons[number] = 0 if record is None else engine.daemons.find(record.daemons)
        rows = np.flatnonzero(asking[needs.cluster.view] & (needs.unit.view != NOBODY))
        profile = needs.cluster.view[rows].astype(np.int64) << 32 | needs.fingerprint.view[rows]
        order = np.argsort(profile, kind="stable")
        rows, starts = rows[order], np.flatnonzero(np.diff(profile[order], prepend=-1))
        slot = rows[starts]
        cluster, topology, asked = needs.cluster.view[slot], needs.topology.view[slot], np.zeros(len(slot), np.int64)
        if len(slot):
            asked = np.where(topology == NO_TOPOLOGY, 0, np.maximum.reduceat(needs.asked.view[rows], starts))
        columns = needs.requirement.view[slot], needs.limit.view[slot], topology, asked, daemons[cluster]
        return _Wanted(slot, cluster, *columns, self._units(rows, starts))

    def _units(self, rows: Array, starts: Array) -> Array:
        """The largest unit of each profile. The rows of a profile stand side by side, from one of these starts on."""
        needs, dimensions = self._engine.needs, self._engine.inventory.shapes.dimensions
        largest = np.zeros((len(starts), len(dimensions)), np.int64)
        if len(starts):
            vectors = needs.unit_vectors.view[needs.unit.view[rows]]
            largest[:, : vectors.shape[1]] = np.maximum.reduceat(vectors, starts, axis=0)
        ends = np.append(starts[1:], len(rows))
        for i in np.flatnonzero(~largest.any(axis=1)).tolist():
            for slot in rows[starts[i] : ends[i]].tolist():
                need = needs.need[slot]
                assert need is not None  # noqa: S101 - live slots only
                named = [d for d, amount in dimensions.known(need.aggregate) if amount and d != PODS_DIM]
                largest[i, named] = _SOME
        return largest

    def _look_up(self, wanted: _Wanted, keys: list[bytes]) -> None:
        """Look up free machines, once for all profiles that ask for the same."""
        supplies, one_each = self._free, np.array(list({key: i for i, key in enumerate(keys)}.values()), np.int64)
        for daemons in np.unique(wanted.daemons[one_each]).tolist():
            rows = one_each[wanted.daemons[one_each] == daemons]
            for i, units in zip(rows.tolist(), supplies.units(wanted, rows, daemons), strict=True):
                topology = int(wanted.topology[i])
                pick = supplies.pick(topology, int(wanted.asked[i]), units)
                if pick is None:
                    self._supplies[keys[i]] = NOTHING
                    continue
                idle, owned, on_demand, spot = pick.levels
                atomic = on_demand + spot == 0 if topology == NO_TOPOLOGY else pick.whole
                self._supplies[keys[i]] = Supply(
                    idle, owned, on_demand, spot, 0, atomic, *supplies.terms(pick, daemons)
                )

    def _preemptible(self, wanted: _Wanted, i: int, key: bytes, priority: int) -> Supply:
        """What the profile could preempt from other clusters.

        Machines of its own cluster may stand below it too. They are subtracted at the end. If the cheapest is
        one of them, the terms are still those of that one.
        """
        supplies, topology, daemons = self._bound, int(wanted.topology[i]), int(wanted.daemons[i])
        if (key, priority) not in self._taken:
            units = supplies.units(wanted, np.array([i]), daemons)[0]
            self._taken[key, priority] = supplies.pick(topology, int(wanted.asked[i]), units, priority), units
        pick, units = self._taken[key, priority]
        if pick is None:
            return NOTHING
        others, cluster = self._victims, wanted.cluster[i]
        own = slice(*np.searchsorted(others.cluster, [cluster, cluster + 1]).tolist())
        shape = others.shape[own]
        mine = (others.level[own] < priority) & (units[supplies.classes[shape]] > 0)
        mine &= supplies.domains(topology, shape) == pick.domain
        count = pick.levels[IDLE] - int(np.count_nonzero(mine))
        return Supply(0, 0, 0, 0, count, False, *supplies.terms(pick, daemons)) if count else NOTHING


def _cut(rows: Array) -> list[bytes]:
    """Each row of a table as bytes."""
    text, width = rows.tobytes(), rows.shape[1] * rows.itemsize
    return [text[i * width : (i + 1) * width] for i in range(len(rows))]
