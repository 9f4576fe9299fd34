"""docs/quickstart.md is run as it is written: all commands in one shell, with what it promises, and nothing is left."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from bigfleet.sim.controlplane.programs.binaries import Binaries

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
_GONE_SECONDS = 30.0

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_AGE = re.compile(r"\d+s")


class Step(msgspec.Struct, frozen=True):
    """Commands, and the lines that the page shows below them."""

    commands: str
    promised: tuple[str, ...] = ()


def steps(page: str) -> list[Step]:
    """All that a reader pastes, in order."""
    found: list[Step] = []
    for language, text in _FENCE.findall(page):
        if language in ("bash", "console"):
            found.append(Step(text))
        else:
            assert language == "text", f"a block is neither for the shell nor what it says: {text}"
            # A line of nothing but `…` stands for as many as there are, or none.
            promised = tuple(line for line in text.splitlines() if line.strip(" …"))
            found[-1] = Step(found[-1].commands, promised)
    return found


def missing(promised: tuple[str, ...], printed: str) -> str | None:
    """The first promised line for which there is none of its own; None if all come, in whatever order."""
    lines = [line.strip() for line in printed.splitlines()]
    for line in promised:
        pattern = _pattern(line)
        match = next((each for each in lines if pattern.fullmatch(each)), None)
        if match is None:
            return line
        lines.remove(match)
    return None


def _pattern(line: str) -> re.Pattern[str]:
    """A line of the page: `…` is anything, an age any age, and columns are as wide as they come out."""
    words = (r"\S+" if _AGE.fullmatch(word) else re.escape(word).replace("…", ".*") for word in line.split())
    return re.compile(r"\s+".join(words).replace(r"\s+.*", r".*"))


class Shell:
    """One bash for the whole page. It ends where a command fails, while a reader's would go on."""

    def __init__(self, folder: Path, mark: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "KUBECONFIG"))}
        # The cluster's name is the user's own otherwise, and somebody may be reading the page just now.
        environment = {**kept, "XDG_STATE_HOME": str(folder / "state"), "QUICKSTART": mark}
        reading, self._writing = os.pipe()
        # Not by standard input: commands would read the rest of the page from there.
        self._bash = subprocess.Popen(
            ["bash", "-e", f"/dev/fd/{reading}"],
            cwd=_checkout(folder),
            env=environment,
            pass_fds=[reading],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.close(reading)

    def run(self, commands: str) -> str:
        """What they print, both streams."""
        end = f"-- {uuid.uuid4()} --"
        os.write(self._writing, f"{commands}\necho '{end}'\n".encode())
        printed = ""
        assert self._bash.stdout is not None
        for line in self._bash.stdout:
            if line.strip() == end:
                return printed
            printed += line
        raise AssertionError(f"a command failed:\n{commands}\nafter it had said:\n{printed}")

    def close(self) -> int:
        """Leave the shell, as a reader does at the end of the page."""
        os.close(self._writing)
        assert self._bash.stdout is not None
        self._bash.stdout.close()
        return self._bash.wait()


def _checkout(folder: Path) -> Path:
    """This checkout, but for what is built in it."""
    made = folder / "checkout"
    made.mkdir()
    for each in ROOT.iterdir():
        if each.name != "build":
            (made / each.name).symlink_to(each)
    return made


def marked(mark: str) -> list[int]:
    """Every process that came of a shell with this mark."""
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _has(each, mark)]


def _has(process: Path, mark: str) -> bool:
    try:
        return f"QUICKSTART={mark}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


@contextmanager
def nothing_stays(mark: str) -> Iterator[None]:
    """Kill what a page that failed halfway has left running."""
    try:
        yield
    finally:
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_every_command_of_the_page_does_what_it_promises(tmp_path: Path, binaries: Binaries) -> None:
    page = steps(PAGE.read_text())
    assert len(page) > 10
    mark = uuid.uuid4().hex
    with nothing_stays(mark):
        shell = Shell(tmp_path, mark)
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
