"""A shard's epoch: a number in a small file that each start raises, on disk before it is used (protocol rule 10).

The file has four lines that a person can read. A checksum tells a mistake or a torn write from an epoch:

    bigfleet epoch 1
    shard eu-1
    epoch 1767225601
    crc32 9be3f1d0
"""

import contextlib
import fcntl
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from bigfleet.transport.identity import Identity, Role

MAX_EPOCH = 2**63 - 1
"""The largest epoch that the wire can carry."""

_FIRST_LINE = "bigfleet epoch 1"
_FILE = re.compile(
    rf"{_FIRST_LINE}\nshard ([A-Za-z0-9._-]{{1,253}})\nepoch ([1-9][0-9]{{0,18}})\ncrc32 [0-9a-f]{{8}}\n"
)
_MAX_BYTES = 512
RESTORE = (
    "make sure that no other process is this shard, and remove the epoch file, never restore an older copy: the next "
    "start takes an epoch from the clock"
)
"""What to do about an epoch file that cannot be read; docs/running-a-shard.md says the same."""


class EpochError(Exception):
    """No epoch can be had; the text names the file, the problem and what to do."""

    def __init__(self, path: Path, problem: str, advice: str) -> None:
        self.path = path
        super().__init__(f"epoch file {path}: {problem}; {advice}")


class EpochFile:
    """A shard's epoch. Its file is locked until `close`, so that one process at a time is this shard."""

    def __init__(self, path: Path, shard_id: str, epoch: int, lock: int) -> None:
        self.path, self.shard_id = path, shard_id
        self._epoch, self._lock = epoch, lock

    @classmethod
    def start(cls, path: Path, shard_id: str, *floors: int, clock: Callable[[], float] = time.time) -> Self:
        """Lock the file and take an epoch above the last one and all floors. Without a file, the clock is a floor."""
        # Refuses an id that no certificate can name and that the file might not hold.
        Identity(Role.SHARD, shard_id)
        lock = _locked(path, shard_id)
        try:
            last = _read(path, shard_id)
            file = cls(path, shard_id, int(clock()) if last is None else last, lock)
            file.raise_above(*floors)
        except BaseException:
            os.close(lock)
            raise
        return file

    @property
    def epoch(self) -> int:
        """The present epoch, which is on disk."""
        return self._epoch

    def raise_above(self, *floors: int) -> int:
        """Take an epoch above the present one and all floors, write it to disk and return it."""
        epoch = 1 + max(self._epoch, 0, *floors)
        if epoch > MAX_EPOCH:
            raise EpochError(
                self.path,
                f"an epoch above {epoch - 1} does not fit the wire, and none smaller would be newer",
                f"find out who used shard id {self.shard_id!r} with that epoch, or give this shard another id",
            )
        _write(self.path, _text(self.shard_id, epoch))
        self._epoch = epoch
        return epoch

    def close(self) -> None:
        """Release the lock. The epoch must not be used afterwards."""
        os.close(self._lock)


def _text(shard_id: str, epoch: int) -> str:
    body = f"{_FIRST_LINE}\nshard {shard_id}\nepoch {epoch}\n"
    return f"{body}crc32 {zlib.crc32(body.encode()):08x}\n"


def _locked(path: Path, shard_id: str) -> int:
    # The lock is a file of its own: the epoch file is replaced, and a lock on it would stay with the old file.
    with _io(path, "be locked"):
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            advice = f"stop the other process of shard {shard_id!r}, or give this one a state directory of its own"
            raise EpochError(path, "another process holds it", advice) from None
        except OSError:
            os.close(lock)
            raise
    return lock


def _read(path: Path, shard_id: str) -> int | None:
    """The epoch in the file, or None where there is no file."""
    with _io(path, "be read"):
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1).decode("ascii", "replace")
        except FileNotFoundError:
            return None
    found = _FILE.fullmatch(content)
    if found is None:
        raise EpochError(path, "is corrupt: it does not read as an epoch file", RESTORE)
    owner, epoch = found[1], int(found[2])
    if content != _text(owner, epoch):
        raise EpochError(path, "is corrupt: its checksum does not match", RESTORE)
    if owner != shard_id:
        advice = f"start that shard here, or give {shard_id!r} a state directory of its own"
        raise EpochError(path, f"belongs to shard {owner!r}, not {shard_id!r}", advice)
    return epoch


def _write(path: Path, text: str) -> None:
    """Replace the file in one step: if the machine stops, either the old or the new content is there."""
    with _io(path, "be written"):
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(f"{path}.new").replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@contextlib.contextmanager
def _io(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = f"make {path.parent} a directory in which this program may create and replace files"
        raise EpochError(path, f"cannot {what}: {error.strerror or error}", advice) from error
