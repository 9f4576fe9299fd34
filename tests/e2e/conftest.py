"""Real control planes for tests: one for each module that asks. What cannot be had fails, it is not skipped."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.sim.controlplane.programs.binaries import Binaries, obtain


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The programs of a control plane; `make e2e` has built them before."""
    return obtain(print)


# A control plane is bound to no event loop, so tests may use it from theirs.
@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """A cluster without nodes, with BigFleet's CRDs, for this module only. A program of it that ended is a failure."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    async with ControlPlane("e2e", folder, binaries) as plane:
        yield plane
        plane.check()
