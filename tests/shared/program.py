"""Processes in tests: which signals they get, that they end with the test, and what they log."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

DEADLINE = 60.0
"""How long anything may take before it counts as not happening."""


def heed_signals_in_children() -> None:
    """Have every process that is started from here on end by the signals that end a program.

    A shell starts background jobs with SIGINT ignored, and what is ignored stays ignored in every child, so that a
    test could not interrupt one. What is caught is the default again in a child. This process ignores it as before.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@contextmanager
def child(command: Sequence[str | Path], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A process whose streams are text, and which is killed at the end where it has not ended by then."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


class Program:
    """One process. Its log is read as it comes, a mapping for each line of JSON and a `text` for any other."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name, self.process = name, process
        self.lines: list[dict[str, Any]] = []
        self._more = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, name: str, *command: str) -> "Program":
        """Start it; its standard input stays open.

        A shard among them decides interpreted: a few machines take milliseconds, and loading the compiled engine takes
        seconds of every start.
        """
        pipe, environment = asyncio.subprocess.PIPE, os.environ | {"NUMBA_DISABLE_JIT": "1"}
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stderr=pipe, limit=2**24, env=environment)
        return cls(name, process)

    async def said(self, event: str, seconds: float = DEADLINE, **fields: object) -> dict[str, Any]:
        """The first line of that event with those fields, once it is there."""
        seen = 0
        try:
            async with asyncio.timeout(seconds):
                while True:
                    for line in self.lines[seen:]:
                        if line.get("event") == event and all(line.get(key) == fields[key] for key in fields):
                            return line
                    seen = len(self.lines)
                    if self._reading.done():
                        break
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            pass
        raise AssertionError(f"{self.name} never said {event} {fields}: {self.lines[-20:]}")

    def has_said(self, event: str) -> bool:
        """Whether there was a line of that event."""
        return any(line.get("event") == event for line in self.lines)

    def tell(self, command: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it and its log have ended."""
        try:
            async with asyncio.timeout(DEADLINE):
                code = await self.process.wait()
                await self._reading
                return code
        except TimeoutError:
            raise AssertionError(f"{self.name} did not end: {self.lines[-5:]}") from None

    async def kill(self) -> None:
        """End it as a loss of power would."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.ended()

    async def stop(self) -> int:
        """End it as a person would; its exit code."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        return await self.ended()

    @property
    def texts(self) -> list[str]:
        """What it wrote that is no line of its log."""
        return [line["text"] for line in self.lines if "text" in line]

    def memory_mib(self, field: str = "VmRSS") -> float:
        """What it holds now, or VmHWM: the most that it ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"{field}:")[2].split()[0]) / 1024

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            text = raw.decode(errors="replace").rstrip()
            try:
                line = json.loads(text)
            except ValueError:
                line = {"text": text}
            self.lines.append(line if isinstance(line, dict) else {"text": text})
            self._more.set()
        self._more.set()
