"""The backend against hosts that are folders; the scripts and the shell text around them run for real."""

import asyncio
import fcntl
import os
import signal
import stat
from contextlib import suppress

import pytest
from bigfleet.providerkit import BackendError, Change

from bigfleet_ssh_hosts.backend import SSHHosts
from bigfleet_ssh_hosts.inventory import Host
from bigfleet_ssh_hosts.ssh import Result

from .conftest import JOINS, Rack, eventually, job

HOST = "r01-n00"


async def test_every_host_is_offered_as_it_stands(rack: Rack) -> None:
    offers = list(await rack.backend().offers())
    assert [offer.id for offer in offers] == rack.ids
    assert all(offer.host == offer.id for offer in offers)
    assert offers[0].shape.labels == {"topology.bigfleet.lucy.sh/rack": "r01"}


def test_hosts_are_neither_made_nor_deleted(rack: Rack) -> None:
    backend = rack.backend()
    assert not backend.has("create")
    assert not backend.has("delete")


async def test_a_host_joins_says_so_and_leaves(rack: Rack) -> None:
    backend = rack.backend()
    assert not await backend.ready(job(HOST))
    await backend.configure(job(HOST, "blue"), JOINS)
    assert await backend.ready(job(HOST, "blue"))
    await backend.drain(job(HOST, "blue"), 30)
    assert not await backend.ready(job(HOST))
    assert (rack.work(HOST) / "graces").read_text() == "30\n"


async def test_drain_of_a_clean_host_succeeds_again(rack: Rack) -> None:
    backend = rack.backend()
    await backend.drain(job(HOST), 0)
    await backend.drain(job(HOST), 0)


async def test_the_blob_is_in_no_command_line_no_error_and_no_file_that_stays(rack: Rack) -> None:
    backend = rack.backend()
    blob = b"#!/bin/sh\nset -x\necho sesame-open\nexit 3\n"
    with pytest.raises(BackendError, match=r"bootstrap ended with code 3; .*work/bootstrap\.log") as caught:
        await backend.configure(job(HOST, "blue"), blob)
    assert "sesame" not in str(caught.value)
    assert "sesame" not in rack.argv()
    log = rack.work(HOST) / "bootstrap.log"
    assert "sesame-open" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    await backend.drain(job(HOST, "blue"), 0)
    kept = [path.read_bytes() for path in rack.work(HOST).rglob("*") if path.is_file()]
    assert not any(b"sesame" in content for content in kept)


async def test_a_blob_of_any_bytes_arrives_whole(rack: Rack) -> None:
    (rack.folder / "keep").write_text('#!/bin/sh\ncat "$1" >kept\n')
    backend = rack.backend(scripts={**rack.content["scripts"], "bootstrap": "keep"})
    blob = os.urandom(1 << 20) + b"\nEND\n'$(exit 9)'\0"
    await backend.configure(job(HOST), blob)
    assert (rack.work(HOST) / "kept").read_bytes() == blob


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
async def test_a_text_that_arrives_in_part_runs_nothing(rack: Rack, share: float) -> None:
    sent: list[bytes] = []
    backend = rack.backend()
    run = backend._client.run

    async def cut_off(host: Host, remote: str, stdin: bytes = b"") -> Result:
        sent.append(stdin)
        return await run(host, remote, stdin[: int(len(stdin) * share)])

    backend._client.run = cut_off  # type: ignore[method-assign]
    with suppress(BackendError):
        await backend.configure(job(HOST), JOINS)
    assert sent
    assert not (rack.work(HOST) / "node").exists()


async def test_a_drain_that_fails_says_why(rack: Rack) -> None:
    backend = rack.backend()
    await backend.configure(job(HOST, "blue"), JOINS)
    (rack.work(HOST) / "stubborn").touch()
    with pytest.raises(BackendError, match="leaving the cluster ended with code 1: pods will not go"):
        await backend.drain(job(HOST, "blue"), 0)


async def test_what_a_host_says_is_bounded(rack: Rack) -> None:
    (rack.folder / "drain").write_text("#!/bin/sh\nyes nonsense | head -c 3000000\nexit 1\n")
    with pytest.raises(BackendError) as caught:
        await rack.backend().drain(job(HOST), 0)
    assert len(str(caught.value)) < 2000


async def test_a_host_that_cannot_be_reached_is_named(rack: Rack) -> None:
    rack.down(HOST, True)
    backend = rack.backend()
    with pytest.raises(BackendError, match=f"host {HOST}: .*could not be reached: .*No route to host"):
        await backend.configure(job(HOST), JOINS)
    assert not await backend.ready(job(HOST))


async def test_a_host_taken_out_of_the_inventory_is_named(rack: Rack) -> None:
    with pytest.raises(BackendError, match="host gone: is not in the inventory"):
        await rack.backend().drain(job("gone"), 0)


async def test_a_client_that_is_not_there_is_named(rack: Rack) -> None:
    backend = rack.backend(ssh={**rack.content["ssh"], "client": ["no-such-ssh"]})
    with pytest.raises(BackendError, match="no-such-ssh: No such file"):
        await backend.ready(job(HOST))


async def test_a_bootstrap_that_is_given_up_ends_its_session(rack: Rack) -> None:
    backend = rack.backend()
    blob = b"#!/bin/sh\nmkfifo waiting\necho >started\ncat waiting\n"
    waiting = asyncio.create_task(backend.configure(job(HOST), blob))
    await eventually((rack.work(HOST) / "started").exists)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await backend.drain(job(HOST), 0)
    assert not list(rack.work(HOST).glob("errand.*"))


async def test_an_errand_waits_for_one_that_still_runs_on_the_host_and_then_gives_up(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigfleet_ssh_hosts.backend._PATIENCE_SECONDS", 0)
    backend = rack.backend()
    rack.work(HOST).mkdir()
    with (rack.work(HOST) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BackendError, match="code 75: another errand is still at work on this host"):
            await backend.drain(job(HOST), 0)
    await backend.drain(job(HOST), 0)


async def test_what_a_bootstrap_leaves_running_holds_up_neither_it_nor_the_next_errand(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigfleet_ssh_hosts.backend._PATIENCE_SECONDS", 0)
    backend = rack.backend()
    await backend.configure(job(HOST, "blue"), b"#!/bin/sh\nsleep 600 &\necho $! >daemon\n")
    try:
        await backend.drain(job(HOST, "blue"), 0)
    finally:
        os.kill(int((rack.work(HOST) / "daemon").read_text()), signal.SIGKILL)


async def _notices(backend: SSHHosts, count: int) -> list[str]:
    found = []
    async for notice in backend.watch(dict):
        assert notice.change is Change.BROKEN
        found.append(notice.machine)
        if len(found) == count:
            break
    return found


async def test_a_host_that_stays_silent_is_told_of_for_as_long_as_it_is(rack: Rack) -> None:
    rack.down("r01-n03", True)
    backend = rack.backend(watch={"every_seconds": 0.01, "broken_after_seconds": 0.02})
    assert await _notices(backend, 2) == ["r01-n03", "r01-n03"]


async def test_a_host_that_comes_back_is_not_told_of_at_its_next_short_silence(rack: Rack) -> None:
    backend = rack.backend(watch={"every_seconds": 0.01, "broken_after_seconds": 3600})
    rack.down(HOST, True)
    rounds = asyncio.create_task(_notices(backend, 1))
    await eventually(lambda: HOST in backend._silent_since)
    rack.down(HOST, False)
    await eventually(lambda: HOST not in backend._silent_since)
    rounds.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rounds
