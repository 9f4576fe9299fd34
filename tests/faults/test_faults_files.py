"""A data directory that is full, read-only or spoiled: nothing begins that could be forgotten, and a line says why."""

import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from bigfleet.wire.v1alpha1 import shardadmin_pb2 as admin
from tests.faults.stage import AT_ONCE, pool, staged, states, until, workload
from tests.shared.program import Program

POOLS = [pool("bought", "OnDemand", 6)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of its own at `data`, with little room; None where that may not be mounted."""
    data = tmp_path / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(data)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    yield data
    subprocess.run(["umount", "--lazy", data], check=True)


def fill(disk: Path) -> None:
    """Leave no room on it."""
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        for size in (65536, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError:
                pass


def remount(disk: Path) -> None:
    """Have it read-only."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


def limit(program: Program, size: int) -> None:
    """Let no file of its grow beyond this: where no disk can be made full, the next best."""
    resource.prlimit(program.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def test_while_the_file_cannot_be_written_no_action_starts(tmp_path: Path, small_disk: Path | None) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=POOLS, latency=AT_ONCE)
        shard = await stage.shard(cloud)
        operator = stage.operator("prod")
        world = operator.cluster.world
        world.deploy(workload(), 1)
        await operator.until(lambda: world.pods().running == 1)
        limit(shard.program, 0) if small_disk is None else fill(small_disk)
        world.scale("web", 3)
        await shard.program.said("local_file_unwritable")
        await until(lambda: shard.is_unready("local file: cannot be written; no action starts"))
        await shard.cycles(3)
        assert states(await cloud.machines()) == {"Configured": 1, "Speculative": 5}
        assert not (await shard.status()).actions_in_flight
        assert operator.cluster.acknowledged == world.version
        with pytest.raises(grpc.aio.AioRpcError, match="nothing has changed") as refused:
            await shard.admin.SetActuation(admin.SetActuationRequest(paused=True, reason="a test"))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not (await shard.status()).actuation_paused
        limit(shard.program, resource.RLIM_INFINITY) if small_disk is None else (small_disk / "ballast").unlink()
        await shard.program.said("local_file_writable")
        await operator.until(lambda: world.pods().running == 3)
        await until(lambda: shard.is_unready(""))
        assert not operator.endings


async def refusal(folder: Path, **flags: str) -> str:
    """The one line with which a shard refuses to start."""
    async with staged(folder) as stage:
        program = await stage.launch(**flags)
        assert await program.ended() == 1
        (line,) = program.texts
        return line


async def test_a_disk_that_is_full_or_read_only_stops_the_start(tmp_path: Path, small_disk: Path | None) -> None:
    if small_disk is None:
        pytest.skip("mounting a file system is not allowed here")
    fill(small_disk)
    said = await refusal(tmp_path)
    assert re.fullmatch(r"bigfleet: shard file .*/data/shard.db: the disk is full; make room; .*", said)
    remount(small_disk)
    said = await refusal(tmp_path)
    assert re.fullmatch(r"bigfleet: shard file .*/data/shard.db: cannot be opened: Read-only file system; .*", said)


async def test_a_spoiled_file_stops_the_start_and_so_does_another_process(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        shard = await stage.shard()
        said = await refusal(tmp_path, name="second")
        assert re.fullmatch(r"bigfleet: shard file .*: another process has it; stop .*", said)
        await shard.stop()
    file = tmp_path / "data" / "shard.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:16] + bytes(32) + whole[48:])
    said = await refusal(tmp_path)
    assert re.fullmatch(r"bigfleet: shard file .*/data/shard.db: is (corrupt|not a database).*", said)


@pytest.mark.parametrize("keep", [True, False])
async def test_a_file_that_was_emptied_or_removed_is_no_new_shard(tmp_path: Path, *, keep: bool) -> None:
    async with staged(tmp_path) as stage:
        shard = await stage.shard()
        await shard.admin.SetActuation(admin.SetActuationRequest(paused=True, reason="a test"))
        await shard.stop()
        file, epoch = tmp_path / "data" / "shard.db", tmp_path / "data" / "epoch"
        file.unlink()
        if keep:
            file.touch()
        said = await refusal(tmp_path)
        problem = "is corrupt: it is empty" if keep else "is gone"
        assert said.startswith(f"bigfleet: shard file {file}: {problem}, but by the epoch file {epoch} this shard ")
        assert said == await refusal(tmp_path)
        epoch.unlink()
        file.unlink(missing_ok=True)
        shard = await stage.shard(name="anew")
        assert not (await shard.status()).actuation_paused


async def test_a_first_start_that_was_cut_short_is_a_first_start_again(tmp_path: Path) -> None:
    """The journal is made before the epoch file, so a crash between the two leaves no epoch file alone."""
    data = tmp_path / "data"
    data.mkdir()
    # The epoch file cannot be written over a folder.
    (data / "epoch.lock").mkdir()
    assert "epoch file" in await refusal(tmp_path)
    assert (data / "shard.db").stat().st_size
    (data / "epoch.lock").rmdir()
    async with staged(tmp_path) as stage:
        await stage.shard()
