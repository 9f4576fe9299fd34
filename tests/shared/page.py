"""A page of the documentation as a reader uses it: commands pasted into one shell, and what the page shows of them."""

import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

# The variable by which the processes of a page are known, however they were started.
_MARK = "BIGFLEET_PAGE"

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
