"""The audit log: one JSON line for everything decided and one for what became of it, in files that are rotated by size.

The log is for people and is not read back, so it is not synced. A crash of the program loses nothing that was appended.
The loss of power loses the last seconds; what must survive that is in the journal. The file is closed after each write,
so a file that somebody moved or removed is there again with the next record.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec

_BLOCK_BYTES = 2**20
"""How much is encoded before it is written, where very much was decided at once."""

_LONGEST_LINE = 16 * 2**10
"""The longest line. A record holds texts of providers and operators, which may be of any length."""

_LONGEST_TEXT = 1000
"""The longest text in a record whose line would be too long."""


class AuditError(Exception):
    """The log cannot be written: which log, why, what to do, and how many records were lost."""

    def __init__(self, path: Path, problem: str, lost: int = 0) -> None:
        self.path, self.lost = path, lost
        advice = "make room on its disk, and its directory one in which this program may create and rename files"
        super().__init__(f"audit log {path}: {problem}; {advice}")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log."""

    #: When the line was written, as ISO 8601 in UTC.
    at: str
    #: The number of the decision since the shard's start.
    cycle: int
    shard: str
    epoch: int
    #: One of decided, suppressed, dryrun and ended.
    event: str
    #: The kind of the action, or the call out of Failed.
    kind: str
    machine: str
    provider: str
    #: The cluster that the machine is for.
    cluster: str = ""
    #: The cluster that the machine is taken from.
    leaves: str = ""
    #: Priority, fingerprint and group of the need that the machine is for.
    priority: int = 0
    fingerprint: str = ""
    group: str = ""
    #: Why the action was decided.
    reason: str = ""
    #: What became of the need.
    verdict: str = ""
    #: The machine's price in dollars.
    price_per_hour: float = 0.0
    #: Dollars an hour of everything that the shard pays for, before the action.
    cost_before: float = 0.0
    #: The same after the action.
    cost_after: float = 0.0
    grace_seconds: int = 0
    #: How the action ended.
    outcome: str = ""
    #: What a person is told besides the outcome.
    detail: str = ""
    #: What the lines about an action's decision and about its end have in common.
    id: str = ""


_encode = msgspec.json.Encoder().encode


class AuditLog:
    """The file that is written, of at most `max_bytes`, and `keep` files before it, of which path.1 is the latest."""

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self.path, self._max_bytes, self._keep = path, max_bytes, keep

    @classmethod
    def open(cls, path: Path, max_bytes: int, keep: int) -> Self:
        """The log at that path; AuditError where it cannot be written to."""
        log = cls(path, max_bytes, keep)
        try:
            if not path.parent.exists():
                path.parent.mkdir(mode=0o700, parents=True)
            with log._file():
                pass
        except OSError as error:
            raise AuditError(path, f"cannot be opened: {error.strerror or error}") from error
        return log

    def append(self, records: Sequence[Record]) -> None:
        """Write the records, each on a line of its own. AuditError says how many of the last were not written.

        The call blocks, and comes from one thread at a time.
        """
        written = 0
        try:
            while written < len(records):
                written += self._append(records, written)
        except OSError as error:
            lost = len(records) - written
            raise AuditError(self.path, f"lacks {lost} records: {error.strerror or error}", lost) from error

    def _append(self, records: Sequence[Record], start: int) -> int:
        """Write as many records from `start` on as fit the file and one block. Returns 0 where the file was full."""
        with self._file() as file:
            size = os.fstat(file).st_size
            # Half a record, which an earlier life left when it was killed, stays on a line of its own.
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            block, end = bytearray(b"\n" if torn else b""), start
            room = min(self._max_bytes - size, _BLOCK_BYTES)
            while end < len(records):
                line = _line(records[end])
                if len(block) + len(line) > room and (size or end > start):
                    break
                block += line
                end += 1
            if end > start:
                _write(file, block, size)
        if end == start:
            self._rotate()
        return end - start

    def _rotate(self) -> None:
        # Files move up only to the first number that is free, so that a crash in between loses no file.
        free = next((n for n in range(1, self._keep) if not self._numbered(n).exists()), self._keep)
        for n in range(free, 1, -1):
            self._numbered(n - 1).replace(self._numbered(n))
        self.path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    @contextlib.contextmanager
    def _file(self) -> Iterator[int]:
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            yield file
        finally:
            os.close(file)


def _line(record: Record) -> bytes:
    line = _encode(record)
    if len(line) > _LONGEST_LINE:
        texts = {name: value for name, value in msgspec.structs.asdict(record).items() if isinstance(value, str)}
        line = _encode(msgspec.structs.replace(record, **{name: _cut(text) for name, text in texts.items()}))
    return line + b"\n"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _write(file: int, block: bytes | bytearray, size: int) -> None:
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        # A full disk has taken a part of the block. If truncating fails too, the next append ends that line.
        with contextlib.suppress(OSError):
            os.ftruncate(file, size)
        raise
