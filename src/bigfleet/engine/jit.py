"""How the walks are compiled, and where the result is kept so that the next process starts at once.

`walk` is for functions that other walks call, `entry` for those that Python calls: only the latter are kept on disk,
each with all it calls inside. Numba notices a change in an entry's own file only, so the folder is named by all files
from which a walk takes anything.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import numba
import numba.core.config

_SOURCES = Path(__file__).parent
# They look at what walks leave behind; no walk takes a function or a constant from them.
_WITHOUT_WALKS = frozenset({"available.py", "engine.py", "give_back.py", "load/pool.py", "stock.py"})


def _folder() -> Path:
    """A folder for this very version of the engine, below NUMBA_CACHE_DIR or the user's cache."""
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(_SOURCES.rglob("*.py")):
        name = source.relative_to(_SOURCES).as_posix()
        if name not in _WITHOUT_WALKS:
            digest.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(chosen) if chosen else cache / "bigfleet") / f"engine-{digest.hexdigest()}"


FOLDER = _folder()
setattr(numba.core.config, "CACHE_DIR", str(FOLDER))  # noqa: B010 - numba makes its settings at import

# Nothing is counted: the heap outlives every walk, and walks allocate nothing. Counting references to it at every call,
# with the bus locked, took a third of the time. A division by zero cannot happen, so none is checked for.
_options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
walk = numba.njit(**_options)
# For what is called at every step of a walk.
step = numba.njit(inline="always", **_options)
entry = numba.njit(cache=True, **_options)
