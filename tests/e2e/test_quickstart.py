"""docs/quickstart.md is run as it is written: all commands in one shell, with what it promises, and nothing is left."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from bigfleet.sim.controlplane.programs.binaries import Binaries
from tests.shared.page import Shell, marked, missing, nothing_stays, steps

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
_GONE_SECONDS = 30.0


def _checkout(folder: Path) -> Path:
    """This checkout, but for what is built in it."""
    made = folder / "checkout"
    made.mkdir()
    for each in ROOT.iterdir():
        if each.name != "build":
            (made / each.name).symlink_to(each)
    return made


def test_every_command_of_the_page_does_what_it_promises(tmp_path: Path, binaries: Binaries) -> None:
    page = steps(PAGE.read_text())
    assert len(page) > 10
    mark = uuid.uuid4().hex
    with nothing_stays(mark):
        # The cluster's name is the user's own otherwise, and somebody may be reading the page just now.
        shell = Shell(_checkout(tmp_path), mark, {"XDG_STATE_HOME": str(tmp_path / "state")})
        for step in page:
            printed = shell.run(step.commands)
            line = missing(step.promised, printed)
            assert line is None, f"the page promises\n{line}\nbelow\n{step.commands}\nbut it says\n{printed}"
        assert shell.close() == 0
        # What was killed takes a moment to be gone.
        end = time.monotonic() + _GONE_SECONDS
        while (left := marked(mark)) and time.monotonic() < end:
            time.sleep(0.1)
        assert left == []


@pytest.mark.parametrize(
    ("promised", "printed"),
    [
        (("web 8/10 8",), "web 10/10 8"),
        (("general-… Ready",), "general-000001 NotReady"),
        (("general-… Ready <none> 5s", "general-… Ready <none> 5s"), "general-000001   Ready   <none>   7s"),
        (("machines: 6 (Speculative 6)",), "machines: 6 (Speculative 6, Failed 1)"),
    ],
)
def test_a_promise_that_is_not_kept_is_noticed(promised: tuple[str, ...], printed: str) -> None:
    assert missing(promised, printed) == promised[-1]


def test_a_shell_is_not_left_at_another_cluster_when_the_one_it_asks_for_does_not_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bigfleet", "dev", "cluster", "env", "--name", "none"],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "export KUBECONFIG=/dev/null\n")
    assert "bigfleet dev cluster up --name none" in done.stderr
