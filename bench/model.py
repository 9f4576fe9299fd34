"""The model: parsing quantities, rolling requests up, converting at the edge."""

import random

import msgspec

from bench.harness import Report, seconds
from bigfleet.model import quantity
from bigfleet.model.aggregate import Aggregator, aggregate
from bigfleet.model.crd import CapacityRequest
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.model.need import Rollup
from bigfleet.model.resources import supply
from bigfleet.wire.machines import machine_from_wire, machine_to_wire
from bigfleet.wire.needs import rollup_from_wire, rollup_to_wire

REQUESTS = 250_000
PROFILES = 60
MACHINES = 20_000


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
    report.progress(f"rolling up {REQUESTS:,} requests of {PROFILES} profiles")
    rng = random.Random(3)
    requests = [_request(rng, i) for i in range(REQUESTS)]
    report.add("roll-up, 250,000 requests from scratch", seconds(lambda: aggregate(requests), rounds=3), "s", 1.5)

    aggregator = Aggregator()
    for request in requests:
        aggregator.put(request)
    rows = aggregator.needs()
    report.add("roll-up, rows made of 250,000 requests", len(rows), "rows")
    changed = [_request(rng, i) for i in rng.sample(range(REQUESTS), REQUESTS // 100)]
    turns = iter([changed, [requests[int(c.metadata.name[3:])] for c in changed]] * 10)

    def again() -> None:
        for request in next(turns):
            aggregator.put(request)
        aggregator.needs()

    report.add("roll-up, again after 1 % changed", seconds(again, rounds=9) * 1e3, "ms", 50)

    rollup = Rollup(cluster_id="bench", timestamp_unix_nanos=1, needs=rows)
    message = rollup_to_wire(rollup)
    report.add("roll-up, a row from wire", seconds(lambda: rollup_from_wire(message)) / len(rows) * 1e6, "µs")
    report.add("roll-up, a row to wire", seconds(lambda: rollup_to_wire(rollup)) / len(rows) * 1e6, "µs")


def _request(rng: random.Random, i: int) -> CapacityRequest:
    """A request as it is decoded from the API server; one profile in ten has far more sizes than rows."""
    kind = rng.randrange(PROFILES)
    sizes = 500 if kind % 10 == 0 else 8
    step = rng.randrange(sizes) + 1
    document = {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": f"cr-{i}", "namespace": f"team-{kind}"},
        "spec": {
            "requirements": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["eu-1a", "eu-1b"]},
                {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": [f"t{kind}"]},
            ],
            "resources": {"cpu": f"{step * 50}m", "memory": f"{step * 128 + rng.randrange(2) * 64}Mi"},
            "priority": kind * 100,
            "interruptionPenalty": str(kind),
        },
    }
    return msgspec.convert(document, CapacityRequest)


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
