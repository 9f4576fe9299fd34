"""The engine: how long a decision on a fleet of the catalogue takes, what the engine holds, how fast it takes changes.

Shapes and budgets are those of engine section 11. BIGFLEET_BENCH_SHAPES=5k,50k,500k,5m chooses among the shapes. The
shape 5m takes many minutes and ten gigabytes to generate, so it is measured only if it is named.
"""

import gc
import itertools
import math
import os
import random
import resource
import time
import tracemalloc
from collections.abc import Iterable, Sequence

import msgspec

from bench import engine_profile
from bench.engine_profile import Profile
from bench.harness import Report, number, seconds
from bigfleet.engine.compiled.ensure import ensure
from bigfleet.engine.engine import Decision, Engine
from bigfleet.engine.records import MachineRecord, Policy
from bigfleet.model.demand.need import Need
from bigfleet.sim.demand import SHAPES, FleetShape
from bigfleet.sim.fleet import Fleet, generate

DECISIONS, MOST_DECISIONS = 50, 200
PATIENCE = 60.0
"""Seconds for one series of decisions. As many are made as fit, up to MOST_DECISIONS. Where they are fewer than
DECISIONS, the figure says so."""

LONGEST = 600.0
"""A decision that is expected to take more seconds than this is left out."""

DELTAS = 10_000
CHUNK = 20_000
NOW = 1_000

_BUDGETS = {"5k": (5, 2), "50k": (50, 10), "500k": (500, 50), "5m": (5_000, 500)}
"""Milliseconds for a full decision and for one with 1 % changed."""

_PROFILES = 15
_SHOWN = 0.01
"""A step that takes less than this share of the whole gets no line."""

_TRIED = {
    "full": "lists with bits a kind of need, rows side by side as they are served, narrow columns (ADR 11 and 16)",
    "changed": "sleeping clusters, kept tables, waking by shape (ADR 11), moving entries up only for room (ADR 16)",
    "first": "cohorts and classes, bounds a kind, tables laid once, spares skipped by buyer (ADR 11 and 16)",
    "deltas": "columns at once, guessing shape and key, absent parts read apart (ADR 16)",
    "memory": "columns as narrow as what they hold, bytes in tables, fewer entries (ADR 16); one copy is the next step",
}


def run(report: Report) -> None:
    """Measure the engine's budgets."""
    report.progress("loading the compiled engine (compiles once a version of it)")
    ensure()
    names = os.environ.get("BIGFLEET_BENCH_SHAPES", "5k,50k,500k").split(",")
    full, first = _Expectation(), _Expectation()
    medians: dict[str, float] = {}
    for name in names:
        shape = SHAPES[name]
        report.progress(f"{name}: generating {shape.machines:,} machines in {shape.clusters:,} clusters")
        fleet = generate(shape)
        # The garbage collector must not spend the engine's time on what the generator made.
        gc.collect()
        gc.freeze()
        report.add(f"{name}: machines", shape.machines, "machines")
        report.add(f"{name}: needs", fleet.rows, "rows")
        report.add(f"{name}: units of demand", fleet.units, "units")
        engine = _memory(report, name, fleet)
        if full.allows(report, name, shape, "full decision"):
            medians[name] = _settled(report, name, engine, fleet)
            full.saw(shape, medians[name])
        if name == "500k":
            _inventory(report, engine, fleet)
        del engine
        if first.allows(report, name, shape, "first decision"):
            first.saw(shape, _nothing_bound(report, name, fleet))
        report.add(f"{name}: peak RSS of the process so far", _peak_rss() / 2**20, "MiB")
    if {"50k", "500k"} <= medians.keys():
        report.add("full decision, 500k ÷ 50k", medians["500k"] / medians["50k"], "ratio", 10)


class _Expectation:
    """How long a decision on the next shape would take if time grew with the square of the machines.

    A decision that would take too long is left out.
    """

    def __init__(self) -> None:
        self._last: tuple[FleetShape, float] | None = None

    def saw(self, shape: FleetShape, taken: float) -> None:
        self._last = shape, taken

    def allows(self, report: Report, name: str, shape: FleetShape, what: str) -> bool:
        if self._last is None:
            return True
        smaller, taken = self._last
        expected = taken * (shape.machines / smaller.machines) ** 2
        if expected > LONGEST:
            report.progress(f"{name}: {what} left out: {taken:.1f} s on {smaller.name} may become {expected:,.0f} s")
        return expected <= LONGEST


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _build(records: Iterable[MachineRecord]) -> Engine:
    """An engine with these machines, taken in chunks so that not all records need to exist at once."""
    engine = Engine()
    source = iter(records)
    while chunk := list(itertools.islice(source, CHUNK)):
        engine.inventory.apply(chunk)
    return engine


def _demand(engine: Engine, fleet: Fleet) -> None:
    for record in fleet.clusters:
        engine.set_cluster(record)
        engine.needs.replace(record.id, fleet.needs[record.id])


