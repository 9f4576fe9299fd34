"""docs/provider-author-guide.md is run as it is written, from an empty folder to a certified provider."""

import sysconfig
import uuid
from pathlib import Path

import pytest

from tests.conformance.stand import free_port
from tests.shared.page import Shell, marked, missing, nothing_stays, steps

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "provider-author-guide.md"


def _mine(page: str) -> str:
    """The page with what is the reader's own: the folder of the checkout, and ports that nothing else uses."""
    page = page.replace("/path/to/bigfleet", str(ROOT))
    return page.replace(":7760", f":{free_port()}").replace(":8760", f":{free_port()}")


# A new environment of the page's own finds what is installed here, so that pip needs no package index.
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT / 'src'}:{sysconfig.get_path('purelib')}",
    "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


@pytest.mark.timeout(400)
def test_every_command_of_the_guide_does_what_it_promises(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with nothing_stays(mark):
        shell = Shell(tmp_path, mark, ENVIRONMENT)
        for step in steps(_mine(PAGE.read_text())):
            printed = shell.run(step.commands)
            line = missing(step.promised, printed)
            assert line is None, f"the page promises\n{line}\nbelow\n{step.commands}\nbut it says\n{printed}"
        assert shell.close() == 0
        assert marked(mark) == []
