"""The shard's local file: what its next life must know to decide as this one would have (protocol rules 9, 19).

The journal is one SQLite file, held exclusively. A damaged file stops the start: every row carries a checksum of its
own, and SQLite checks what holds the rows together. A damaged write-ahead log (`-wal`, which a crash leaves) looks like
one that the crash cut short, so what precedes the damage counts. Times are on the clock of the life that wrote them;
`Kept` says when that life last wrote, on its own clock and on the wall clock.
"""

import contextlib
import heapq
import itertools
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from bigfleet.model.machine import Machine
from bigfleet.shard.demand.table import KeptCluster
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.persistence.kept import Batch, Kept, Values

_APPLICATION_ID = 0x42467368
"""The letters "BFsh": they tell this file from any other SQLite database."""

_VERSION = 1
"""The version of the tables and rows."""

_TABLES = (
    "CREATE TABLE shard (id TEXT NOT NULL)",
    """CREATE TABLE kept (kind TEXT, key TEXT, value BLOB NOT NULL, crc INTEGER NOT NULL,
                          PRIMARY KEY (kind, key)) WITHOUT ROWID""",
)
_ROWS = 500
"""How many rows one statement takes. sqlite3 gives the interpreter's lock away once in each statement."""

_SORTED_AT_ONCE = 5000
"""How many keys are sorted without giving the interpreter's lock away."""

_SMALLEST_BYTES = 512
"""The smallest page of SQLite. It takes a smaller file for an empty one."""

_MOST_LOG_BYTES = 64 * 2**20
"""How much of the disk the write-ahead log keeps after a large batch."""

_DIRECTORY = "make its directory one in which this program may create and write files"
RESTORE = (
    "put back the file that this shard last wrote, never an older copy; if there is none, make sure that no other "
    "process is this shard, remove the shard file, its -wal and the epoch file, and start with --actuation-paused if "
    "the shard may have been paused: a pause, actions in flight and hold-outs are lost, and nothing is bought or "
    "preempted until every provider has listed"
)
"""What to do about a shard file that cannot be read or is gone; docs/running-a-shard.md says the same."""