def _decide(engine: Engine, fleet: Fleet, *, full: bool) -> tuple[float, Decision]:
    start = time.perf_counter()
    decision = engine.decide(Policy(), NOW, fleet.next_binding, full=full)
    return time.perf_counter() - start, decision


def _memory(report: Report, name: str, fleet: Fleet) -> Engine:
    """Build the engine of the settled fleet, and report its memory: with machines alone, then with rows and scratch."""
    machines = fleet.shape.machines
    report.progress(f"{name}: building the engine under tracemalloc")
    tracemalloc.start()
    engine = _build(fleet.machines())
    engine.inventory.ranked()
    gc.collect()
    inventory = tracemalloc.get_traced_memory()[0]
    engine.decide(Policy(), NOW, fleet.next_binding)
    gc.collect()
    alone, parts = tracemalloc.get_traced_memory()[0], engine.footprint()
    _demand(engine, fleet)
    gc.collect()
    demand = tracemalloc.get_traced_memory()[0] - alone
    decision = engine.decide(Policy(), NOW, fleet.next_binding)
    del decision
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    report.add(f"{name}: inventory (tracemalloc)", inventory / machines, "bytes/machine")
    title = f"{name}: engine's own state of its machines (tracemalloc)"
    missed = report.add(title, alone / machines, "bytes/machine", 200)
    for part, size in parts.items():
        report.add(f"{name}: of it, in tables for {part}", size / machines, "bytes/machine")
    if missed:
        made_of = {"inventory": inventory} | {f"tables for {part}": size for part, size in parts.items()}
        made_of["the rest"] = alone - sum(made_of.values())
        largest = sorted(made_of.items(), key=lambda item: -item[1])
        lines = [(part, f"{number(size / machines)} bytes {size / alone:4.0%}") for part, size in largest]
        report.explain(title, "What is held, with no rows", lines, _TRIED["memory"])
    report.add(f"{name}: rows as they are kept", demand / fleet.rows, "bytes/row")
    report.add(f"{name}: all that the engine holds after a decision", held / machines, "bytes/machine")
    return engine


def _settled(report: Report, name: str, engine: Engine, fleet: Fleet) -> float:
    full_budget, changed_budget = _BUDGETS[name]
    warm, decision = _decide(engine, fleet, full=True)
    unmet = len(decision.verdicts.short()) / fleet.rows
    report.add(f"{name}: rows unmet when settled", unmet * 100, "%")
    report.add(f"{name}: actions when settled", len(decision.actions), "actions", 0)
    del decision
    rounds = max(3, min(MOST_DECISIONS, int(PATIENCE / warm)))
    report.progress(f"{name}: {rounds} full decisions")
    times = [_decide(engine, fleet, full=True)[0] for _ in range(rounds)]
    if missed := _percentiles(report, f"{name}: full decision", times, full_budget):
        report.progress(f"{name}: profiling full decisions")
        profiles = engine_profile.of_decision(lambda: _decide(engine, fleet, full=True), min(rounds, _PROFILES))
        _explain(report, missed, profiles, "full")
    still = [_decide(engine, fleet, full=False)[0] for _ in range(rounds)]
    _percentiles(report, f"{name}: nothing changed", still, None)
    for change in (_changes(fleet, few_clusters=True), _changes(fleet, few_clusters=False)):
        report.progress(f"{name}: {rounds} decisions, {change.title}")
        # Changes that reach every cluster make the engine decide everything anew, for which there is no budget.
        _changed(report, name, engine, fleet, change, rounds, changed_budget if change.few else None)
    return percentile(times, 0.5)


def _percentiles(report: Report, title: str, times: list[float], budget: float | None) -> str:
    """Add the p50 and the p99; returns the name of the p99 if it is outside its budget, else nothing."""
    count = "" if len(times) >= DECISIONS else f" (of only {len(times)})"
    report.add(f"{title}, p50{count}", percentile(times, 0.5) * 1e3, "ms")
    worst = f"{title}, p99{count}"
    return worst if report.add(worst, percentile(times, 0.99) * 1e3, "ms", budget) else ""


