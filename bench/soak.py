"""`make soak`: the long forms of what `make test` and `make bench` do in short. Each part stops by itself.

`python -m bench.soak` runs all parts in about half an hour; `python -m bench.soak days` runs one.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

from rich.console import Console

from bench import shard
from bench.harness import Report

MINUTES = float(os.environ.get("BIGFLEET_SOAK_MINUTES", "10"))
KILLS = os.environ.get("BIGFLEET_FAULT_KILLS", "200")
RATES = (2_000, 3_000, 4_000, 5_000, 6_000)
IDLE = 10_000


def streams(report: Report) -> None:
    """A thousand streams and a thousand roll-ups a second, for ten minutes, with nearly all machines bound."""
    shard.streams(report, int(MINUTES * 60), pods=65, settle=60)


def rates(report: Report) -> None:
    """The highest rate of roll-ups at which every budget holds."""
    held = shard.RATE
    for rate in RATES:
        if not shard.streams(report, 30, rate):
            break
        held = rate
    report.add("highest rate of roll-ups that holds", held, "/s", 5_000, at_least=True)


def idle(report: Report) -> None:
    """Ten thousand streams with one roll-up a minute each."""
    shard.streams(report, 60, rate=IDLE // 60, clusters=IDLE, pods=1, settle=90)


def days(report: Report) -> None:
    """Days of churn in virtual time, each with another seed."""
    end, lived = time.monotonic() + MINUTES * 30, 0
    seed = time.time_ns() % 1_000_000
    while time.monotonic() < end or not lived:
        report.progress(f"a day of churn, seed {seed + lived}")
        subprocess.run([sys.executable, "-m", "tests.shard.rig.day", str(seed + lived)], check=True)
        lived += 1
    report.add("days of churn without a leak, a stuck machine or an idle action", lived, "days")


def kills(report: Report) -> None:
    """The shard killed at random moments, and everything accounted for afterwards."""
    report.progress(f"{KILLS} kills of the shard")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/faults", "--timeout", "3600"]
    subprocess.run(command, check=True, env={**os.environ, "BIGFLEET_FAULT_KILLS": KILLS})
    report.add("kills of the shard survived", int(KILLS), "")


PARTS: dict[str, Callable[[Report], None]] = {
    "kills": kills,
    "days": days,
    "streams": streams,
    "rates": rates,
    "idle": idle,
}


def main(arguments: list[str]) -> int:
    """Run the named parts, or all."""
    unknown = [name for name in arguments if name not in PARTS]
    if unknown:
        print(f"soak: no part named {unknown[0]!r}; the parts are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    report = Report(Console())
    for name in arguments or PARTS:
        PARTS[name](report)
    report.show()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
