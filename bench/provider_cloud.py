"""The simulated cloud with half a million machines: how fast it starts, its memory, and how fast it lists."""

import asyncio
import itertools
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.harness import Report
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import PROVIDER_CHANNEL_OPTIONS
from bigfleet.transport.identity import Role
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub

MACHINES = 500_000
CHANGED = 1_000
ROUNDS = 9
_POOLS = 10
_RACK = 40
_START_SECONDS = 120.0
_CALL_SECONDS = 120.0


def run(report: Report) -> None:
    """Measure the cloud's budgets."""
    report.progress(f"starting a cloud of {MACHINES:,} machines in {MACHINES // _RACK:,} racks")
    with tempfile.TemporaryDirectory() as folder:
        config, log = Path(folder) / "cloud.yaml", Path(folder) / "log"
        config.write_text(_config())
        command = [str(Path(sys.executable).with_name("bigfleet")), "provider", "sim", "--config", str(config)]
        with log.open("wb") as errors:
            start = time.perf_counter()
            cloud = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stderr=errors)
            try:
                port = _port(log, cloud)
                asyncio.run(_measure(report, port, start, cloud.pid))
            finally:
                cloud.terminate()
                cloud.wait()


def _config() -> str:
    count = MACHINES // _POOLS
    pools = "".join(
        f"- {{name: pool-{n}, instance_type: m.{n}, zone: eu-1{'abc'[n % 3]}, family: m, price_per_hour: 0.4, "
        f"capacity_type: {'Spot, interruption_probability: 0.05' if n % 2 else 'OnDemand'}, "
        f"count: {count}, racks: {count // _RACK}, resources: {{cpu: 8, memory: 32Gi, pods: 110}}, "
        "allocatable: {cpu: 7916m, memory: 29.6Gi, pods: 110}}\n"
        for n in range(_POOLS)
    )
    return f"region: eu-1\nlatency: {{create: 10ms}}\npools:\n{pools}"


def _port(log: Path, cloud: "subprocess.Popen[bytes]") -> int:
    """The port that the cloud serves on, from its log."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and cloud.poll() is None:
        if found := re.search(rb'"address": "127\.0\.0\.1:(\d+)"', log.read_bytes()):
            return int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"the cloud did not start: {log.read_text(errors='replace')[-500:]}")


async def _measure(report: Report, port: int, start: float, pid: int) -> None:
    dialer = Dialer(TCPAddress("127.0.0.1", port), Role.PROVIDER, None, PROVIDER_CHANNEL_OPTIONS)
    stub = CapacityProviderStub(await dialer.channel())
    await stub.Get(pb.MachineRef(id="pool-0-000000"), timeout=_CALL_SECONDS)
    report.add(f"cloud of {MACHINES:,}, start to first answer", time.perf_counter() - start, "s", 20)
    report.add(f"cloud of {MACHINES:,}, peak memory at start", _peak(pid), "MiB", 1536)

    report.progress(f"listing {MACHINES:,} machines")
    began = time.perf_counter()
    everything = await stub.List(pb.ListFilter(), timeout=_CALL_SECONDS)
    report.add(f"cloud of {MACHINES:,}, full List in one answer", time.perf_counter() - began, "s")
    if len(everything.machines) != MACHINES:
        raise RuntimeError(f"{len(everything.machines)} machines listed")
    report.add(f"cloud of {MACHINES:,}, peak memory after it", _peak(pid), "MiB", 1536)

    report.progress(f"creating {CHANGED:,} machines and listing what changed")
    chosen = [machine.id for machine in itertools.islice(everything.machines, 0, MACHINES, MACHINES // CHANGED)]
    since, creating = everything.revision, pb.ListFilter(states=[pb.MACHINE_STATE_CREATING])
    del everything
    await asyncio.gather(*(stub.Create(pb.CreateRequest(machine_id=i), timeout=_CALL_SECONDS) for i in chosen))
    while (await stub.List(creating, timeout=_CALL_SECONDS)).machines:  # noqa: ASYNC110 - another process is awaited
        await asyncio.sleep(0.1)
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        delta = await stub.List(pb.ListFilter(since_revision=since), timeout=_CALL_SECONDS)
        times.append(time.perf_counter() - began)
        if len(delta.machines) != CHANGED:
            raise RuntimeError(f"{len(delta.machines)} machines changed")
    report.add(f"cloud of {MACHINES:,}, delta List of {CHANGED:,}", statistics.median(times) * 1e3, "ms", 50)
    await dialer.hang_up()


def _peak(pid: int) -> float:
    """The most memory that the process ever had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
