"""`bigfleet provider sim` as a process: it serves by itself, forgets nothing by kill -9, and shows its hosts."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from tests.shared.command_line import Ran, bigfleet
from tests.shared.program import child

SCRIPT = str(Path(sys.executable).with_name("bigfleet"))
POOL = {
    "name": "a",
    "instance_type": "m.8",
    "zone": "eu-1a",
    "capacity_type": "OnDemand",
    "count": 4,
    "resources": {"cpu": 8, "memory": "32Gi"},
}
NEVER = {"create": "1h", "configure": "1h"}


def run(*arguments: str | Path) -> Ran:
    return bigfleet("provider", *arguments)


@contextmanager
def served(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A cloud and its address; whoever has not ended it by then ends it at the end, by a signal as a person would."""
    command = [SCRIPT, "provider", "sim", "--listen", "127.0.0.1:0", *map(str, arguments)]
    with child(command, stderr=subprocess.PIPE) as cloud:
        try:
            assert cloud.stderr is not None
            said = ""
            while "provider_serving" not in said:
                said = cloud.stderr.readline()
                assert said, "it ended before it served"
            yield cloud, json.loads(said)["address"]
        finally:
            if cloud.poll() is None:
                cloud.send_signal(signal.SIGTERM)
            cloud.communicate(timeout=30)


def config(tmp_path: Path, **cloud: object) -> Path:
    path = tmp_path / "cloud.yaml"
    path.write_text(json.dumps({"pools": [POOL], **cloud}))
    return path


async def settled(stub: CapacityProviderStub, machine: str, state: pb.MachineState.ValueType) -> pb.Machine:
    """The machine once it has left this state; each look is a call."""
    while (record := await stub.Get(pb.MachineRef(id=machine), timeout=30)).state == state:
        pass
    return record


def test_it_serves_a_small_cloud_by_itself_and_ends_on_a_signal() -> None:
    async def look(address: str) -> pb.MachineList:
        async with grpc.aio.insecure_channel(address) as channel:
            return await CapacityProviderStub(channel).List(pb.ListFilter(), timeout=30)

    with served() as (cloud, address):
        machines = asyncio.run(look(address)).machines
        assert len(machines) > 20
        assert {machine.state for machine in machines} == {pb.MACHINE_STATE_SPECULATIVE}
        cloud.send_signal(signal.SIGTERM)
        cloud.communicate(timeout=30)
        assert cloud.returncode == 0


def test_after_kill_9_the_hosts_are_still_there_and_what_was_being_created_is_found(tmp_path: Path) -> None:
    state = tmp_path / "cloud.state"
    quick, slow = config(tmp_path, latency={"create": 0, "delete": 0}), tmp_path / "slow.yaml"
    slow.write_text(json.dumps({"pools": [POOL], "latency": NEVER}))

    async def create(address: str, machine: str) -> pb.Machine:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = CapacityProviderStub(channel)
            ack = await stub.Create(pb.CreateRequest(machine_id=machine), timeout=30)
            return ack.machine

    async def look(address: str, machine: str) -> pb.Machine:
        async with grpc.aio.insecure_channel(address) as channel:
            return await settled(CapacityProviderStub(channel), machine, pb.MACHINE_STATE_CREATING)

    async def delete(address: str, machine: str) -> pb.Machine:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = CapacityProviderStub(channel)
            await stub.Delete(pb.DeleteRequest(machine_id=machine), timeout=30)
            return await settled(stub, machine, pb.MACHINE_STATE_DELETING)

    with served("--config", quick, "--state", state) as (_, address):
        asyncio.run(create(address, "a-000000"))
        first = asyncio.run(look(address, "a-000000"))
    assert first.state == pb.MACHINE_STATE_IDLE
    with served("--config", slow, "--state", state) as (cloud, address):
        assert asyncio.run(create(address, "a-000001")).state == pb.MACHINE_STATE_CREATING
        while len(hosts := run("hosts", "--state", state).stdout.split()) < 2:
            assert cloud.poll() is None
        os.kill(cloud.pid, signal.SIGKILL)
        cloud.wait(timeout=30)
    assert run("hosts", "--state", state).stdout.split() == hosts
    with served("--config", quick, "--state", state) as (_, address):
        found = [asyncio.run(look(address, machine)) for machine in ("a-000000", "a-000001")]
        assert [record.state for record in found] == [pb.MACHINE_STATE_IDLE] * 2
        assert [record.host.ref for record in found] == hosts
        assert asyncio.run(delete(address, "a-000000")).state == pb.MACHINE_STATE_SPECULATIVE
        assert run("hosts", "--state", state).stdout.split() == hosts[1:]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sim", "--config", "none.yaml"], r"bigfleet: none\.yaml: No such file or directory"),
        (["sim", "--listen", "here"], r"bigfleet: address 'here': .*"),
        (["sim", "--state", "/dev/null/state"], r"bigfleet: state file /dev/null/state: .*"),
        (["sim", "--state", "/no/such/x"], r"bigfleet: state file /no/such/x: its folder /no/such is not there; .*"),
        (["hosts", "--state", "none"], r"bigfleet: state file none\.cloud: is not there; .*"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert re.fullmatch(said, line), line


def test_a_start_that_fails_with_the_state_file_open_ends_the_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("sim", "--state", tmp_path / "state", "--metrics-listen", f"127.0.0.1:{port}")
    assert result.returncode == 1
    assert "Address already in use" in result.stderr


@pytest.mark.parametrize("keep", [True, False])
def test_a_state_that_is_empty_or_gone_beside_its_hosts_is_no_new_cloud(tmp_path: Path, *, keep: bool) -> None:
    state = tmp_path / "cloud.state"
    with served("--config", config(tmp_path), "--state", state):
        pass
    state.unlink()
    if keep:
        state.touch()
    problem = "is corrupt: it is empty" if keep else f"is gone, but {state}.cloud has the hosts of its cloud"
    said = run("sim", "--config", config(tmp_path), "--state", state).refusal(1)
    assert said.startswith(f"bigfleet: state file {state}: {problem}; restore ")


def test_the_commands_explain_themselves() -> None:
    for command in ("sim", "hosts"):
        result = run(command, "--help")
        assert result.returncode == 0
        assert f"bigfleet provider {command}" in result.stdout
