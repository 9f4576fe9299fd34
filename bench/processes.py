"""Our programs as processes under measurement: started, waited for, watched from outside, and ended."""

import contextlib
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

START_SECONDS = 120.0
_BUCKET = re.compile(r'^(\w+)_bucket\{(.*)le="([^"]+)"\} (\S+)$')


class Program:
    """One running program. Its log is a file of JSON lines."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self.log = process, log
        self.started = time.monotonic()

    def said(self, event: str, seconds: float = START_SECONDS) -> dict[str, object]:
        """The fields of the first log line with that event; waits for the line."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            for line in self.log.read_text(errors="replace").splitlines():
                if f'"{event}"' in line and line.endswith("}"):
                    fields: dict[str, object] = json.loads(line)
                    if fields.get("event") == event:
                        return fields
            time.sleep(0.05)
        raise RuntimeError(f"no {event}: {self.log.read_text(errors='replace')[-1000:]}")

    def rss_mib(self) -> float:
        """The memory that the program holds now."""
        return self._status("VmRSS")

    def peak_mib(self) -> float:
        """The most memory that the program ever held."""
        return self._status("VmHWM")

    def cpu_seconds(self) -> float:
        """The CPU time that the program has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def _status(self, field: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"{field}:")[2].split()[0]) / 1024


@contextlib.contextmanager
def bigfleet(folder: Path, name: str, *arguments: str) -> Iterator[Program]:
    """Run a subcommand of `bigfleet` for as long as the body runs."""
    with started(folder, name, [str(Path(sys.executable).with_name("bigfleet")), *arguments]) as program:
        yield program


@contextlib.contextmanager
def started(folder: Path, name: str, command: Sequence[str]) -> Iterator[Program]:
    """Run any command for as long as the body runs; its standard output goes to NAME.out, its log to NAME.log."""
    log = folder / f"{name}.log"
    with log.open("wb") as errors, (folder / f"{name}.out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        try:
            yield Program(process, log)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Histogram:
    """One histogram of a program's metrics, counted from when this object was made."""

    def __init__(self, port: int, name: str) -> None:
        self._url, self._name = f"http://127.0.0.1:{port}/metrics", name
        self._before = self._look()

    def quantile(self, share: float) -> float:
        """The seconds that this share of the observations did not exceed, as finely as the buckets tell."""
        counts = {le: count - self._before.get(le, 0.0) for le, count in self._look().items()}
        total, lower, below = counts.get(float("inf"), 0.0), 0.0, 0.0
        for bound, count in sorted(counts.items()):
            if total and count >= share * total:
                if bound == float("inf"):
                    return lower
                return lower + (bound - lower) * (share * total - below) / max(count - below, 1e-9)
            lower, below = bound, count
        return 0.0

    def _look(self) -> dict[float, float]:
        text = urllib.request.urlopen(self._url, timeout=10).read().decode()  # noqa: S310 - loopback
        found = map(_BUCKET.match, text.splitlines())
        return {float(m[3].replace("+Inf", "inf")): float(m[4]) for m in found if m and m[1] == self._name}


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """How much the second of each pair grows per unit of the first."""
    if len(samples) < 2:
        return 0.0
    return statistics.linear_regression([at for at, _ in samples], [value for _, value in samples]).slope
