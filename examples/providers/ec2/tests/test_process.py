"""The provider as a process, driven as a shard drives it: over gRPC, and killed without warning."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from moto.s3.models import S3Backend

from .conftest import Guests, World, eventually

HERE = Path(__file__).parent
PLAIN = "m5-a-19"
"""A machine that --conformance-faults leaves alone: faults are at the first ones."""
FAILED = pb.MACHINE_STATE_FAILED


def command(world: World, port: int) -> list[str]:
    state = str(world.folder / "state")
    where = ["--config", str(world.config), "--state", state, "--listen", f"127.0.0.1:{port}"]
    return [sys.executable, "-m", "bigfleet_ec2", *where, "--conformance-faults"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE.parent)}


@asynccontextmanager
async def serving(world: World, port: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, CapacityProviderStub]]:
    """The provider while the body runs, killed at its end."""
    process = await asyncio.create_subprocess_exec(
        *command(world, port), env=environment(), stderr=asyncio.subprocess.DEVNULL
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


def configure(machine: str) -> pb.ConfigureRequest:
    return pb.ConfigureRequest(machine_id=machine, cluster_id="blue", bootstrap_blob=b"blob")


async def test_a_machine_goes_through_its_whole_life(
    world: World, guests: Guests, free_port: Callable[[], int]
) -> None:
    async with serving(world, free_port()) as (_, stub):
        await stub.Create(pb.CreateRequest(machine_id=PLAIN))
        record = await until(stub, PLAIN, pb.MACHINE_STATE_IDLE, FAILED)
        (made,) = world.instances("running")
        assert (record.host.provider, record.host.ref) == ("aws", f"/us-east-1a/{made['InstanceId']}")
        await stub.Configure(configure(PLAIN))
        assert not (await until(stub, PLAIN, pb.MACHINE_STATE_CONFIGURED, FAILED)).last_error
        await stub.Drain(pb.DrainRequest(machine_id=PLAIN, grace_period_seconds=5))
        assert not (await until(stub, PLAIN, pb.MACHINE_STATE_IDLE, FAILED)).last_error
        await stub.Delete(pb.DeleteRequest(machine_id=PLAIN))
        assert not (await until(stub, PLAIN, pb.MACHINE_STATE_SPECULATIVE, FAILED)).last_error
        assert world.instances("pending", "running") == []


def _stay_pending(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let instances be made that do not run yet, as on AWS; moto's run at once. Returns those that were made."""
    run, made = world.moto.run_instances, list[Any]()

    def pending(*arguments: Any, **options: Any) -> Any:
        reservation = run(*arguments, **options)
        reservation.instances[0]._state.name = "pending"
        made.append(reservation.instances[0])
        return reservation

    monkeypatch.setattr(world.moto, "run_instances", pending)
    return made


async def test_an_instance_that_was_being_made_when_the_provider_died_is_adopted(
    world: World, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = _stay_pending(world, monkeypatch)
    port = free_port()
    async with serving(world, port) as (process, stub):
        await stub.Create(pb.CreateRequest(machine_id=PLAIN))
        await eventually(lambda: world.instances("pending"))
        process.send_signal(signal.SIGKILL)
        await process.wait()
    async with serving(world, port) as (_, stub):
        assert (await stub.Get(pb.MachineRef(id=PLAIN))).state == pb.MACHINE_STATE_CREATING
        pending[0]._state.name = "running"
        record = await until(stub, PLAIN, pb.MACHINE_STATE_IDLE, FAILED)
        (made,) = world.instances()
        assert (record.state, record.host.ref) == (pb.MACHINE_STATE_IDLE, f"/us-east-1a/{made['InstanceId']}")


async def test_a_create_that_died_before_it_reached_the_cloud_ends_failed_and_buys_nothing(
    world: World, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def never(*arguments: Any, **options: Any) -> Any:
        loop.call_soon_threadsafe(asked.set)
        raise AssertionError("the cloud lost this request")

    monkeypatch.setattr(world.moto, "run_instances", never)
    async with serving(world, port) as (process, stub):
        await stub.Create(pb.CreateRequest(machine_id=PLAIN))
        await asked.wait()
        process.send_signal(signal.SIGKILL)
        await process.wait()
    monkeypatch.undo()
    async with serving(world, port) as (_, stub):
        assert "describe finds no host" in (await until(stub, PLAIN, FAILED)).last_error
        await stub.Create(pb.CreateRequest(machine_id=PLAIN))
        await until(stub, PLAIN, pb.MACHINE_STATE_IDLE)
        assert len(world.instances()) == 1


async def test_a_configured_machine_whose_instance_goes_away_is_speculative(
    world: World, guests: Guests, free_port: Callable[[], int]
) -> None:
    async with serving(world, free_port()) as (_, stub):
        await stub.Create(pb.CreateRequest(machine_id=PLAIN))
        await until(stub, PLAIN, pb.MACHINE_STATE_IDLE)
        await stub.Configure(configure(PLAIN))
        await until(stub, PLAIN, pb.MACHINE_STATE_CONFIGURED)
        world.ec2.terminate_instances(InstanceIds=[world.instances("running")[0]["InstanceId"]])
        record = await until(stub, PLAIN, pb.MACHINE_STATE_SPECULATIVE, FAILED)
        assert (record.state, record.host.ref, record.cluster) == (pb.MACHINE_STATE_SPECULATIVE, "", "")


async def test_a_node_that_was_awaited_when_the_provider_died_is_awaited_on(
    world: World, guests: Guests, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    guests.words["join"] = ""
    port = free_port()
    asked, loop, listed = asyncio.Event(), asyncio.get_running_loop(), S3Backend.list_objects_v2

    def list_objects(*arguments: Any, **options: Any) -> Any:
        loop.call_soon_threadsafe(asked.set)
        return listed(*arguments, **options)

    monkeypatch.setattr(S3Backend, "list_objects_v2", list_objects)
    async with serving(world, port) as (process, stub):
        await stub.Create(pb.CreateRequest(machine_id=PLAIN))
        await until(stub, PLAIN, pb.MACHINE_STATE_IDLE)
        await stub.Configure(configure(PLAIN))
        # The provider looks for the agent's word only once it has noted that the blob is handed over.
        await asked.wait()
        process.send_signal(signal.SIGKILL)
        await process.wait()
    guests.words["join"] = "joined"
    async with serving(world, port) as (_, stub):
        assert not (await until(stub, PLAIN, pb.MACHINE_STATE_CONFIGURED, FAILED)).last_error


async def test_a_configuration_that_cannot_be_used_is_one_clear_sentence(
    world: World, free_port: Callable[[], int]
) -> None:
    world.write(pools=[{**world.content["pools"][0], "capacity": "spott"}])
    process = await asyncio.create_subprocess_exec(
        *command(world, free_port()), env=environment(), stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 1
    assert said.decode().startswith("bigfleet-ec2: ")
    assert "spott" in said.decode()
