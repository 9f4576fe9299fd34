"""An API server that is silent for longer than a Lease lasts: whoever leads steps down, and leads again."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bigfleet.sim.controlplane.programs.binaries import Binaries
from tests.e2e.cluster import until
from tests.e2e.fleet import fleet, pool

pytestmark = pytest.mark.timeout(600)

SILENCE_SECONDS = 25.0
PATIENCE_SECONDS = 180.0


async def test_an_api_server_that_is_silent_for_long_ends_no_program(tmp_path: Path, binaries: Binaries) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 6))
        await made.start_shard()
        cluster = await made.cluster("a")
        await cluster.deploy("before", 2, "5")
        await cluster.runs(2, seconds=PATIENCE_SECONDS)
        api_server = cluster.plane.pids["kube-apiserver"]
        os.kill(api_server, signal.SIGSTOP)
        try:
            await asyncio.sleep(SILENCE_SECONDS)
            for program in cluster.programs.values():
                await program.said("leadership_lost", PATIENCE_SECONDS)
        finally:
            os.kill(api_server, signal.SIGCONT)
        await cluster.deploy("after", 2, "5")
        await cluster.runs(2, "after", PATIENCE_SECONDS)
        await cluster.runs(4, seconds=PATIENCE_SECONDS)

        async def is_settled() -> bool:
            return (await made.states())["Configured"] == 4

        await until(is_settled, "each pod has its machine", PATIENCE_SECONDS)
        programs = [*made.programs.values(), *cluster.programs.values()]
        assert [program.name for program in programs if program.process.returncode is not None] == []
