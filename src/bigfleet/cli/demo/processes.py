"""The demo's shard as a child process: it is started, killed, and started again."""

import asyncio
import json
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

from bigfleet.sim.story import StoryError

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
# No line of our log is longer.
_LONGEST_LINE = 1 << 20


class ShardProcess:
    """A shard as a process of its own. Its log goes to `log`, line by line."""

    def __init__(self, arguments: Sequence[str], guard_seconds: float, log: IO[bytes]) -> None:
        self._command = ("-m", "bigfleet.cli.demo.shard", str(guard_seconds), "shard", *arguments)
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._serving: asyncio.Future[dict[str, Any]] | None = None
        self._last: deque[str] = deque(maxlen=3)
        self.state = "starting"
        """What the shard does, in one word, for the screen."""
        self.metrics_port = 0
        """The port of its metrics; 0 while it does not serve."""

    @property
    def up(self) -> bool:
        """Whether the shard serves."""
        return self.metrics_port != 0

    async def start(self) -> None:
        """Start the shard and wait until it serves."""
        self.state = "starting"
        self._serving = asyncio.get_running_loop().create_future()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
        )
        self._reading = asyncio.create_task(self._read(self._process))
        try:
            async with asyncio.timeout(_START_SECONDS):
                served = await self._serving
        except TimeoutError:
            raise StoryError(f"the shard did not serve within {_START_SECONDS:.0f} s") from None
        self.state, self.metrics_port = "up", int(served["metrics_port"])

    def check(self) -> None:
        """Raise StoryError if the shard ended by itself."""
        if self.up and self._process is not None and self._process.returncode is not None:
            raise StoryError(
                f"the shard ended by itself with {self._process.returncode}: {' '.join(self._last)[-500:]}"
            )

    async def kill(self) -> None:
        """Kill the shard with -9, if it runs."""
        self.state, self.metrics_port = "killed", 0
        if self._process is not None and self._reading is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            await self._reading

    async def stop(self) -> None:
        """Tell the shard to end, and wait until it has; StoryError where it does not end in order."""
        self.check()
        self.state, self.metrics_port = "stopped", 0
        assert self._process is not None  # noqa: S101 - it was started
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            raise StoryError(f"the shard did not end within {_STOP_SECONDS:.0f} s of SIGTERM") from None
        if code:
            raise StoryError(f"the shard ended with {code}: {' '.join(self._last)[-500:]}")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        async for line in process.stderr:
            self._log.write(line)
            text = line.decode(errors="replace").strip()
            self._last.append(text)
            with suppress(json.JSONDecodeError):
                event = json.loads(text)
                if event.get("event") == "shard_serving" and self._serving is not None and not self._serving.done():
                    self._serving.set_result(event)
        if self._serving is not None and not self._serving.done():
            self._serving.set_exception(StoryError(f"the shard did not start: {' '.join(self._last)[-500:]}"))
