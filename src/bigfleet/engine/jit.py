"""How the walks are compiled, and where the result is kept so that the next process starts at once.

`walk` is for functions that other walks call, `entry` for functions that Python calls. Only entries are kept on disk,
each with everything that it calls inside. Numba notices a change only in the file that an entry stands in. So the
folder on disk is named by the contents of all files from which a walk takes a function or a number.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import numba
import numba.core.config

_SOURCES = Path(__file__).parent
_WITH_WALKS = ("codes.py", "heap/", "jit.py", "walks/")
"""Where walks and everything that they import stand; `.importlinter` sees to it that they import nothing else."""


def _folder() -> Path:
    """The folder of this version of the engine, below NUMBA_CACHE_DIR or the user's cache."""
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(_SOURCES.rglob("*.py")):
        name = source.relative_to(_SOURCES).as_posix()
        if name.startswith(_WITH_WALKS):
            digest.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(chosen) if chosen else cache / "bigfleet") / f"engine-{digest.hexdigest()}"


FOLDER = _folder()
setattr(numba.core.config, "CACHE_DIR", str(FOLDER))  # noqa: B010 - numba makes its settings at import

# References are not counted (`_nrt`): the heap outlives every walk, and walks allocate nothing. Counting references to
# the heap at every call, with the bus locked, took a third of the time. No walk divides by zero, so none checks for it.
_options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
walk = numba.njit(**_options)
# For functions that are called at every step of a walk: their code is copied into the caller before types are found.
step = numba.njit(inline="always", **_options)
entry = numba.njit(cache=True, **_options)
