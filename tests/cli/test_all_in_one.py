"""`bigfleet all-in-one`, run as a person runs it: a shard and a cloud that go on where they were ended."""

import asyncio
import signal
from pathlib import Path

import pytest
import yaml

from bigfleet.cli.ctl.shard_client import Target, get_status
from bigfleet.model.machine import MachineState
from bigfleet.sim.cloud.hosts import beside, existing
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.habits import Habits
from bigfleet.sim.clusters.operator import SimOperator, Waits
from bigfleet.sim.clusters.world import Pods, Workload, World
from bigfleet.transport.address import UnixAddress
from tests.cli.playground import all_in_one, command
from tests.shared.command_line import Ran, bigfleet

ROOT = Path(__file__).parents[2]
PODS = 6

pytestmark = pytest.mark.timeout(300)


def run(*arguments: str | Path, state: Path | None = None) -> Ran:
    return bigfleet("all-in-one", *arguments, **({} if state is None else {"XDG_STATE_HOME": str(state)}))


async def test_it_serves_a_cluster_goes_on_after_kill_9_and_stops_when_told(tmp_path: Path) -> None:
    address, world = UnixAddress(f"{tmp_path}/s"), World()
    world.deploy(Workload(name="web", unit=(("cpu", 5000),)), PODS)
    cluster = Cluster("shop", world, Habits(rollup_seconds=0.5, ready_seconds=0.0))
    operator = SimOperator(cluster, address, None, Waits(first=0.1, most=0.5))
    operating = asyncio.create_task(operator.run())
    try:
        async with all_in_one(tmp_path) as first:
            await operator.until(lambda: cluster.states()[MachineState.CREATING] > 0)
            epoch = cluster.epoch
            first.kill()
            await operator.until(lambda: not cluster.connected)
        async with all_in_one(tmp_path) as second:
            await operator.until(lambda: world.pods() == Pods(0, PODS))
            status = await get_status(Target(address, None))
            assert status.epoch > epoch
            # The cloud died too, and what it had not begun in earnest is Failed. But nothing was bought twice, and no
            # host of the first life is left without a machine.
            assert status.machines_by_state["Configured"] == PODS
            assert set(status.machines_by_state) <= {"Configured", "Speculative", "Failed"}
            assert len(existing(beside(tmp_path / "data" / "cloud.state"))) == PODS
            second.send_signal(signal.SIGTERM)
            assert await second.wait() == 0
        assert world.pods() == Pods(0, PODS)
    finally:
        operating.cancel()
        await asyncio.gather(operating, return_exceptions=True)


async def test_two_on_one_data_directory_is_refused_in_a_line(tmp_path: Path) -> None:
    async with all_in_one(tmp_path) as first:
        other = await asyncio.create_subprocess_exec(*command(tmp_path), stderr=asyncio.subprocess.PIPE)
        _, said = await other.communicate()
        first.send_signal(signal.SIGINT)
        assert await first.wait() == 0
    assert other.returncode == 1
    (line,) = said.decode().splitlines()
    assert line.startswith(f"bigfleet: state file {tmp_path}/data/cloud.state: another process has it")


def test_help_has_the_flags_of_a_shard_that_make_sense_here() -> None:
    said = " ".join(run("--help").stdout.split())
    for flag in ("--cloud", "--config", "--print-config", "--listen", "--data-dir", "--reclaim-after", "--no-dry-run"):
        assert f" {flag} " in said
    assert " --provider " in said
    assert " --tls-cert " not in said
    assert "a coordinator comes with a later release" in said
    assert "Examples: bigfleet all-in-one" in " ".join(said.split())


def test_settings_are_those_of_a_shard_and_leave_no_trace_when_printed(tmp_path: Path) -> None:
    result = run("--config", "examples/shard/laptop.yaml", "--reclaim-after", "7s", "--print-config", state=tmp_path)
    assert result.returncode == 0, result.stderr
    printed = yaml.safe_load(result.stdout)
    assert (printed["shard_id"], printed["reclaim_after"], printed["idle_hold_spot"]) == ("laptop", "7s", "10s")
    assert list(tmp_path.iterdir()) == []


def test_certificates_are_for_processes_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "shard.yaml"
    file.write_text("{tls_cert: a.pem, tls_key: a.key, tls_ca: ca.pem}")
    result = run("--config", file, state=tmp_path)
    assert result.returncode == 1
    assert result.stderr == (
        "bigfleet: TLS: not in one process: run `bigfleet shard` and `bigfleet provider sim`, "
        "each with its certificate\n"
    )


def test_a_provider_may_not_have_the_name_of_the_cloud(tmp_path: Path) -> None:
    result = run("--provider", "sim=127.0.0.1:1", "--data-dir", tmp_path / "data")
    assert result.returncode == 1
    assert result.stderr == ("bigfleet: providers: 'sim' is the name of the cloud in this process; choose another\n")


def test_a_cloud_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = run("--cloud", tmp_path / "none.yaml", "--data-dir", tmp_path / "data")
    assert result.returncode == 1
    assert result.stderr == f"bigfleet: {tmp_path}/none.yaml: No such file or directory\n"


async def test_it_decides_while_the_engine_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    async with all_in_one(tmp_path):
        target = Target(UnixAddress(f"{tmp_path}/s"), None)
        while not (status := await get_status(target)).cycle:  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.1)
        assert status.engine.startswith("interpreted")
        assert status.waits_for_engine == ""