def _explain(report: Report, figure: str, profiles: list[Profile], tried: str) -> None:
    """Show the middle one of these profiles beside the slowest."""
    middle, slowest = profiles[len(profiles) // 2], profiles[-1]
    whole, worst = sum(middle.values()), sum(slowest.values())
    lines = [
        (step, f"{number(taken * 1e3)} ms {taken / whole:4.0%} {number(slowest.get(step, 0.0) * 1e3):>8}")
        for step, taken in sorted(middle.items(), key=lambda item: -item[1])
        if taken >= _SHOWN * whole
    ]
    what = f"{len(profiles)} profiled runs of their own: {number(whole * 1e3)} ms, slowest {number(worst * 1e3)}"
    report.explain(figure, what, lines, _TRIED[tried])


class _Change(msgspec.Struct, frozen=True):
    """A change of 1 % of the machines and of the rows, in two versions that take turns."""

    title: str
    few: bool
    """Whether all changes are in 1 % of the clusters."""
    machines: tuple[list[MachineRecord], list[MachineRecord]]
    needs: tuple[dict[str, list[Need]], dict[str, list[Need]]]
    """All needs of each cluster in which a row changes."""


def _changes(fleet: Fleet, *, few_clusters: bool) -> _Change:
    """Machines that get a new price and fall empty, and rows that ask for one unit less.

    The change makes nothing buy, but it leaves some clusters with excess, which unmet rows may look at.
    """
    rng = random.Random(7)
    names = list(fleet.needs)
    if few_clusters:
        names = rng.sample(names, max(1, len(names) // 100))
    chosen = set(names)
    candidates = [r for r in fleet.machines() if not few_clusters or r.machine.cluster in chosen]
    machines = rng.sample(candidates, min(len(candidates), fleet.shape.machines // 100))
    rows = [(name, i) for name in names for i, need in enumerate(fleet.needs[name]) if need.units > 1]
    picked = rng.sample(rows, min(len(rows), fleet.rows // 100))
    before = {name: fleet.needs[name] for name, _ in picked}
    after = {name: list(needs) for name, needs in before.items()}
    for name, i in picked:
        after[name][i] = _one_less(after[name][i])
    where = "in 1 % of clusters" if few_clusters else "all over the fleet"
    return _Change(f"1 % changed {where}", few_clusters, ([_touched(r) for r in machines], machines), (after, before))


def _one_less(need: Need) -> Need:
    left = need.units - 1
    return Need(need.profile, tuple((name, amount * left) for name, amount in need.unit), need.unit, need.group)


def _touched(record: MachineRecord) -> MachineRecord:
    machine = msgspec.structs.replace(record.machine, price_per_hour=record.machine.price_per_hour * 1.01)
    return msgspec.structs.replace(record, machine=machine, empty=not record.empty, drain_seconds=45)


def _changed(
    report: Report, name: str, engine: Engine, fleet: Fleet, change: _Change, rounds: int, budget: float | None
) -> None:
    turns = itertools.cycle((0, 1))
    applying, deciding = [], []

    def change_and_decide() -> None:
        turn = next(turns)
        start = time.perf_counter()
        engine.inventory.apply(change.machines[turn])
        for cluster, needs in change.needs[turn].items():
            engine.needs.replace(cluster, needs)
        applying.append(time.perf_counter() - start)
        deciding.append(_decide(engine, fleet, full=False)[0])

    for _ in range(rounds + rounds % 2):
        change_and_decide()
    report.add(f"{name}: {change.title}, applying it", percentile(applying, 0.5) * 1e3, "ms")
    if missed := _percentiles(report, f"{name}: {change.title}", deciding, budget):
        report.progress(f"{name}: profiling decisions, {change.title}")
        _explain(report, missed, engine_profile.of_decision(change_and_decide, 2 * (_PROFILES // 2)), "changed")


def _nothing_bound(report: Report, name: str, fleet: Fleet) -> float:
    def empty() -> Engine:
        engine = _build(fleet.machines(settled=False))
        _demand(engine, fleet)
        return engine

    report.progress(f"{name}: first decision with nothing bound")
    taken, decision = _decide(empty(), fleet, full=True)
    title = f"{name}: first decision, nothing bound"
    missed = report.add(title, taken * 1e3, "ms", 10 * _BUDGETS[name][0])
    report.add(f"{name}: first decision, actions", len(decision.actions), "actions")
    del decision
    if missed:
        report.progress(f"{name}: profiling a first decision")
        engine = empty()
        _explain(report, title, engine_profile.of_decision(lambda: _decide(engine, fleet, full=True), 1), "first")
    return taken


def _inventory(report: Report, engine: Engine, fleet: Fleet) -> None:
    machines = fleet.shape.machines
    report.progress(f"applying {DELTAS:,} deltas to {machines:,} machines")
    records = list(fleet.machines())
    gc.freeze()
    sample = random.Random(11).sample(records, DELTAS)
    turns = itertools.cycle([[_touched(r) for r in sample], sample])

    def apply() -> None:
        engine.inventory.apply(next(turns))

    title = f"applying {DELTAS:,} deltas to {machines:,} machines"
    if report.add(title, seconds(apply, rounds=8) * 1e3, "ms", 50):
        _explain(report, title, engine_profile.of_changes(apply, _PROFILES), "deltas")
    report.progress(f"building an inventory of {machines:,} machines")
    built = seconds(lambda: Engine().inventory.apply(records), rounds=3)
    report.add(f"building the inventory of {machines:,} machines", built, "s", 5)


def _peak_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
