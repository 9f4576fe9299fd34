"""The provider as a process of the suite: started, killed without warning, started again."""

import asyncio
import os
import shlex
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import BinaryIO

from bigfleet.conformance.errors import TargetError
from bigfleet.conformance.workbench.target import Target
from bigfleet.transport.server_check import DialError

_POLL_SECONDS = 0.05
_GOODBYE_SECONDS = 5.0
_SHOWN_LOG_LINES = 15
_SHOWN_LOG_BYTES = 16 * 1024
# The guard reads until the suite is gone, however the suite ended. Then it kills the provider's process group.
_GUARD = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"


class Launched:
    """The provider that `--launch` names. It and whatever it starts form one process group, which is killed as one.

    A second small process guards the group: a suite that is killed leaves no provider behind to block the next run.
    """

    def __init__(self, command: str, target: Target, log: Path | None) -> None:
        self._words = shlex.split(command)
        self._target = target
        self._process: asyncio.subprocess.Process | None = None
        self._guard: asyncio.subprocess.Process | None = None
        # The provider's output is kept even where nobody asked for the file: it says why a start failed.
        self._log: BinaryIO = tempfile.TemporaryFile() if log is None else log.open("a+b")  # noqa: SIM115 - see stop
        self._log_start = self._log.seek(0, os.SEEK_END)

    async def start(self) -> None:
        """Start the provider and wait until it accepts connections."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._words, stdin=DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True
            )
        except OSError as error:
            raise TargetError(f"--launch {self._words[0]}: {error.strerror or error}") from None
        self._guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _GUARD, str(self._process.pid)),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )
        end = time.monotonic() + self._target.settle_seconds
        while True:
            try:
                await self._target.connect()
            except DialError as error:
                if self._process.returncode is not None:
                    problem = f"ended with code {self._process.returncode} before it listened at {self._target.address}"
                    raise TargetError(f"--launch {self._words[0]}: {problem}", self.last_lines()) from None
                if time.monotonic() > end:
                    problem = f"after {self._target.settle_seconds:g} s {error}"
                    raise TargetError(f"--launch {self._words[0]}: {problem}", self.last_lines()) from None
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return

    @property
    def exit_code(self) -> int | None:
        """The code with which the provider ended, or None while it runs."""
        return None if self._process is None else self._process.returncode

    def last_lines(self) -> tuple[str, ...]:
        """The last lines that the provider wrote in this run, to standard output or standard error."""
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log_start, end - _SHOWN_LOG_BYTES))
        text = self._log.read().decode(errors="replace")
        return tuple(line for line in text.splitlines() if line.strip())[-_SHOWN_LOG_LINES:]

    async def kill(self) -> None:
        """Kill the provider with -9, and wait until it is gone."""
        await self._signal(signal.SIGKILL)
        await self._target.hang_up()

    async def stop(self) -> None:
        """Ask the provider to end. Kill it if it does not."""
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._signal(signal.SIGTERM)
        except TimeoutError:
            await self._signal(signal.SIGKILL)
        self._log.close()

    async def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        await self._process.wait()
        if self._guard is not None:
            with suppress(ProcessLookupError):
                self._guard.kill()
            await self._guard.wait()
