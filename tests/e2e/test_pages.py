"""Pages that take a while or have a control plane, run as they are written."""

from pathlib import Path

import pytest

from bigfleet.sim.controlplane.programs.binaries import Binaries
from tests.shared.page import default_ports, run_page
from tests.shared.page_lists import LONG, run_by

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", run_by(LONG))
def test_every_command_of_the_page_does_what_it_promises(name: str, tmp_path: Path, binaries: Binaries) -> None:
    with default_ports():
        run_page(ROOT, name, tmp_path, NUMBA_DISABLE_JIT="1")
