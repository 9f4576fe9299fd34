"""One program of a control plane as a child process. It is polled, not awaited, so any event loop may look at it."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bigfleet.sim.controlplane.errors import ControlPlaneError
from bigfleet.sim.controlplane.launch import launched

_MAX_LOG_BYTES = 8 << 20
_TAIL_BYTES = 8192
_TAIL_LINES = 8


class Child:
    """A program that runs until it is killed. What it says goes to a file, of which twice 8 MiB are kept."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self._command, self._folder = command, folder
        self._log = folder / "logs" / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it ends with the thread that calls this."""
        self._log.parent.mkdir(exist_ok=True)
        # The person's own environment holds settings that some of these programs would take for theirs.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._folder)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                launched(self._command),
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for whoever holds it, who then ends it.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process, or 0 where it has none."""
        return 0 if self._process is None else self._process.pid

    def check(self) -> None:
        """ControlPlaneError, with the end of its log, if it ended though nobody told it to."""
        if self._process is not None and (code := self._process.poll()) is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            raise ControlPlaneError(f"{self.name} {how}; its log {self._log} ends: {self.tail()}")

    def kill(self) -> None:
        """End it at once, if it runs: what it leaves behind is thrown away."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def tail(self) -> str:
        """The last lines that it said."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(max(self._log.stat().st_size - _TAIL_BYTES, 0))
            lines = log.read().decode(errors="replace").splitlines()
        return " | ".join(lines[-_TAIL_LINES:])

    def bound_log(self) -> None:
        """Keep the log small: it is appended to, so it may be emptied under the writer."""
        if self._log.exists() and self._log.stat().st_size > _MAX_LOG_BYTES:
            shutil.copyfile(self._log, self._log.with_suffix(".log.1"))
            os.truncate(self._log, 0)
