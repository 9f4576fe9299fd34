"""An operator that was removed before its machines had left: a command of the guide deletes the Nodes that stay."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from bigfleet.sim.controlplane.programs.binaries import Binaries
from tests.e2e.fleet import Cluster, fleet, pool

pytestmark = pytest.mark.timeout(300)

_GUIDE = Path(__file__).parents[2] / "docs" / "operator-guide.md"


def command() -> str:
    """The command of the guide that deletes Nodes which the operator could not delete."""
    (found,) = re.findall(r"^ +`(kubectl get upn .*)`$", _GUIDE.read_text(), re.MULTILINE)
    return str(found)


async def test_the_nodes_that_upcoming_nodes_name_go_by_the_guide(tmp_path: Path, binaries: Binaries) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 4))
        await made.start_shard()
        shop = await made.cluster("shop")
        await shop.deploy("web", 2, "5")
        await shop.runs(2)
        for program in ("pod-controller", "operator"):
            await shop.kill(program)
        assert len(await shop.nodes()) == 2
        await _paste(command(), shop, binaries)
        assert await shop.nodes() == {}
        # Again, when nothing is left: whoever is not sure may repeat the step.
        await shop.kubectl("delete", "upn", "--all")
        await _paste(command(), shop, binaries)


async def _paste(commands: str, cluster: Cluster, binaries: Binaries) -> None:
    """Run commands as the cluster's admin."""
    tools = f"{binaries['kubectl'].parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": tools, "KUBECONFIG": str(cluster.plane.kubeconfig)}
    shell = await asyncio.create_subprocess_exec("bash", "-eo", "pipefail", "-c", commands, env=environment)
    assert await shell.wait() == 0
