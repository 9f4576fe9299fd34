"""A day of a thousand spot machines in virtual time: as many interruptions as declared, and the same day every time."""

import asyncio
import json
import logging
import math
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import structlog
from prometheus_client import CollectorRegistry

from bigfleet.model.machine import Call, MachineState
from bigfleet.providerkit.ledger.entry import Entry
from bigfleet.providerkit.ledger.ledger import Request
from bigfleet.providerkit.provider import Provider
from bigfleet.providerkit.store import MemoryStore
from bigfleet.sim import clock
from bigfleet.sim.cloud.backend import CloudBackend
from bigfleet.sim.cloud.hosts import Hosts
from bigfleet.sim.cloud.reading import read
from bigfleet.telemetry.metrics import ProviderMetrics

MACHINES = 1000
DAY = 86_400
LOOK_SECONDS = 15
PROBABILITY = 0.05
CLOUD = {
    "failures": {"create": {"error": 0.02, "late": 0.01}, "configure": {"error": 0.01}},
    "rate_limits": {"create": {"per_second": 10, "burst": 200}},
    "pools": [
        {
            "name": "spot",
            "instance_type": "c.16",
            "zone": "eu-1a",
            "capacity_type": "Spot",
            "interruption_probability": PROBABILITY,
            "count": MACHINES,
            "racks": 25,
            "resources": {"cpu": 16, "memory": "32Gi"},
            "stock_outs": [{"from": "6h", "to": "7h", "capacity": 500}],
        }
    ],
}
NEXT = {
    MachineState.SPECULATIVE: Call.CREATE,
    MachineState.IDLE: Call.CONFIGURE,
    MachineState.FAILED: Call.DELETE,
}


class Seen(NamedTuple):
    """One machine at one look."""

    time: float
    machine: str
    state: MachineState
    host: str
    cluster: str
    error: str


def _every(_: Entry) -> bool:
    return True


async def _day(seed: int) -> list[Seen]:
    """Keep every machine bound to a cluster for a day, and tell all that was seen."""
    cloud = read(json.dumps({**CLOUD, "seed": seed}), "test")
    backend = CloudBackend(cloud, Hosts())
    seen: list[Seen] = []
    now = asyncio.get_running_loop().time

    async with Provider(backend, MemoryStore(), ProviderMetrics(CollectorRegistry())) as provider:
        cursor = b""
        while now() < DAY:
            changed, cursor = provider.ledger.changed(cursor, 0, _every)
            for entry in changed:
                seen.append(Seen(now(), entry.id, entry.state, entry.host, entry.cluster, entry.last_error))
                call = NEXT.get(entry.state)
                if call is not None:
                    cluster = "shop" if call is Call.CONFIGURE else ""
                    await provider.ask(Request(call=call, machine=entry.id, cluster=cluster))
            await asyncio.sleep(LOOK_SECONDS)
    return seen


@pytest.fixture(scope="module")
def day() -> Iterator[list[Seen]]:
    """The day of seed 1, without the log that a provider keeps of it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield clock.run(_day(1))
    structlog.reset_defaults()


def test_a_day_repeats_itself_exactly(day: list[Seen]) -> None:
    assert day == clock.run(_day(1))


def test_another_seed_makes_another_day(day: list[Seen]) -> None:
    assert day != clock.run(_day(2))


def test_no_two_machines_ever_have_one_host(day: list[Seen]) -> None:
    by_host: dict[str, set[str]] = {}
    for look in day:
        if look.host:
            by_host.setdefault(look.host, set()).add(look.machine)
    assert len(by_host) > 2 * MACHINES
    assert all(len(machines) == 1 for machines in by_host.values())


def test_the_stock_out_and_the_failures_are_seen(day: list[Seen]) -> None:
    errors = [look.error for look in day]
    assert any("InsufficientInstanceCapacity" in error for error in errors)
    assert any("InternalError: the create" in error for error in errors)
    assert any("InternalError: the configure" in error for error in errors)
    assert any("did not end within" in error for error in errors)


def test_machines_are_taken_back_as_often_as_the_pool_declares(day: list[Seen]) -> None:
    bound_seconds, taken = 0.0, 0
    since: dict[str, float] = {}
    for look in day:
        began = since.pop(look.machine, None)
        if began is not None:
            bound_seconds += look.time - began
            # Nobody asks for a drain here, so each is an interruption.
            taken += look.state is MachineState.DRAINING
        if look.state is MachineState.CONFIGURED:
            since[look.machine] = look.time
    bound_seconds += sum(DAY - began for began in since.values())
    assert bound_seconds > 0.8 * MACHINES * DAY
    expected = -math.log1p(-PROBABILITY) * bound_seconds / 3600
    assert abs(taken - expected) < 4 * math.sqrt(expected), (taken, expected)