_SAID: Mapping[int, tuple[str, str]] = {
    sqlite3.SQLITE_BUSY: ("another process has it", "stop that one, or give this shard a data directory of its own"),
    sqlite3.SQLITE_FULL: ("the disk is full", "make room; no action starts before the file can be written"),
    sqlite3.SQLITE_IOERR: ("the disk cannot read or write it", "see to the disk; no action starts before it can"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", _DIRECTORY),
    sqlite3.SQLITE_READONLY: ("may not be written", _DIRECTORY),
    sqlite3.SQLITE_NOTADB: ("is not a database: another program's file, or a corrupt one", RESTORE),
}


class JournalError(Exception):
    """The local file cannot be used or written: which, why, and what to do."""

    def __init__(self, path: Path, problem: str, advice: str) -> None:
        self.path, self.problem, self.advice = path, problem, advice
        super().__init__(f"shard file {path}: {problem}; {advice}")


_DECODERS: Mapping[str, msgspec.msgpack.Decoder[Any]] = {
    "commitment": msgspec.msgpack.Decoder(Commitment),
    "machine": msgspec.msgpack.Decoder(tuple[str, Machine]),
    "idle": msgspec.msgpack.Decoder(float),
    "ready": msgspec.msgpack.Decoder(int),
    "cluster": msgspec.msgpack.Decoder(KeptCluster),
    "values": msgspec.msgpack.Decoder(Values),
    "clock": msgspec.msgpack.Decoder(tuple[float, float]),
}


class Journal:
    """The open file. Its calls block, and come one at a time, from whatever thread."""

    def __init__(self, path: Path, file: sqlite3.Connection) -> None:
        self.path, self._file = path, file
        self._encode = msgspec.msgpack.Encoder().encode

    @classmethod
    def open(cls, path: Path, shard_id: str, epoch_file: Path | None = None) -> Self:
        """Open or create the file of that shard, check it and lock it; JournalError where that cannot be done.

        `epoch_file` is there if the shard has run here before. Its journal is not created again then: it was lost.
        """
        with _reported(path):
            if epoch_file is not None and not path.exists():
                raise _lost(path, "is gone", epoch_file)
            _create(path)
            file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0, cached_statements=8)
            journal = cls(path, file)
            try:
                journal._prepare(shard_id, epoch_file)
            except BaseException:
                file.close()
                raise
        return journal

    def load(self) -> Kept:
        """Everything in the file; JournalError where a row is not as it was written."""
        found: dict[str, dict[str, Any]] = {kind: {} for kind in _DECODERS}
        share = _sharing()
        with _reported(self.path):
            for kind, key, value, crc in self._file.execute("SELECT kind, key, CAST(value AS BLOB), crc FROM kept"):
                whole = isinstance(key, str) and isinstance(value, bytes) and crc == _checksum(kind, key, value)
                if not whole or kind not in found:
                    raise self._unreadable(kind, key, "its checksum does not match")
                try:
                    decoded = _DECODERS[kind].decode(value)
                except msgspec.DecodeError as error:
                    raise self._unreadable(kind, key, str(error)) from error
                found[kind][key] = share(decoded) if kind == "machine" else decoded
        written, wall = found["clock"].get("", (0.0, 0.0))
        return Kept(
            found=bool(found["clock"]),
            written=written,
            wall=wall,
            commitments=found["commitment"],
            machines=found["machine"],
            idle=found["idle"],
            ready=found["ready"],
            clusters=found["cluster"],
            values=found["values"].get("", Values()),
        )

    def write(self, batch: Batch, now: float, wall: float) -> None:
        """Write the batch. On return it survives the loss of power; JournalError says that nothing of it was written.

        The batch must not change meanwhile. A write that failed may be tried again with the same batch and more.
        """
        try:
            self._file.execute("BEGIN IMMEDIATE")
            self._put("commitment", batch.commitments)
            self._put("machine", batch.machines)
            self._put("idle", batch.idle)
            self._put("ready", batch.ready)
            self._put("cluster", batch.clusters)
            if batch.values is not None:
                self._put("values", {"": batch.values})
            self._put("clock", {"": (now, wall)})
            self._file.execute("COMMIT")
        except Exception as error:
            # Nothing of the batch may be left for the next write to commit.
            with contextlib.suppress(sqlite3.Error):
                self._file.rollback()
            raise _said(self.path, error) from error

    def close(self) -> None:
        """Close the file, which another process may then open."""
        self._file.close()

    def _prepare(self, shard_id: str, epoch_file: Path | None = None) -> None:
        run = self._file.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        # These come before anything is changed: the file may be another program's.
        application, version = (run(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        is_new = not application and not run("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if is_new and epoch_file is not None:
            raise _lost(self.path, "is corrupt: it is empty", epoch_file)
        if not is_new and application != _APPLICATION_ID:
            raise JournalError(self.path, "is the database of another program", "name another data directory")
        if not is_new and version != _VERSION:
            advice = "start the release that wrote it"
            raise JournalError(self.path, f"has version {version}, this release has {_VERSION}", advice)
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA journal_size_limit = {_MOST_LOG_BYTES}")
        run("BEGIN IMMEDIATE")
        if is_new:
            for statement in _TABLES:
                run(statement)
            run("INSERT INTO shard VALUES (?)", (shard_id,))
            run(f"PRAGMA application_id = {_APPLICATION_ID}")
            run(f"PRAGMA user_version = {_VERSION}")
        run("COMMIT")
        (owner,) = run("SELECT id FROM shard").fetchone() or ("",)
        if owner != shard_id:
            advice = f"start that shard here, or give {shard_id!r} a data directory of its own"
            raise JournalError(self.path, f"belongs to shard {owner!r}, not {shard_id!r}", advice)
        # This checks the structure only. `load` checks the content of each row by its own checksum.
        fault = run("PRAGMA quick_check(1)").fetchone()[0]
        if fault != "ok":
            raise JournalError(self.path, f"is corrupt: {_one_line(fault)}", RESTORE)

    def _put(self, kind: str, changes: Mapping[str, object]) -> None:
        # Rows go in the order of the tree. In any other order half a million rows take six times as long.
        keys = _in_order(changes)
        while part := list(itertools.islice(keys, _ROWS)):
            rows: list[object] = []
            gone: list[str] = []
            for key in part:
                value = changes[key]
                if value is None:
                    gone.append(key)
                else:
                    data = self._encode(value)
                    rows += (kind, key, data, _checksum(kind, key, data))
            # A statement holds question marks only: no value ever becomes part of its text.
            if rows:
                places = ", ".join(["(?, ?, ?, ?)"] * (len(rows) // 4))
                self._file.execute(f"INSERT OR REPLACE INTO kept VALUES {places}", rows)  # noqa: S608
            if gone:
                places = ", ".join("?" * len(gone))
                self._file.execute(f"DELETE FROM kept WHERE kind = ? AND key IN ({places})", (kind, *gone))  # noqa: S608

    def _unreadable(self, kind: object, key: object, problem: str) -> JournalError:
        return JournalError(self.path, f"is corrupt: {kind} {str(key)[:200]!r} cannot be read: {problem}", RESTORE)


def _checksum(kind: str, key: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{kind}\0{key}".encode()))


def _in_order(keys: Iterable[str]) -> Iterator[str]:
    """The keys in order, without holding the interpreter for as long as sorting all of them would."""
    source, parts = iter(keys), []
    while part := sorted(itertools.islice(source, _SORTED_AT_ONCE)):
        parts.append(part)
    return heapq.merge(*parts)


def _sharing() -> Callable[[tuple[str, Machine]], tuple[str, Machine]]:
    """A function that makes equal values of many machines one object, which saves three quarters of the memory."""
    texts: dict[str, str] = {}
    vectors: dict[object, Any] = {}
    labels: dict[object, Mapping[str, str]] = {}
    text, vector = texts.setdefault, vectors.setdefault

    def share(kept: tuple[str, Machine]) -> tuple[str, Machine]:
        provider, machine = kept
        metadata = machine.shard_metadata
        return text(provider, provider), msgspec.structs.replace(
            machine,
            instance_type=text(machine.instance_type, machine.instance_type),
            zone=text(machine.zone, machine.zone),
            cluster=text(machine.cluster, machine.cluster),
            resources=vector(machine.resources, machine.resources),
            allocatable=vector(machine.allocatable, machine.allocatable),
            labels=labels.setdefault(tuple(machine.labels.items()), machine.labels),
            shard_metadata={text(name, name): text(value, value) for name, value in metadata.items()},
        )

    return share


def _create(path: Path) -> None:
    """Create the file and its directory, so that both survive the loss of power."""
    for directory in reversed([each for each in path.parents if not each.exists()]):
        directory.mkdir(mode=0o700)
        _sync(directory.parent)
    # Closed before SQLite opens it: closing it later would undo SQLite's lock.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    size = os.fstat(descriptor).st_size
    os.close(descriptor)
    if 0 < size < _SMALLEST_BYTES:
        raise JournalError(path, f"is corrupt: it has {size} bytes", RESTORE)
    _sync(path.parent)


def _lost(path: Path, problem: str, epoch_file: Path) -> JournalError:
    return JournalError(path, f"{problem}, but by the epoch file {epoch_file} this shard has run here", RESTORE)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        raise _said(path, error) from error


def _said(path: Path, error: Exception) -> JournalError:
    if isinstance(error, OSError):
        return JournalError(path, f"cannot be opened: {error.strerror or error}", _DIRECTORY)
    # The message of SQLite about a damaged file may itself be no UTF-8.
    if not isinstance(error, sqlite3.Error | UnicodeDecodeError):
        return JournalError(path, f"cannot hold this: {error!r}", "report it: this is a fault of the program")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code not in _SAID and code == sqlite3.SQLITE_ERROR:
        return JournalError(path, f"cannot hold this: {_one_line(error)}", "report it: this is a fault of the program")
    return JournalError(path, *_SAID.get(code, (f"is corrupt: {_one_line(error)}", RESTORE)))


def _one_line(said: object) -> str:
    return " ".join(str(said).split())[:500]
