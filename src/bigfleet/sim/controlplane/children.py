"""One program of a control plane as a child process. It is polled and not awaited, so any event loop may check it."""

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
    """A program that runs until it is killed. Its output goes to a log file, of which at most twice 8 MiB are kept."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self._command, self._folder = command, folder
        self._log = folder / "logs" / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program; it ends with the thread that calls this."""
        self._log.parent.mkdir(exist_ok=True)
        # Not the person's own environment, which may hold settings that these programs would read.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._folder)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                launched(self._command),
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C goes to this process alone, which then ends its children.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of its process, or 0 where it has none."""
        return 0 if self._process is None else self._process.pid

    def check(self) -> None:
        """Raise ControlPlaneError, with the last lines of the log, if the program ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            raise ControlPlaneError(f"{self.name} {how}; its log {self._log} ends: {self.tail()}")

    def kill(self) -> None:
        """End the program at once, if it runs. It need not end in order, since its data is thrown away."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def tail(self) -> str:
        """The last lines of its log."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(max(self._log.stat().st_size - _TAIL_BYTES, 0))
            lines = log.read().decode(errors="replace").splitlines()
        return " | ".join(lines[-_TAIL_LINES:])

    def bound_log(self) -> None:
        """Keep the log small. The program appends to it, so the file may be emptied while the program writes."""
        if self._log.exists() and self._log.stat().st_size > _MAX_LOG_BYTES:
            shutil.copyfile(self._log, self._log.with_suffix(".log.1"))
            os.truncate(self._log, 0)
