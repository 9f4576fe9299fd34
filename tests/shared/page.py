"""A page of the documentation as a reader uses it: commands pasted into one shell, and what the page shows of them."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

# The variable by which the processes of a page are known, however they were started.
_MARK = "BIGFLEET_PAGE"
_GONE_SECONDS = 30.0
_LOOK_SECONDS = 0.1

_BLOCK = re.compile(r"^(?:<!-- needs: ([^\n]*) -->\n)?```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_AGE = re.compile(r"\d+s")

COMMANDS = "bash"
"""The language of a block that a reader pastes."""

PROMISE = "text"
"""The language of a block that shows what the commands right above it print. Elsewhere such a block is only shown."""


class Block(msgspec.Struct, frozen=True):
    """One fenced block of a page."""

    language: str
    text: str
    needs: str
    """What its commands need that a test has not, as the comment before the block says; empty: they are run."""
    line: int
    follows: bool
    """Whether nothing but an empty line stands between it and the block before."""


class Step(msgspec.Struct, frozen=True):
    """Commands, and the lines that the page shows below them."""

    commands: str
    promised: tuple[str, ...] = ()


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(page):
        needs, language, text = match.groups("")
        line = page.count("\n", 0, match.start()) + 1
        found.append(Block(language, text, needs, line, follows=not page[end : match.start()].strip()))
        end = match.end()
    return found


def steps(page: str) -> list[Step]:
    """All that a reader pastes, in order, but for what needs more than a test has."""
    found: list[Step] = []
    before = ""
    for block in blocks(page):
        if block.language == COMMANDS and not block.needs:
            found.append(Step(block.text))
        elif block.language == PROMISE and block.follows and before == COMMANDS:
            # A line of nothing but `…` stands for as many as there are, or none.
            promised = tuple(line for line in block.text.splitlines() if line.strip(" …"))
            found[-1] = Step(found[-1].commands, promised)
        before = "" if block.needs else block.language
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
    """One bash for the whole page, in this folder. It ends where a command fails, while a reader's would go on."""

    def __init__(self, folder: Path, mark: str, environment: Mapping[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "KUBECONFIG"))}
        reading, self._writing = os.pipe()
        # Not by standard input: commands would read the rest of the page from there.
        self._bash = subprocess.Popen(
            ["bash", "-e", f"/dev/fd/{reading}"],
            cwd=folder,
            env={**kept, **environment, _MARK: mark},
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


def marked(mark: str) -> list[int]:
    """Every process that came of a shell with this mark."""
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _has(each, mark)]


def _has(process: Path, mark: str) -> bool:
    try:
        return f"{_MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0")
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


@contextmanager
def default_ports() -> Iterator[None]:
    """Have the ports that programs listen on unless told otherwise, which one page at a time can have."""
    with (Path(tempfile.gettempdir()) / f"bigfleet-pages-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def checkout(root: Path, folder: Path) -> Path:
    """A checkout for a page to write in: all of this one, but for what is built in it."""
    made = folder / "checkout"
    made.mkdir()
    for each in root.iterdir():
        if each.name != "build":
            (made / each.name).symlink_to(each)
    return made


def run_page(root: Path, name: str, folder: Path, **environment: str) -> None:
    """Run a page from top to bottom in one shell, with what it promises; nothing that it started may be left."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    mark = uuid.uuid4().hex
    with nothing_stays(mark):
        # State is the user's own otherwise, and somebody may be reading the page just now.
        own = {"XDG_STATE_HOME": str(folder / "state"), "PATH": path}
        shell = Shell(checkout(root, folder), mark, {**own, **environment})
        for step in steps((root / name).read_text()):
            printed = shell.run(step.commands)
            line = missing(step.promised, printed)
            assert line is None, f"{name} promises\n{line}\nbelow\n{step.commands}\nbut it says\n{printed}"
        assert shell.close() == 0
        # What was killed takes a moment to be gone.
        end = time.monotonic() + _GONE_SECONDS
        while (left := marked(mark)) and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        assert left == []
