"""The model: parsing quantities, rolling requests up, converting records from the wire."""

import gc
import random
from collections.abc import Callable
from typing import Any

import msgspec

from bench.harness import Report, seconds
from bigfleet.model import quantity
from bigfleet.model.crd import CapacityRequest
from bigfleet.model.demand.aggregate import Aggregator, aggregate
from bigfleet.model.demand.need import Rollup
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.model.resources import supply
from bigfleet.wire.machines import machine_from_wire, machine_to_wire
from bigfleet.wire.needs import rollup_from_wire, rollup_to_wire

REQUESTS = 250_000
PROFILES = 60
MACHINES = 20_000

Mix = Callable[[random.Random, int], dict[str, Any]]


def run(report: Report) -> None:
    """Measure the model's budgets."""
    _quantities(report)
    _rollups(report)
    _machines(report)


def _quantities(report: Report) -> None:
    report.progress("parsing quantities")
    texts = [f"{i}{suffix}" for i in range(1, 101) for suffix in ("m", "", "Mi", "Gi", ".5Gi")]
    for text in texts:
        quantity.parse(text)
    hits = texts * 200

    def cached() -> None:
        parse = quantity.parse
        for text in hits:
            parse(text)

    report.add("quantity, cached parse", seconds(cached) / len(hits) * 1e9, "ns", 200)
    fresh = [f"{i}.{i}Gi" for i in range(20_000)]

    def uncached() -> None:
        quantity.parse.cache_clear()
        for text in fresh:
            quantity.parse(text)

    report.add("quantity, first parse", seconds(uncached) / len(fresh) * 1e6, "µs")


def _rollups(report: Report) -> None:
    for mix, title in ((_mixed, "mixed"), (_gangs, "12,500 gangs"), (_sized, "500 sizes a profile")):
        report.progress(f"rolling up {REQUESTS:,} requests of {PROFILES} profiles: {title}")
        _rollup(report, title, mix)


def _rollup(report: Report, title: str, mix: Mix) -> None:
    rng = random.Random(3)
    requests = [_request(i, mix(rng, i)) for i in range(REQUESTS)]
    # The requests stand for a cache that lives as long as its process, so the collector need not look through them.
    gc.collect()
    gc.freeze()
    scratch = seconds(lambda: aggregate(requests), rounds=3)
    report.add(f"roll-up from scratch, {title}", scratch, "s", 1.5)

    aggregator = Aggregator()
    for request in requests:
        aggregator.put(request)
    rows = aggregator.needs()
    chosen = rng.sample(range(REQUESTS), REQUESTS // 100)
    changed = [_request(i, mix(rng, i)) for i in chosen]
    turns = iter([changed, [requests[i] for i in chosen]] * 10)

    def again() -> None:
        for request in next(turns):
            aggregator.put(request)
        aggregator.needs()

    once_more = seconds(again, rounds=9)
    report.add(f"roll-up after 1 % changed, {title}", once_more * 1e3, "ms", 50)
    report.add(f"changed ÷ scratch, {title}", once_more / scratch, "ratio")
    report.add(f"rows, {title}", len(rows), "rows")

    rollup = Rollup(cluster_id="bench", timestamp_unix_nanos=1, needs=rows)
    message = rollup_to_wire(rollup)
    report.add(f"a row from wire, {title}", seconds(lambda: rollup_from_wire(message)) / len(rows) * 1e6, "µs")


def _mixed(rng: random.Random, i: int) -> dict[str, Any]:
    """One profile in ten has far more sizes than rows, one request in ten belongs to a gang of twenty."""
    if i % 10 == 0:
        return _gangs(rng, i // 10)
    kind = rng.randrange(PROFILES)
    step = rng.randrange(500 if kind % 10 == 0 else 8) + 1
    return _spec(kind, step, step * 128 + rng.randrange(2) * 64, None)


def _gangs(rng: random.Random, i: int) -> dict[str, Any]:
    """Every request belongs to a gang of twenty; its members are not quite alike."""
    return _spec(i // 20 % PROFILES, i // 20 % 8 + 1, 1024 + rng.randrange(4) * 64, f"job-{i // 20}")


def _sized(rng: random.Random, _i: int) -> dict[str, Any]:
    """Every profile has 500 sizes, as under a vertical autoscaler."""
    step = rng.randrange(500) + 1
    return _spec(rng.randrange(PROFILES), step, step * 61 % 4096 + 64, None)


def _spec(kind: int, step: int, mebibytes: int, job: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "requirements": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["eu-1a", "eu-1b"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": [f"t{kind}"]},
        ],
        "resources": {"cpu": f"{step * 50}m", "memory": f"{mebibytes}Mi"},
        "priority": kind * 100,
        "interruptionPenalty": str(kind),
    }
    if job is not None:
        spec["coLocation"] = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"job": job}}}
    return spec


def _request(i: int, spec: dict[str, Any]) -> CapacityRequest:
    """A request as it is decoded from the API server."""
    metadata = {"name": f"cr-{i}", "namespace": "bench"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, CapacityRequest)


def _machines(report: Report) -> None:
    report.progress(f"converting {MACHINES:,} machine records")
    messages = [machine_to_wire(_machine(i)) for i in range(MACHINES)]

    def convert() -> None:
        for message in messages:
            machine_from_wire(message)

    report.add("machine, a record from wire", seconds(convert) / MACHINES * 1e6, "µs")


def _machine(i: int) -> Machine:
    return Machine(
        id=f"m-{i}",
        state=MachineState.CONFIGURED,
        instance_type="c8.4xlarge",
        capacity_type=CapacityType.ON_DEMAND,
        host=Host("sim", f"i-{i:08x}"),
        zone="eu-1a",
        price_per_hour=0.68,
        resources=supply({"cpu": "16", "memory": "64Gi", "ephemeral-storage": "200Gi", "pods": "110"}),
        allocatable=supply({"cpu": "15890m", "memory": "62Gi", "ephemeral-storage": "180Gi", "pods": "110"}),
        labels={"topology.kubernetes.io/region": "eu-1", "rack": f"r{i % 400}"},
        cluster=f"cluster-{i % 50}",
        shard_metadata={"bigfleet.lucy.sh/fingerprint": f"{i:032x}"},
    )
