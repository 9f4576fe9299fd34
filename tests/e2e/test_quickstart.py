"""docs/quickstart.md is run as it is written: all commands in one shell, with what it promises, and nothing is left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bigfleet.sim.controlplane.programs.binaries import Binaries
from tests.shared.page import missing, run_page

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]


def test_every_command_of_the_page_does_what_it_promises(tmp_path: Path, binaries: Binaries) -> None:
    run_page(ROOT, "docs/quickstart.md", tmp_path)


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
