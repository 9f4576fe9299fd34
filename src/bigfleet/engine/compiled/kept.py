"""Compiled walks on disk: one folder a version, whole or not there at all, and how a process takes them over.

A folder is named by all that its code depends on: the sources of the walks, the processor, and the versions of Python,
Numba, LLVM's binding and numpy. Where the checkout stands is no part of it, so every clone on a machine shares one.
"""

import ctypes
import hashlib
import importlib
import os
import pickle
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bigfleet.engine.jit import ENTRIES, OPTIONS

MODULES = ("walks.phases", "walks.wake", "walks.fleet")
"""The modules of the walks that have entries."""

_SOURCES = Path(__file__).parents[1]
_WITH_WALKS = ("codes.py", "heap/", "jit.py", "walks/", "compiled/lean.py")
"""Where walks and everything that they import stand; `.importlinter` sees to it that they import nothing else."""
_KEPT = 4
"""How many folders stay on disk: this version's and the ones that were used last."""
_PARENT_DEATH_SIGNAL = 1
"""The option's number in Linux's sys/prctl.h."""
_OFF = frozenset({"", "0"})


def is_allowed() -> bool:
    """Whether compiled code may be used at all: NUMBA_DISABLE_JIT, Numba's own switch, says no."""
    return os.environ.get("NUMBA_DISABLE_JIT", "") in _OFF


def cache() -> Path:
    """Where folders are kept: below NUMBA_CACHE_DIR or the user's cache."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bigfleet"


def folder_name() -> str:
    """What this version's folder is called on this machine."""
    # A process that only interprets never needs it.
    from llvmlite import binding  # type: ignore[import-untyped] # noqa: PLC0415

    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(_SOURCES.rglob("*.py")):
        name = source.relative_to(_SOURCES).as_posix()
        if name.startswith(_WITH_WALKS):
            digest.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    versions = (sys.version, *(version(package) for package in ("numba", "llvmlite", "numpy")))
    processor = (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    digest.update(repr((versions, processor)).encode())
    return f"engine-{digest.hexdigest()}"


def end_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def import_walks() -> None:
    """Import every module that has an entry."""
    for module in MODULES:
        importlib.import_module(f"bigfleet.engine.{module}")


def write(folder: Path, name: str, dispatcher: Any) -> None:
    """Write the one compiled form of an entry."""
    from numba.core import serialize  # noqa: PLC0415

    (result,) = dispatcher.overloads.values()
    dumps: Any = serialize.dumps
    (folder / f"{name}.code").write_bytes(dumps(result._reduce()))


def load(folder: Path) -> Callable[[], None]:
    """Load every entry; what is returned makes entries run compiled from then on, and belongs between two decisions.

    Loading takes a second or two, so a program with an event loop does it in a thread.
    """
    import_walks()
    payloads = {name: (folder / f"{name}.code").read_bytes() for name in ENTRIES}
    with suppress(OSError):
        # A cache that cannot be written can be read all the same; only its age is not kept.
        os.utime(folder)
    from numba import njit  # noqa: PLC0415
    from numba.core import compiler  # noqa: PLC0415

    rebuild: Any = compiler.CompileResult._rebuild

    loaded = {}
    for name, payload in payloads.items():
        dispatcher = njit(**OPTIONS)(ENTRIES[name].interpreted)
        context = dispatcher.targetctx
        context.refresh()
        # The folder is the user's own, as Numba's cache is.
        result = rebuild(context, *pickle.loads(payload))  # noqa: S301
        context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        dispatcher.add_overload(result)
        # What an entry calls is plain Python in this process: another combination of types must not be compiled here.
        dispatcher.disable_compile()
        loaded[name] = dispatcher

    def install() -> None:
        for name, dispatcher in loaded.items():
            ENTRIES[name].run = dispatcher

    return install


@contextmanager
def interpreted() -> Iterator[None]:
    """Interpret every entry meanwhile."""
    before = {name: entry.run for name, entry in ENTRIES.items()}
    for entry in ENTRIES.values():
        entry.run = entry.interpreted
    try:
        yield
    finally:
        for name, run in before.items():
            ENTRIES[name].run = run


def is_loaded() -> bool:
    """Whether entries run compiled."""
    return bool(ENTRIES) and all(entry.run is not entry.interpreted for entry in ENTRIES.values())


def prune(kept: Path) -> None:
    """Remove folders of other versions that were not used lately."""
    others = [folder for folder in kept.parent.glob("engine-*") if folder.is_dir() and folder != kept]
    others.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in others[_KEPT - 1 :]:
        shutil.rmtree(folder, ignore_errors=True)
