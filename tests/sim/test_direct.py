"""A kit provider without gRPC says what it would say with it, and calls go wrong as they are told to."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from bigfleet.model.machine import MachineState
from bigfleet.provider.client import CALL_SECONDS
from bigfleet.provider.errors import (
    AckMismatchError,
    ExhaustedError,
    FencedError,
    NotFoundError,
    ProviderError,
    RefusedError,
    UnavailableError,
    UnsupportedError,
)
from bigfleet.provider.fencing import Fencing
from bigfleet.providerkit.provider import Provider
from bigfleet.providerkit.store import MemoryStore
from bigfleet.sim import clock
from bigfleet.sim.cloud.backend import CloudBackend
from bigfleet.sim.cloud.hosts import Hosts
from bigfleet.sim.cloud.reading import read
from bigfleet.sim.direct import NONE, DirectClient, Trouble
from bigfleet.telemetry.metrics import ProviderMetrics

S = MachineState
LATENCY = {"create": 20, "configure": 0, "join": 10, "drain": 5, "wipe": 0, "delete": 5}


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **fields: Any) -> None:
        clock.run(test(*args, **fields))

    return run


@asynccontextmanager
async def a_provider(capacity_type: str = "OnDemand") -> AsyncIterator[Provider]:
    pool = {
        "name": "m",
        "instance_type": "c.8",
        "zone": "a",
        "capacity_type": capacity_type,
        "count": 3,
        "resources": {"cpu": 8, "memory": "32Gi"},
    }
    config = read(json.dumps({"latency": LATENCY, "pools": [pool]}), "test")
    backend = CloudBackend(config, Hosts())
    async with Provider(backend, MemoryStore(), ProviderMetrics(CollectorRegistry())) as provider:
        yield provider


def client_of(provider: Provider, epoch: int = 1, trouble: Trouble = NONE) -> DirectClient:
    return DirectClient("sim", provider, Fencing("s", epoch), lambda _method, _machine: trouble)


async def listed(client: DirectClient, since: bytes = b"") -> tuple[dict[str, MachineState], bytes]:
    states: dict[str, MachineState] = {}
    async for page in client.pages(since):
        states |= {machine.id: machine.state for machine in page.machines.values()}
        since = page.revision
    return states, since


@virtually
async def test_the_six_calls_go_round() -> None:
    async with a_provider() as provider:
        client = client_of(provider)
        assert (await client.create("m-000000")).machine.state is S.CREATING
        await asyncio.sleep(21)
        states, cursor = await listed(client)
        assert states == {"m-000000": S.IDLE, "m-000001": S.SPECULATIVE, "m-000002": S.SPECULATIVE}
        ack = await client.configure("m-000000", "prod", b"blob", {"a": "b"})
        assert (ack.machine.cluster, ack.machine.shard_metadata) == ("prod", {"a": "b"})
        assert await listed(client, cursor) == ({"m-000000": S.CONFIGURING}, provider.ledger._revisions.cursor())
        await asyncio.sleep(11)
        assert (await client.get("m-000000")).machine.state is S.CONFIGURED
        await client.drain("m-000000", 0)
        await asyncio.sleep(6)
        await client.delete("m-000000")
        await asyncio.sleep(6)
        assert (await client.get("m-000000")).machine.state is S.SPECULATIVE


@virtually
async def test_refusals_are_the_errors_of_a_real_client() -> None:
    async with a_provider() as provider:
        client = client_of(provider, epoch=2)
        with pytest.raises(NotFoundError):
            await client.get("nobody")
        with pytest.raises(NotFoundError):
            await client.create("nobody")
        with pytest.raises(RefusedError, match="ABORTED"):
            await client.drain("m-000000", 0)
        with pytest.raises(FencedError):
            await client_of(provider, epoch=1).create("m-000000")
    async with a_provider("BareMetal") as provider:
        client = client_of(provider)
        with pytest.raises(UnsupportedError):
            await client.delete("m-000000")
        await client.configure("m-000000", "prod", b"", {"a": "b"})
        with pytest.raises(AckMismatchError, match="shard_metadata") as caught:
            await client.configure("m-000000", "prod", b"", {"another": "stamp"})
        assert caught.value.ack.machine.shard_metadata == {"a": "b"}


@virtually
@pytest.mark.parametrize(
    ("trouble", "error", "seconds", "state"),
    [
        (Trouble(before=3.0, after=4.0), None, 7.0, S.CREATING),
        (Trouble(before=2.0, refused=grpc.StatusCode.RESOURCE_EXHAUSTED), ExhaustedError, 2.0, S.SPECULATIVE),
        (Trouble(refused=grpc.StatusCode.UNAVAILABLE), UnavailableError, 0.0, S.SPECULATIVE),
        (Trouble(lost=True), UnavailableError, CALL_SECONDS, S.SPECULATIVE),
        (Trouble(answer_lost=True), UnavailableError, CALL_SECONDS, S.IDLE),
    ],
)
async def test_trouble_befalls_a_call_as_it_is_told_to(
    trouble: Trouble, error: type[ProviderError] | None, seconds: float, state: MachineState
) -> None:
    async with a_provider() as provider:
        began = asyncio.get_running_loop().time()
        client = client_of(provider, trouble=trouble)
        if error is None:
            await client.create("m-000000")
        else:
            with pytest.raises(error):
                await client.create("m-000000")
        assert asyncio.get_running_loop().time() - began == pytest.approx(seconds)
        assert provider.ledger.get("m-000000").state is state


@virtually
@pytest.mark.parametrize("overtaken", [False, True])
async def test_a_call_may_arrive_when_its_caller_has_given_up_unless_a_newer_one_came_before(overtaken: bool) -> None:
    async with a_provider() as provider:
        client = client_of(provider, trouble=Trouble(lost=True, late_seconds=60.0))
        with pytest.raises(UnavailableError):
            await client.create("m-000000")
        assert provider.ledger.get("m-000000").state is S.SPECULATIVE
        if overtaken:
            newer = client_of(provider, epoch=2)
            with pytest.raises(RefusedError):
                await newer.drain("m-000000", 0)
        await asyncio.sleep(61)
        assert provider.ledger.get("m-000000").state is (S.SPECULATIVE if overtaken else S.CREATING)


@virtually
async def test_what_is_still_on_its_way_ends_with_the_client() -> None:
    async with a_provider() as provider:
        client = client_of(provider, trouble=Trouble(lost=True, late_seconds=60.0))
        with pytest.raises(UnavailableError):
            await client.create("m-000000")
        await client.close()
        await asyncio.sleep(61)
        assert provider.ledger.get("m-000000").state is S.SPECULATIVE
