"""What the engine's purchases cost (engine law 8), beside a lower bound and beside two simpler rules.

The bound is a linear program in which machines and pods may be cut anywhere, but a pod may only be put on types of
machine that could hold it whole.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from bench.engine import percentile
from bench.harness import Report
from bigfleet.engine.engine import Engine
from bigfleet.engine.records import ClusterRecord, Kind, MachineRecord, Policy
from bigfleet.engine.tables.needs import unit_size
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Profile
from bigfleet.model.machine import CapacityType, Machine, MachineState

MIXES = 200
MARKETS = 20
LEAST_MACHINES = 50
CORES = (2, 4, 8, 16, 32, 48, 64, 96)
FAMILIES = (("c", 2, 0.0425), ("m", 4, 0.048), ("r", 8, 0.063))
GIB = 2**20
PODS = 110

Vector = npt.NDArray[np.int64]


class Market(msgspec.Struct, frozen=True):
    """The types of machine on offer, column by column."""

    names: list[str]
    prices: npt.NDArray[np.float64]
    rooms: Vector
    """What a machine of each type holds: millicores, KiB of memory, pods."""


class Mix(msgspec.Struct, frozen=True):
    """Rows of equal pods, in the order in which the engine serves them: largest first."""

    units: Vector
    """What one pod of each row takes."""
    counts: Vector
    """How many pods each row has."""


def run(report: Report) -> None:
    """Measure the cost law: on the markets it is stated for, and on harsher ones."""
    _measure(report, "cost", harsh=False)
    _measure(report, "cost on harsher markets", harsh=True)


def _measure(report: Report, title: str, *, harsh: bool) -> None:
    report.progress(f"{title}: buying for {MIXES} random mixes")
    rng = random.Random(23)
    rules: dict[str, Callable[[Market, Mix, Shop], list[int]]] = {
        "engine": _engine,
        "cheapest machine first, gross": _cheapest_machine,
        "lowest price per core, gross": _cheapest_core,
    }
    ratios: dict[str, list[float]] = {name: [] for name in rules}
    homeless: dict[str, list[float]] = {name: [] for name in rules}
    machines, short = [], 0
    for _ in range(MARKETS):
        market = _market(rng, harsh=harsh)
        shop = Shop(market)
        for _ in range(MIXES // MARKETS):
            mix = _mix(rng)
            while len(_engine(market, mix, shop)) < LEAST_MACHINES:
                mix = Mix(mix.units, mix.counts * 2)
            bound = _lower_bound(market, mix)
            for name, rule in rules.items():
                bought = rule(market, mix, shop)
                ratios[name].append(float(market.prices[bought].sum()) / bound)
                homeless[name].append(_unplaced(market, mix, bought))
                if name == "engine":
                    machines.append(len(bought))
                    short += shop.missing
    report.add(f"{title}, mixes", len(machines), "mixes", MIXES, at_least=True)
    report.add(f"{title}, machines bought for a mix, least", min(machines), "machines", LEAST_MACHINES, at_least=True)
    report.add(f"{title}, machines bought for a mix, median", statistics.median(machines), "machines")
    report.add(f"{title}, units that the engine left unmet", short, "units", 0)
    for name in rules:
        budget = 1.10 if name == "engine" and not harsh else None
        report.add(f"{title} ÷ lower bound, {name}: mean", statistics.fmean(ratios[name]), "ratio", budget)
        for part, share in (("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("max", 1.0)):
            report.add(f"{title} ÷ lower bound, {name}: {part}", percentile(ratios[name], share), "ratio")
        unplaced = f"{title}, pods without a place, first-fit decreasing, {name}: mean"
        report.add(unplaced, statistics.fmean(homeless[name]) * 100, "%")


def _market(rng: random.Random, *, harsh: bool) -> Market:
    """Three families of eight sizes; a core costs within 4 % of its family's price whatever the size.

    On harsher markets families are dear or cheap by 15 %, and nodes keep some of every machine for themselves, so that
    a pod of 16 cores misses a machine of 16.
    """
    names, prices, rooms = [], [], []
    for family, gib, price in FAMILIES:
        level = price * (rng.uniform(0.85, 1.15) if harsh else 1)
        for cores in CORES:
            names.append(f"{family}.{cores}")
            prices.append(round(level * cores * rng.uniform(0.96, 1.04), 4))
            kept = (60 + 3 * cores, int(cores * gib * GIB * 0.04) + 200 * 1024) if harsh else (0, 0)
            rooms.append((cores * 1000 - kept[0], cores * gib * GIB - kept[1], PODS))
    return Market(names, np.array(prices), np.array(rooms, np.int64))


def _mix(rng: random.Random) -> Mix:
    """A dozen to forty sizes of pod, of 0.25 to 16 cores at 0.5 to 12 GiB a core, small ones in larger numbers."""
    rows = {}
    for _ in range(rng.randint(12, 40)):
        cores = round(4 * 2 ** rng.uniform(-2, 4)) / 4
        memory = round(cores * 0.5 * 24 ** rng.random() * 16) * GIB // 16
        rows[round(cores * 1000), memory, 1] = max(1, round(rng.uniform(4, 40) / cores))
    units = sorted(rows, key=lambda unit: (-unit_size(_resources(unit)), f"cpu={unit[0]},memory={unit[1]}"))
    return Mix(np.array(units, np.int64), np.array([rows[unit] for unit in units], np.int64))


class Shop:
    """An engine that sees more Speculative machines of each type than any mix can use."""

    def __init__(self, market: Market) -> None:
        self.missing = 0
        self._engine = Engine()
        self._engine.set_cluster(ClusterRecord(id="mix"))
        self._engine.inventory.apply(
            MachineRecord(machine=_speculative(market, kind, i))
            for kind, room in enumerate(market.rooms)
            for i in range(200 + 8_000_000 // int(room[0]))
        )

    def buy(self, mix: Mix) -> list[int]:
        """The types that the engine buys for the mix, one for each machine."""
        needs = [
            Need(Profile(), _resources(unit * count), _resources(unit))
            for unit, count in zip(mix.units, mix.counts, strict=True)
        ]
        # Without this, a row that an earlier mix had too would keep its arrival and come first.
        self._engine.needs.replace("mix", [])
        self._engine.needs.replace("mix", needs)
        decision = self._engine.decide(Policy(), 0, 1)
        bought = [int(a.machine.partition("-")[0]) for a in decision.actions if a.kind is Kind.PROVISION]
        self.missing = sum(decision.verdicts[row].missing_units for row in decision.verdicts.short())
        return bought


def _speculative(market: Market, kind: int, i: int) -> Machine:
    return Machine(
        id=f"{kind:02d}-{i:05d}",
        state=MachineState.SPECULATIVE,
        instance_type=market.names[kind],
        capacity_type=CapacityType.ON_DEMAND,
        price_per_hour=float(market.prices[kind]),
        resources=(("cpu", int(market.rooms[kind][0])), ("memory", int(market.rooms[kind][1])), ("pods", PODS)),
    )


def _resources(vector: Sequence[int] | Vector) -> tuple[tuple[str, int], ...]:
    return (("cpu", int(vector[0])), ("memory", int(vector[1])))


def _engine(_market: Market, mix: Mix, shop: Shop) -> list[int]:
    return shop.buy(mix)


def _cheapest_machine(market: Market, mix: Mix, _shop: Shop) -> list[int]:
    return _gross(market, mix, market.prices)


def _cheapest_core(market: Market, mix: Mix, _shop: Shop) -> list[int]:
    return _gross(market, mix, market.prices / market.rooms[:, 0])


def _gross(market: Market, mix: Mix, rank: npt.NDArray[np.float64]) -> list[int]:
    """Buy for the sum of each row: of the types that hold one pod the first in rank, as many as the sum takes.

    What a row leaves free on its machines is added up for the next row, as if it were on one machine.
    """
    bought: list[int] = []
    spare = np.zeros(2, np.int64)
    for unit, count in zip(mix.units, mix.counts, strict=True):
        fits = np.flatnonzero((market.rooms >= unit).all(axis=1))
        kind = int(fits[np.argmin(rank[fits])])
        room = market.rooms[kind][:2]
        missing = np.maximum(unit[:2] * count - spare, 0)
        machines = int(np.max(-(-missing // room)))
        bought += [kind] * machines
        spare = spare + room * machines - unit[:2] * count
    return bought


def _unplaced(market: Market, mix: Mix, bought: list[int]) -> float:
    """The share of pods that first-fit decreasing leaves without a place."""
    return float(_first_fit(market, mix, bought).sum()) / float(mix.counts.sum())


def _first_fit(market: Market, mix: Mix, bought: list[int]) -> Vector:
    """Pods of each row that find no place when rows take the machines one after the other, whole pods only."""
    free = market.rooms[bought].copy()
    left = mix.counts.copy()
    for row, unit in enumerate(mix.units):
        fitting = (free // unit).min(axis=1)
        before = np.concatenate([[0], np.cumsum(fitting)[:-1]])
        taken = np.clip(left[row] - before, 0, fitting)
        free -= taken[:, None] * unit
        left[row] -= taken.sum()
    return left


def _lower_bound(market: Market, mix: Mix) -> float:
    """The least that any purchase for the mix can cost.

    Variables: machines of each type, then pods of each row on each type that could hold one of them.
    """
    from scipy.optimize import linprog  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415
    from scipy.sparse import coo_array  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415

    kinds, dimensions = market.rooms.shape
    pairs = [(r, k) for r, unit in enumerate(mix.units) for k in range(kinds) if (market.rooms[k] >= unit).all()]
    # Scaled to cores and GiB, so that the solver's tolerances mean the same in every dimension.
    scale = np.array([1000, GIB, 1])
    values, rows, columns = [], [], []
    for k in range(kinds):
        for d in range(dimensions):
            values.append(-market.rooms[k, d] / scale[d])
            rows.append(k * dimensions + d)
            columns.append(k)
    for at, (r, k) in enumerate(pairs, kinds):
        for d in range(dimensions):
            values.append(mix.units[r, d] / scale[d])
            rows.append(k * dimensions + d)
            columns.append(at)
    size = kinds + len(pairs)
    room: Any = coo_array((values, (rows, columns)), shape=(kinds * dimensions, size)).tocsr()
    served: Any = coo_array(
        ([1.0] * len(pairs), ([r for r, _ in pairs], range(kinds, size))), shape=(len(mix.units), size)
    ).tocsr()
    cost = np.concatenate([market.prices, np.zeros(len(pairs))])
    answer = linprog(cost, A_ub=room, b_ub=np.zeros(kinds * dimensions), A_eq=served, b_eq=mix.counts, method="highs")
    if not answer.success:
        raise RuntimeError(f"the linear program has no answer: {answer.message}")
    return float(answer.fun)
