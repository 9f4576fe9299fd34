"""How the walks are compiled, and where the result is kept so that the next process starts at once.

`walk` is for functions that other walks call, `entry` for those that Python calls: only the latter are kept on disk,
each with all it calls inside. Numba notices a change in an entry's own file only, so the folder is named by all files.
"""

import hashlib
import os
from pathlib import Path

import numba
import numba.core.config

_SOURCES = Path(__file__).parent


def _folder() -> Path:
    """A folder for this very version of the engine, below NUMBA_CACHE_DIR or the user's cache."""
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(_SOURCES.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(chosen) if chosen else cache / "bigfleet") / f"engine-{digest.hexdigest()}"


FOLDER = _folder()
setattr(numba.core.config, "CACHE_DIR", str(FOLDER))  # noqa: B010 - numba makes its settings at import

walk = numba.njit(nogil=True)
# For what is called at every step of a walk: the call itself, with all columns as arguments, would cost more than it.
step = numba.njit(nogil=True, inline="always")
entry = numba.njit(nogil=True, cache=True)
