"""What the local file holds after kill -9 and after a torn disk: everything that was acknowledged, whole batches only.

Run as a program, this file is a nursery: for every path on its input it forks a process that lives by writing numbered
batches to that path until somebody kills it.
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigfleet.engine.records import Kind, Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.shard.demand.table import KeptCluster
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.execution.steps import Step
from bigfleet.shard.persistence.journal import Journal
from bigfleet.shard.persistence.kept import Batch, Kept, Values
from tests.shared.program import child

KEY = NeedKey("5f0c" * 8, "", (("cpu", 4000),))
ROOT = Path(__file__).parents[3]
KILLS = 32


def machine(machine_id: str, number: int) -> tuple[str, Machine]:
    return "sim", Machine(
        id=machine_id,
        state=MachineState.CONFIGURED,
        instance_type="c8",
        capacity_type=CapacityType.SPOT,
        host=Host("sim", f"i-{number}"),
        cluster="prod",
        shard_metadata={"number": str(number)},
    )


def numbered(number: int) -> Batch:
    """A batch that says its number in every kind; each tenth is so large that it is written in many parts."""
    stamp = Stamp(KEY, number, PenaltyBucket.ZERO, PenaltyBucket.ZERO, number)
    batch = Batch(
        {
            f"m-{number % 7}": Commitment(
                machine="m",
                provider="sim",
                kind=Kind.PROVISION,
                step=Step.DECIDED,
                began=float(number),
                stamp=stamp,
            ),
            f"m-{(number + 3) % 7}": None,
        },
        {f"m-{number % 50}": machine(f"m-{number % 50}", number)},
        {f"m-{number % 11}": float(number), f"m-{(number + 5) % 11}": None},
        {f"m-{number % 13}": number},
        {f"c-{number % 3}": KeptCluster(f"c-{number % 3}", float(number), False, False, ((KEY, number),))},
        Values(next_binding=number, drains={"c8": (float(number),)}),
    )
    if number % 10 == 0:
        batch.machines |= {f"big-{i}": machine(f"big-{i}", number) for i in range(1000)}
    if number % 10 == 5:
        batch.machines |= {f"big-{i}": None for i in range(0, 1000, 2)}
    return batch


def after(number: int) -> Kept:
    """What the file holds when batches up to this one were written, and none after it."""
    all_of_it = Batch()
    for each in range(1, number + 1):
        all_of_it.merge(numbered(each))
    return Kept(
        found=number > 0,
        written=float(number),
        wall=float(-number),
        commitments={key: value for key, value in all_of_it.commitments.items() if value is not None},
        machines={key: value for key, value in all_of_it.machines.items() if value is not None},
        idle={key: value for key, value in all_of_it.idle.items() if value is not None},
        ready={key: value for key, value in all_of_it.ready.items() if value is not None},
        clusters={key: value for key, value in all_of_it.clusters.items() if value is not None},
        values=all_of_it.values or Values(),
    )


def live(path: Path) -> None:
    """Write batches for ever, from where the life before left off, and say of each that it is durable."""
    journal = Journal.open(path, "s1")
    for number in itertools.count(journal.load().values.next_binding + 1):
        journal.write(numbered(number), float(number), float(-number))
        os.write(1, b"%d\n" % number)


def nurse() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.write(1, b"%d\n" % os.getpid())
            live(Path(line.rstrip("\n")))
        os.waitpid(child, 0)
        os.write(1, b"over\n")


class Nursery:
    """Starts lives, and ends them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._asked, self._said = process.stdin, process.stdout

    def life(self, path: Path, batches: int, seconds: float) -> int:
        """A life that is killed so long after it has written so many batches; the last that it acknowledged, or 0."""
        print(path, file=self._asked, flush=True)
        child = int(self._said.readline())
        said = [self._said.readline() for _ in range(batches)]
        # Not to wait for anything: to hit whatever the process does just then.
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        said += iter(self._said.readline, "over\n")
        return max(map(int, said), default=0)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.shard.persistence.test_journal_crash"]
    with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        yield Nursery(process)
        process.communicate()
    assert process.returncode == 0


def copied(path: Path) -> Path:
    """The file as the dead left it, so that the next life finds it so, too."""
    copy = path.parent / "copy" / path.name
    shutil.rmtree(copy.parent, ignore_errors=True)
    copy.parent.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, copy.parent)
    return copy


def loaded(path: Path) -> Kept:
    journal = Journal.open(path, "s1")
    try:
        return journal.load()
    finally:
        journal.close()


def test_all_that_was_acknowledged_survives_every_kill_and_nothing_in_part(tmp_path: Path, nursery: Nursery) -> None:
    path, moments, last = tmp_path / "shard.db", random.Random(), 0
    for _ in range(KILLS):
        acknowledged = nursery.life(path, moments.randrange(12), moments.uniform(0, 0.01))
        kept = loaded(copied(path))
        # A batch may be durable that the process did not live to acknowledge.
        last = max(last, acknowledged)
        assert last <= kept.values.next_binding <= last + 1
        last = kept.values.next_binding
        assert kept == after(last)
    assert last > KILLS


def test_a_kill_while_the_file_is_made_leaves_one_that_can_be_used(tmp_path: Path, nursery: Nursery) -> None:
    moments = random.Random()
    for i in range(20):
        path = tmp_path / str(i) / "shard.db"
        acknowledged = nursery.life(path, 0, moments.uniform(0, 0.02))
        kept = loaded(path)
        assert acknowledged <= kept.values.next_binding <= acknowledged + 1
        assert kept == after(kept.values.next_binding)


def test_a_log_torn_or_spoiled_anywhere_leaves_the_batches_before_that_and_no_part_of_another(
    tmp_path: Path, nursery: Nursery
) -> None:
    path, chance = tmp_path / "shard.db", random.Random(3)
    acknowledged = nursery.life(path, 14, 0)
    log = Path(f"{path}-wal").read_bytes()
    seen = set()
    for i in range(40):
        copy, at = copied(path), chance.randrange(len(log))
        spoiled = log[:at] if i % 2 else log[:at] + bytes([log[at] ^ 1 << chance.randrange(8)]) + log[at + 1 :]
        Path(f"{copy}-wal").write_bytes(spoiled)
        kept = loaded(copy)
        assert kept == after(kept.values.next_binding)
        assert kept.values.next_binding <= acknowledged + 1
        seen.add(kept.values.next_binding)
    assert len(seen) > 2


if __name__ == "__main__":
    nurse()
