"""The provider as a process of the suite's own: started, killed without warning, started again."""

import asyncio
import os
import shlex
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE

from bigfleet.conformance.errors import TargetError
from bigfleet.conformance.workbench.target import Target
from bigfleet.transport.server_check import DialError

_POLL_SECONDS = 0.05
_GOODBYE_SECONDS = 5.0
# Reads until the suite is gone, however it went, and then takes the provider along.
_GUARD = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"


class Launched:
    """What `--launch` names. It and whatever it starts form one process group, which lives and dies together.

    A second small process guards it: a suite that is killed leaves no provider behind to block the next run.
    """

    def __init__(self, command: str, target: Target, log: Path | None) -> None:
        self._words = shlex.split(command)
        self._target = target
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._guard: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the provider and wait until it accepts connections."""
        output = DEVNULL if self._log is None else os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._words, stdin=DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            raise TargetError(f"--launch {self._words[0]}: {error.strerror or error}") from None
        finally:
            if output != DEVNULL:
                os.close(output)
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
                    problem = f"ended with code {self._process.returncode} before it listened"
                    raise TargetError(f"--launch {self._words[0]}: {problem} at {self._target.address}") from None
                if time.monotonic() > end:
                    waited = f"after {self._target.settle_seconds:g} s"
                    raise TargetError(f"--launch {self._words[0]}: {waited} {error}") from None
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        await self._signal(signal.SIGKILL)
        await self._target.hang_up()

    async def stop(self) -> None:
        """Ask it to end; after a while, make it."""
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._signal(signal.SIGTERM)
        except TimeoutError:
            await self._signal(signal.SIGKILL)

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
