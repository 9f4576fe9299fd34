"""Pages whose commands take seconds, run as they are written. `tests/e2e/test_pages.py` runs the longer ones."""

from pathlib import Path

import pytest

from tests.shared.page import default_ports, run_page
from tests.shared.page_lists import CHEAP, run_by

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", run_by(CHEAP))
def test_every_command_of_the_page_does_what_it_promises(name: str, tmp_path: Path) -> None:
    with default_ports():
        run_page(ROOT, name, tmp_path, NUMBA_DISABLE_JIT="1")
