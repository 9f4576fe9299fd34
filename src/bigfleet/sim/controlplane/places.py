"""Where the named clusters of this user are, and which of them run.

A cluster that runs holds a lock beside its folder, which the kernel releases however its process ends. So the answer to
whether a cluster runs is never out of date, and the folder of a killed cluster is recognised as a leftover.
"""

import fcntl
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bigfleet.sim.controlplane.errors import ControlPlaneError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_RECORD = "cluster.json"
_END_SECONDS = 30.0
_POLL_SECONDS = 0.05


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster says of itself in its folder."""

    name: str
    pid: int
    """The process that runs the cluster."""
    born: str
    """When that process began, by the kernel's clock. It tells the process from a later one with the same id."""
    began: float
    """When the cluster was started, in seconds since the Unix epoch."""
    version: str = ""
    """The version of its Kubernetes; empty until the cluster is ready, as are the next two."""
    server: str = ""
    kubeconfig: str = ""

    @property
    def ready(self) -> bool:
        """Whether the cluster has started and can be used."""
        return bool(self.kubeconfig)


class ListedCluster(msgspec.Struct, frozen=True):
    """One cluster as `bigfleet dev cluster list` shows it."""

    name: str
    state: str
    """`starting`, `running` or `dead`."""
    record: Record | None
    """None where the process has not written its record, or was killed before it did."""


def home() -> Path:
    """The folder of all clusters of this user."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "bigfleet" / "clusters"


def log_of(name: str) -> Path:
    """The log of the process behind a detached cluster."""
    return _folder(name).with_name(f"{name}.log")


@contextmanager
def held(name: str) -> Iterator[Path]:
    """Hold the lock of this name. The body gets an empty folder, which is removed after it."""
    folder = _folder(name)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(name):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def write(folder: Path, record: Record) -> None:
    """Write a cluster's record into its folder, whole or not at all."""
    unfinished = folder / f".{_RECORD}"
    unfinished.write_bytes(msgspec.json.encode(record))
    unfinished.replace(folder / _RECORD)


def read(name: str) -> Record | None:
    """The record that a cluster last wrote; None without one."""
    try:
        return msgspec.json.decode((_folder(name) / _RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def list_clusters() -> list[ListedCluster]:
    """Every cluster that has a folder, in the order of their names."""
    names = sorted(each.name for each in home().glob("*") if each.is_dir() and _NAME.fullmatch(each.name))
    return [ListedCluster(name, _state(name, record := read(name)), record) for name in names]


def end(name: str) -> None:
    """Tell a cluster to end and wait until it has; clear away the folder of a cluster that was killed."""
    record = read(name)
    if not _is_locked(name):
        if not _folder(name).is_dir():
            raise ControlPlaneError(f"there is no cluster {name!r}; bigfleet dev cluster list shows those that are")
        shutil.rmtree(_folder(name), ignore_errors=True)
    elif record is None or record.born != born(record.pid):
        raise ControlPlaneError(f"cluster {name!r} is only just starting; try again in a moment")
    else:
        os.kill(record.pid, signal.SIGTERM)
        _await_end(name, record.pid)
    log_of(name).unlink(missing_ok=True)


def born(pid: int) -> str:
    """When a process began, in the kernel's own count; nothing if it has ended."""
    try:
        # The program's name, which stands in front, may hold spaces and brackets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def check_free(name: str) -> None:
    """Raise ControlPlaneError if a cluster of this name runs."""
    if _is_locked(name):
        raise _running(name)


def _running(name: str) -> ControlPlaneError:
    return ControlPlaneError(f"cluster {name!r} runs already; bigfleet dev cluster down --name {name} ends it")


def _await_end(name: str, pid: int) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while _is_locked(name):
        if time.monotonic() > deadline:
            raise ControlPlaneError(
                f"cluster {name!r} does not end: its process {pid} still runs; kill -9 {pid} ends it"
            )
        time.sleep(_POLL_SECONDS)


def _state(name: str, record: Record | None) -> str:
    if not _is_locked(name):
        return "dead"
    return "running" if record is not None and record.ready else "starting"


def _folder(name: str) -> Path:
    # The folder is removed with all that is in it, so no name may lead elsewhere.
    if not _NAME.fullmatch(name):
        raise ControlPlaneError(f"{name!r} cannot name a cluster: 1 to 40 of a-z, 0-9 and -, not - at either end")
    return home() / name


def _lock_file(name: str) -> Path:
    return _folder(name).with_name(f"{name}.lock")


@contextmanager
def _locked(name: str) -> Iterator[None]:
    with _lock_file(name).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _running(name) from None
        yield


def _is_locked(name: str) -> bool:
    # The check takes the lock for an instant. It takes it shared, so that two checks do not see each other.
    try:
        with _lock_file(name).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False
