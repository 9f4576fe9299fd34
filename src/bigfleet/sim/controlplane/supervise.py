"""The process behind a named cluster: it runs in the foreground until it is told to end, or in the background."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from bigfleet.sim.controlplane import places
from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.sim.controlplane.errors import ControlPlaneError
from bigfleet.sim.controlplane.places import Record
from bigfleet.sim.controlplane.programs.binaries import Binaries

_POLL_SECONDS = 0.1
_MAX_SHOWN = 2000


async def supervise(name: str, binaries: Binaries, ready: Callable[[Record], None]) -> None:
    """Run a cluster until SIGTERM, SIGINT or SIGHUP; ControlPlaneError if it does not start or loses a program."""
    this = asyncio.current_task()
    assert this is not None  # noqa: S101 - it is what runs
    told = False

    def end() -> None:
        nonlocal told
        told = True
        this.cancel()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, end)
    try:
        with places.held(name) as folder:
            record = Record(name=name, pid=os.getpid(), born=places.born(os.getpid()), began=time.time())
            places.write(folder, record)
            async with ControlPlane(name, folder, binaries) as plane:
                version = (await plane.version()).removeprefix("v")
                record = msgspec.structs.replace(
                    record, version=version, server=plane.server, kubeconfig=str(plane.kubeconfig)
                )
                places.write(folder, record)
                ready(record)
                await plane.watch()
    except asyncio.CancelledError:
        if not told:
            raise


def leave_behind(name: str) -> Record:
    """Start a cluster in a process of its own that outlives this one, and wait until the cluster is ready."""
    places.check_free(name)
    log = places.log_of(name)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bigfleet", "dev", "cluster", "up", "--name", name],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            record = places.read(name)
            if record is not None and record.pid == process.pid and record.ready:
                return record
            time.sleep(_POLL_SECONDS)
    except BaseException:
        process.terminate()
        raise
    said = log.read_text(errors="replace").strip().removeprefix("bigfleet dev: ")
    log.unlink()
    raise ControlPlaneError(f"the process behind the cluster ended: {said[-_MAX_SHOWN:]}")
