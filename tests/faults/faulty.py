"""`bigfleet` with faults in it, for tests: run as a program, it takes commands on its standard input, a line each.

    jump SECONDS     the wall clock, as Python tells it, goes forward or back by so much; the monotonic one does not
    lag SECONDS      from now on, the answer to a call that changes a machine is heard so much later than it came
    die POINT COUNT  the process kills itself (-9) when it passes that point for the COUNT-th time from now

The first line, which may be empty, is carried out before anything else runs. A point is `KIND/STEP`, as a commitment
gets to that step, or `KIND/ended`; `journal/unwritten`, `journal/torn` or `journal/written`, around a write to the
local file; `CALL unsent` or `CALL answered`, around a call to a provider; or `any` of these. In dying it writes a line
that names the point and every commitment of that moment, by kind and step.
"""

import asyncio
import io
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

_real_time = time.time
_ahead = _lag = 0.0
# Before anything imports it: defaults are bound early.
time.time = lambda: _real_time() + _ahead

import grpc.aio._utils  # noqa: E402

from bigfleet.cli.bigfleet import main  # noqa: E402
from bigfleet.provider.client import ProviderClient  # noqa: E402
from bigfleet.shard.execution.commitment import Commitment, Commitments  # noqa: E402
from bigfleet.shard.execution.effects import Effect, Keep, Outcome  # noqa: E402
from bigfleet.shard.execution.next_step import NextStep  # noqa: E402
from bigfleet.shard.persistence.journal import Journal  # noqa: E402
from bigfleet.shard.persistence.kept import Batch  # noqa: E402

ANY = "any"


class _Deathbed:
    """Where and when to die, and what is to be known of it."""

    def __init__(self) -> None:
        self.point, self.count = "", 0
        self.commitments: Commitments | None = None
        self._lock = threading.Lock()

    def passes(self, point: str) -> None:
        """The process is at this point."""
        with self._lock:
            if self.point not in (point, ANY):
                return
            self.count -= 1
            if self.count > 0:
                return
            standing = Counter(f"{each.kind.value}/{each.step.value}" for each in self.commitments or ())
            line = json.dumps({"event": "died", "point": point, "standing": standing})
            os.write(2, f"{line}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
            # The signal may take another thread first; this one gets no further.
            time.sleep(60)


_deathbed = _Deathbed()


def obey(command: str) -> None:
    """Carry out one command."""
    global _ahead, _lag  # noqa: PLW0603 - the one clock there is
    match command.split():
        case ["jump", seconds]:
            _ahead += float(seconds)
        case ["lag", seconds]:
            _lag = float(seconds)
        case ["die", *point, count]:
            _deathbed.point, _deathbed.count = " ".join(point), int(count)
        case []:
            pass
        case _:
            raise ValueError(f"no such command: {command!r}")


def _listen(commands: io.FileIO) -> None:
    for line in commands:
        obey(line.decode())


def _patch_next_step() -> None:
    begin, keep, end = NextStep.__init__, NextStep.keep, NextStep.end

    def begun(self: NextStep, commitments: Commitments, *rest: Any) -> None:
        begin(self, commitments, *rest)
        _deathbed.commitments = commitments

    def kept(self: NextStep, commitment: Commitment) -> Keep:
        effect = keep(self, commitment)
        _deathbed.passes(f"{commitment.kind.value}/{commitment.step.value}")
        return effect

    def ended(self: NextStep, commitment: Commitment, outcome: Outcome, detail: str = "") -> list[Effect]:
        effects = end(self, commitment, outcome, detail)
        _deathbed.passes(f"{commitment.kind.value}/ended")
        return effects

    patched: Any = (begun, kept, ended)
    NextStep.__init__, NextStep.keep, NextStep.end = patched  # type: ignore[method-assign]


def _patch_journal() -> None:
    write, put = Journal.write, Journal._put

    def written(self: Journal, batch: Batch, now: float, wall: float) -> None:
        _deathbed.passes("journal/unwritten")
        write(self, batch, now, wall)
        _deathbed.passes("journal/written")

    def torn(self: Journal, kind: str, changes: Mapping[str, object]) -> None:
        put(self, kind, changes)
        if kind == "clock":
            # The last of a batch; it is not committed yet.
            _deathbed.passes("journal/torn")

    Journal.write, Journal._put = written, torn  # type: ignore[method-assign]


def _patch_calls() -> None:
    attempt: Callable[..., Awaitable[bytes]] = ProviderClient._attempt

    async def attempted(self: ProviderClient, method: str, sent: bytes, deadline: float) -> bytes:
        _deathbed.passes(f"{method} unsent")
        answer = await attempt(self, method, sent, deadline)
        if method not in ("List", "Get"):
            await asyncio.sleep(_lag)
        _deathbed.passes(f"{method} answered")
        return answer

    patched: Any = attempted
    ProviderClient._attempt = patched  # type: ignore[method-assign]


if __name__ == "__main__":
    # It hands deadlines to its core as wall times, and that core looks at the clock of the system.
    vars(grpc.aio._utils)["time"] = SimpleNamespace(time=_real_time)
    # Without a buffer: a thread that waits in a buffered one keeps the interpreter from ending.
    commands = io.FileIO(0, closefd=False)
    obey(commands.readline().decode())
    threading.Thread(target=_listen, args=[commands], daemon=True).start()
    _patch_next_step()
    _patch_journal()
    _patch_calls()
    main()
