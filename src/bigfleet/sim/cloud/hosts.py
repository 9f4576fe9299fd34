"""The hosts that exist in the cloud. They outlive a kill -9 of the provider, as those of a real cloud do.

The hosts live in a database of their own, in a file beside the provider's state or in memory. Writes survive the end of
the process but not the loss of power, which is enough for a simulation. Other processes may read the file meanwhile.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from bigfleet.providerkit.backend import BackendError
from bigfleet.providerkit.store import StateError

# "BFsc": tells our file from any other SQLite database.
_APPLICATION_ID = 0x42467363
_TABLES = """
CREATE TABLE hosts (number INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL UNIQUE, machine TEXT NOT NULL,
                    cluster TEXT NOT NULL DEFAULT '');
"""
# Made at every start, because files of earlier versions lack this table.
_DISKS = "CREATE TABLE IF NOT EXISTS disks (number INTEGER PRIMARY KEY, content BLOB NOT NULL)"


RESTORE = "restore both files of the cloud from one copy, or remove both: a new cloud begins then, without hosts"
"""What to do about one of a cloud's two files without the other; docs/simulated-cloud.md says the same."""


def beside(state: Path) -> Path:
    """The file of the hosts, for a provider that keeps its state in the file `state`."""
    return state.with_name(state.name + ".cloud")


def machine_of(ref: str) -> str:
    """The machine that a host was made for."""
    return ref.removeprefix("i-").rpartition("-")[0]


def _ref(machine: str, number: int) -> str:
    # The machine's id is part of it, so that no two clouds of a fleet use one name for two hosts.
    return f"i-{machine}-{number}"


def _number(ref: str) -> int:
    last = ref.rpartition("-")[2]
    return int(last) if last.isdecimal() and len(last) < 19 else 0


def existing(path: Path) -> list[str]:
    """The references of all hosts in a cloud's file, which may be in use; StateError if it is no such file."""
    if not path.is_file():
        raise StateError(path, "is not there; the provider makes it where --state names a file")
    try:
        file = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            _check(file, path)
            return list(_refs(file))
        finally:
            file.close()
    except sqlite3.Error as error:
        raise StateError(path, str(error)) from error


def check_state(state: Path) -> None:
    """Raise StateError if the hosts of a cloud are there and its state is not."""
    hosts = beside(state)
    if hosts.exists() and not state.exists():
        raise StateError(state, f"is gone, but {hosts} has the hosts of its cloud; {RESTORE}")


class Hosts:
    """One cloud's hosts. A host is made under a client token, is tagged with its cluster, and is ended."""

    def __init__(self, path: Path | None = None, *, has_machines: bool = False) -> None:
        """Open or create the file. With `has_machines` the cloud's state knows machines, so the file must be there."""
        self._path = path
        try:
            if path is not None:
                if has_machines and not (path.exists() and path.stat().st_size):
                    problem = "is corrupt: it is empty" if path.exists() else "is gone"
                    raise StateError(path, f"{problem}, but the state beside it knows machines; {RESTORE}")
                # Only for its owner: the hosts' disks hold secrets.
                path.touch(mode=0o600)
            self._file = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            if not self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._file.executescript(f"BEGIN;{_TABLES}PRAGMA application_id = {_APPLICATION_ID};COMMIT;")
            _check(self._file, path)
            self._file.execute(_DISKS)
        except (sqlite3.Error, OSError) as error:
            raise StateError(path or Path(":memory:"), str(error)) from error

    def __iter__(self) -> Iterator[str]:
        return _refs(self._file)

    def launch(self, token: str, machine: str) -> str:
        """The host of this token; it is made now unless it exists already."""
        self._write("INSERT OR IGNORE INTO hosts (token, machine) VALUES (?, ?)", token, machine)
        return self.find(token)

    def stand(self, machines: Iterable[str]) -> None:
        """Add the hosts of these machines of bare metal; the token of each is the machine's id."""
        try:
            self._file.execute("BEGIN")
            self._file.executemany(
                "INSERT OR IGNORE INTO hosts (token, machine) VALUES (?1, ?1)", ((machine,) for machine in machines)
            )
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def find(self, token: str) -> str:
        """The host that was made under a token, or nothing."""
        query = "SELECT machine, number FROM hosts WHERE token = ?"
        row = self._file.execute(query, (token,)).fetchone()
        return "" if row is None else _ref(*row)

    def cluster(self, ref: str) -> str | None:
        """The cluster that a host is tagged with, empty if none, or None if there is no such host."""
        query = "SELECT cluster FROM hosts WHERE number = ?"
        row = self._file.execute(query, (_number(ref),)).fetchone()
        return None if row is None else str(row[0])

    def tag(self, ref: str, cluster: str) -> None:
        """Say which cluster a host serves; empty is none."""
        self._write("UPDATE hosts SET cluster = ? WHERE number = ?", cluster, _number(ref))

    def terminate(self, ref: str) -> None:
        """End a host, with its disk; no other will ever have its reference."""
        self._write("DELETE FROM hosts WHERE number = ?", _number(ref))
        self.write_disk(ref, b"")

    def disk(self, ref: str) -> bytes:
        """What a host has written; nothing if there is no such host, or it has written nothing."""
        row = self._file.execute("SELECT content FROM disks WHERE number = ?", (_number(ref),)).fetchone()
        return b"" if row is None else bytes(row[0])

    def write_disk(self, ref: str, content: bytes) -> None:
        """Keep this content for a host; empty content wipes the disk."""
        if content:
            self._write("INSERT OR REPLACE INTO disks (number, content) VALUES (?, ?)", _number(ref), content)
        else:
            self._write("DELETE FROM disks WHERE number = ?", _number(ref))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, statement: str, *values: str | int | bytes) -> None:
        try:
            self._file.execute(statement, values)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> BackendError:
        return BackendError(f"the cloud's file {self._path or 'in memory'} cannot be written: {error}")


def _refs(file: sqlite3.Connection) -> Iterator[str]:
    return (_ref(*row) for row in file.execute("SELECT machine, number FROM hosts ORDER BY number"))


def _check(file: sqlite3.Connection, path: Path | None) -> None:
    if path is not None and file.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise StateError(path, "is the database of another program; name another file")
