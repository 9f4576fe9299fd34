"""What a provider must still know after kill -9: fencing marks, and every machine that a call has changed.

One thread writes everything that waits in one transaction, so that many calls share an fsync.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from bigfleet.providerkit.ledger.entry import Entry
from bigfleet.providerkit.ledger.fence import Mark, Token

# "BFpk": tells the kit's file from any other SQLite database.
_APPLICATION_ID = 0x4246706B
_VERSION = 1
_TABLES = """
CREATE TABLE machines (id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE marks (machine TEXT, shard TEXT, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL,
                    PRIMARY KEY (machine, shard)) WITHOUT ROWID;
CREATE TABLE provider (scheme TEXT NOT NULL);
"""
_MOST_IN_ONE_TRANSACTION = 1024

RESTORE = (
    "restore the file from a copy: without it nobody knows which machine has which host, and the hosts must be ended "
    "by hand; where no host was ever made, remove it"
)
"""What to do about a state file that cannot be read; docs/provider-author-guide.md says the same."""

_FOLDER = "let this program write in its folder"


class StateError(Exception):
    """The state file cannot be used or written. The text names the file and says what to do."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"state file {path}: {problem}")
        self.path = path


class Write(msgspec.Struct, frozen=True):
    """Changes that become durable together."""

    entry: Entry | None = None
    """A machine as it is now."""
    mark: Mark | None = None
    """A fencing mark that moved."""
    forgotten: str = ""
    """The machine whose marks are forgotten."""
    dropped: str = ""
    """The machine that is not there any more."""


class Kept(msgspec.Struct, frozen=True):
    """What was durable when the provider started."""

    entries: list[Entry]
    marks: list[Mark]


class Store(Protocol):
    """Where state is kept."""

    def load(self) -> Kept:
        """Read everything that was kept."""

    async def write(self, write: Write) -> None:
        """Return once the write would survive a power loss, or raise StateError and keep nothing of it."""

    def close(self) -> None:
        """Write what waits and close the file."""


class MemoryStore:
    """Keeps nothing: for tests, for demos, and for substrates that remember by themselves."""

    def load(self) -> Kept:
        """Nothing."""
        return Kept([], [])

    async def write(self, write: Write) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class _Waiting(NamedTuple):
    write: Write
    record: tuple[str, bytes] | None
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[None]"


class SQLiteStore:
    """Keeps state in one SQLite file, which the process holds alone until it ends."""

    def __init__(self, path: Path, scheme: str) -> None:
        self.path = path
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        _check_place(path)
        try:
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        except sqlite3.Error as error:
            raise StateError(path, _said(error)) from error
        try:
            self._prepare(scheme)
        except (sqlite3.Error, StateError) as error:
            self._file.close()
            raise error if isinstance(error, StateError) else StateError(path, _said(error)) from error
        # A daemon thread, because a start may fail before anybody can close the store, and the process must end then.
        self._writer = threading.Thread(target=self._run, name="provider-state", daemon=True)
        self._writer.start()

    def load(self) -> Kept:
        """All machines and marks in the file."""
        decode = msgspec.msgpack.Decoder(Entry).decode
        try:
            entries = [decode(record) for (record,) in self._file.execute("SELECT record FROM machines")]
            rows = self._file.execute("SELECT machine, shard, epoch, sequence FROM marks")
            marks = [Mark(machine, shard, Token(epoch, sequence)) for machine, shard, epoch, sequence in rows]
        except (sqlite3.Error, msgspec.DecodeError, ValueError) as error:
            raise StateError(self.path, _said(error)) from error
        return Kept(entries, marks)

    async def write(self, write: Write) -> None:
        """Wait for the transaction that the write is part of."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        record = None if write.entry is None else (write.entry.id, msgspec.msgpack.encode(write.entry))
        self._queue.put(_Waiting(write, record, loop, done))
        await done

    def close(self) -> None:
        """Write what waits and close the file."""
        self._queue.put(None)
        self._writer.join()
        self._file.close()

    def _prepare(self, scheme: str) -> None:
        run = self._file.execute
        # The lock comes first, so that nothing is read from a file that another process is using.
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("BEGIN IMMEDIATE")
        application, version = (run(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if not run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _TABLES.split(";"):
                run(statement)
            run("INSERT INTO provider VALUES (?)", (scheme,))
            run(f"PRAGMA application_id = {_APPLICATION_ID}")
            run(f"PRAGMA user_version = {_VERSION}")
        elif application != _APPLICATION_ID:
            raise StateError(self.path, "is the database of another program; name another file")
        elif version != _VERSION:
            raise StateError(
                self.path,
                f"has version {version}, this kit writes {_VERSION}; use the kit that wrote it",
            )
        else:
            found = run("SELECT scheme FROM provider").fetchone()[0]
            if found != scheme:
                raise StateError(self.path, f"belongs to provider {found!r}, not {scheme!r}; name another file")
        run("COMMIT")

    def _run(self) -> None:
        ending = False
        while not ending:
            batch = [self._queue.get()]
            while len(batch) < _MOST_IN_ONE_TRANSACTION and not self._queue.empty():
                batch.append(self._queue.get())
            ending = None in batch
            waiting = [each for each in batch if each is not None]
            if waiting:
                self._commit(waiting)

    def _commit(self, batch: list[_Waiting]) -> None:
        problem: StateError | None = None
        try:
            self._file.execute("BEGIN IMMEDIATE")
            self._apply(batch)
            self._file.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - without the writer no later call would be answered
            problem = StateError(self.path, _said(error))
            with contextlib.suppress(sqlite3.Error):
                self._file.rollback()
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for waiting in batch:
            by_loop.setdefault(waiting.loop, []).append(waiting.done)
        for loop, futures in by_loop.items():
            loop.call_soon_threadsafe(_resolve, futures, problem)

    def _apply(self, batch: Iterable[_Waiting]) -> None:
        run: Callable[..., object] = self._file.execute
        for write, record, _, _ in batch:
            if record is not None:
                run("INSERT OR REPLACE INTO machines VALUES (?, ?)", record)
            if write.mark is not None:
                mark = write.mark
                row = (mark.machine, mark.shard, mark.token.epoch, mark.token.sequence)
                run("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", row)
            if write.forgotten:
                run("DELETE FROM marks WHERE machine = ?", (write.forgotten,))
            if write.dropped:
                run("DELETE FROM machines WHERE id = ?", (write.dropped,))


def _check_place(path: Path) -> None:
    """Raise StateError for a file that has lost its content, or that is to be in a folder that is not there."""
    folder = path.absolute().parent
    try:
        if not folder.exists():
            raise StateError(path, f"its folder {folder} is not there; create it, or name another file")
        if path.exists() and not path.stat().st_size:
            raise StateError(path, f"is corrupt: it is empty; {RESTORE}")
    except OSError as error:
        raise StateError(path, f"cannot be opened: {error.strerror or error}; {_FOLDER}") from error


def _resolve(futures: list[asyncio.Future[None]], problem: StateError | None) -> None:
    for done in futures:
        if done.done():
            continue
        if problem is None:
            done.set_result(None)
        else:
            done.set_exception(problem)


def _said(error: Exception) -> str:
    text = str(error)
    if "locked" in text:
        return "another process has it; stop that process, or name another file"
    if "unable to open" in text:
        return f"cannot be opened; {_FOLDER}"
    if "full" in text:
        return "the disk is full; make room and call again"
    return f"{text}; {RESTORE}"
