"""The provider as a process, driven as a shard drives it: over gRPC, and killed without warning."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub

from .conftest import JOINS, Rack, eventually

HERE = Path(__file__).parent
PLAIN = "r01-n15"
"""A machine that --conformance-faults leaves alone: faults are at the first ones."""


def command(rack: Rack, port: int) -> list[str]:
    state = str(rack.folder / "state")
    where = ["--config", str(rack.inventory), "--state", state, "--listen", f"127.0.0.1:{port}"]
    return [sys.executable, "-m", "bigfleet_ssh_hosts", *where, "--conformance-faults"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE.parent)}


@asynccontextmanager
async def serving(rack: Rack, port: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, CapacityProviderStub]]:
    """The provider while the body runs, killed at its end."""
    process = await asyncio.create_subprocess_exec(
        *command(rack, port), env=environment(), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = CapacityProviderStub(channel)
            await stub.List(pb.ListFilter(max_results=1), wait_for_ready=True, timeout=60)
            yield process, stub
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(stub: CapacityProviderStub, machine: str, *states: int) -> pb.Machine:
    """The machine once it is in one of these states."""
    while True:
        record = await stub.Get(pb.MachineRef(id=machine), timeout=10)
        if record.state in states:
            return record
        await asyncio.sleep(0.02)


def configure(machine: str, blob: bytes) -> pb.ConfigureRequest:
    return pb.ConfigureRequest(
        machine_id=machine, cluster_id="blue", bootstrap_blob=blob, shard_metadata={"stamp": "1"}
    )


async def test_a_machine_joins_and_leaves_and_cannot_be_deleted(rack: Rack, free_port: Callable[[], int]) -> None:
    async with serving(rack, free_port()) as (_, stub):
        record = await stub.Get(pb.MachineRef(id=PLAIN))
        assert record.state == pb.MACHINE_STATE_IDLE
        assert (record.host.provider, record.host.ref) == ("ssh-hosts", PLAIN)
        await stub.Configure(configure(PLAIN, JOINS))
        assert (await until(stub, PLAIN, pb.MACHINE_STATE_CONFIGURED, pb.MACHINE_STATE_FAILED)).cluster == "blue"
        await stub.Drain(pb.DrainRequest(machine_id=PLAIN, grace_period_seconds=5))
        assert not (await until(stub, PLAIN, pb.MACHINE_STATE_IDLE, pb.MACHINE_STATE_FAILED)).last_error
        assert not (rack.work(PLAIN) / "node").exists()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Delete(pb.DeleteRequest(machine_id=PLAIN))
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_host_whose_bootstrap_the_provider_did_not_survive_is_failed_and_can_be_cleaned(
    rack: Rack, free_port: Callable[[], int]
) -> None:
    slow = b"#!/bin/sh\nmkfifo waiting\necho >started\ncat waiting\n"
    port = free_port()
    async with serving(rack, port) as (process, stub):
        await stub.Configure(configure(PLAIN, slow))
        await eventually((rack.work(PLAIN) / "started").exists)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    # Real hosts end a script whose session is gone only when it next says something; this one is let go by hand.
    (rack.work(PLAIN) / "waiting").write_text("")
    async with serving(rack, port) as (_, stub):
        record = await until(stub, PLAIN, pb.MACHINE_STATE_FAILED)
        assert record.cluster == "blue"
        assert "restarted" in record.last_error
        await stub.Drain(pb.DrainRequest(machine_id=PLAIN))
        record = await until(stub, PLAIN, pb.MACHINE_STATE_IDLE, pb.MACHINE_STATE_FAILED)
        assert (record.state, record.last_error) == (pb.MACHINE_STATE_IDLE, "")


async def test_a_node_that_was_awaited_when_the_provider_died_is_awaited_on(
    rack: Rack, free_port: Callable[[], int]
) -> None:
    port = free_port()
    async with serving(rack, port) as (process, stub):
        await stub.Configure(configure(PLAIN, b"#!/bin/sh\n"))
        await eventually(lambda: _errands(rack) == 2)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    (rack.work(PLAIN) / "node").write_text(f"{PLAIN} Ready\n")
    async with serving(rack, port) as (_, stub):
        record = await until(stub, PLAIN, pb.MACHINE_STATE_CONFIGURED, pb.MACHINE_STATE_FAILED)
        assert (record.state, dict(record.shard_metadata)) == (pb.MACHINE_STATE_CONFIGURED, {"stamp": "1"})


def _errands(rack: Rack) -> int:
    """How many errands were sent to the host: the second one asks whether the node is Ready."""
    return sum(f"{PLAIN}.test sh -s" in line for line in rack.argv().splitlines())


async def test_an_inventory_that_cannot_be_used_is_one_clear_sentence(rack: Rack, free_port: Callable[[], int]) -> None:
    rack.write(hosts=[{**rack.content["hosts"][0], "address": "-oProxyCommand=sh"}])
    process = await asyncio.create_subprocess_exec(
        *command(rack, free_port()), env=environment(), stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 1
    assert said.decode().startswith("bigfleet-ssh-hosts: ")
    assert "address '-oProxyCommand=sh' is no host name" in said.decode()
