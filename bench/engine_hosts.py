"""The engine where every machine has a label of its own: spreads over host names, and labels that nobody looks at.

It also measures giving back where very many clusters have excess at once.
"""

import time
from collections.abc import Callable, Iterable

from bench.harness import Report
from bigfleet.engine.compiled.ensure import ensure
from bigfleet.engine.engine import Engine
from bigfleet.engine.records import ClusterRecord, MachineRecord, Policy
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Profile, Spread, WhenUnsatisfiable
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState

HOSTS = (1_250, 5_000, 20_000)
MACHINES = 50_000
CLUSTERS = 1_000
NOW = 1_000
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
UNIT = (("cpu", 1000),)
FIRMLY, PREFERABLY = WhenUnsatisfiable.DO_NOT_SCHEDULE, WhenUnsatisfiable.SCHEDULE_ANYWAY
SPREADS = {
    "host names": (Spread(HOSTNAME, 1, FIRMLY),),
    "preferred host names": (Spread(HOSTNAME, 1, PREFERABLY),),
    "zones, preferred host names": (Spread(ZONE, 1, FIRMLY), Spread(HOSTNAME, 1, PREFERABLY)),
    "zones and host names": (Spread(ZONE, 1, FIRMLY), Spread(HOSTNAME, 1, FIRMLY)),
}


def run(report: Report) -> None:
    """Measure what it costs that every machine has a label of its own."""
    report.progress("loading the compiled engine (compiles once a version of it)")
    ensure()
    for title, spread in SPREADS.items():
        for hosts in HOSTS:
            report.progress(f"a row of {hosts:,} units, spread over {title}")
            taken = _bought(hosts, spread)
            report.add(f"buying {hosts:,} units spread over {title}", taken * 1e3, "ms")
    report.progress(f"{MACHINES:,} machines with a host name each that nobody looks at")
    engine = Engine()
    built = _timed(lambda: engine.inventory.apply(_machine(i) for i in range(MACHINES)))
    report.add(f"building an inventory of {MACHINES:,} machines with a host name each", built * 1e3, "ms")
    report.add("shapes of them", len(engine.inventory.shapes), "shapes")
    report.progress(f"{CLUSTERS:,} clusters that give back")
    engine = _with(_machine(i, f"c{i % CLUSTERS}") for i in range(MACHINES))
    for i in range(CLUSTERS):
        engine.set_cluster(ClusterRecord(id=f"c{i}", excess_since=0))
        engine.needs.replace(f"c{i}", [Need(Profile(), (("cpu", 100_000),), UNIT)])
    engine.decide(Policy(), NOW, 1)
    none = _timed(lambda: engine.decide(Policy(reclaim_after=2 * NOW), NOW, 1, full=True))
    some = _timed(lambda: engine.decide(Policy(), NOW, 1, full=True))
    report.add(f"full decision, {CLUSTERS:,} clusters with excess too new to give back", none * 1e3, "ms")
    report.add(f"full decision, {CLUSTERS:,} clusters that give back", some * 1e3, "ms")


def _timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _with(records: Iterable[MachineRecord]) -> Engine:
    engine = Engine()
    engine.inventory.apply(records)
    return engine


def _bought(hosts: int, spread: tuple[Spread, ...]) -> float:
    """Seconds of a full decision in which one row buys as many units as there are hosts."""
    engine = _with(_machine(i) for i in range(hosts))
    engine.set_cluster(ClusterRecord(id="c"))
    engine.needs.replace("c", [Need(Profile(spread=spread), (("cpu", 1000 * hosts),), UNIT)])
    engine.decide(Policy(), NOW, 1)
    return _timed(lambda: engine.decide(Policy(), NOW, 1, full=True))


def _machine(number: int, cluster: str = "") -> MachineRecord:
    return MachineRecord(
        machine=Machine(
            id=f"m{number:06}",
            state=MachineState.CONFIGURED if cluster else MachineState.IDLE,
            instance_type="any",
            capacity_type=CapacityType.ON_DEMAND,
            host=Host("bench", f"m{number}"),
            zone=f"z{number % 3}",
            price_per_hour=1 + number % 7 / 10,
            allocatable=(("cpu", 8000),),
            labels={HOSTNAME: f"ip-10-0-{number}.internal"},
            cluster=cluster,
        ),
        idle_since=NOW,
    )
