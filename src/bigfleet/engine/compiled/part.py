"""One process that compiles some of the entries, whose types it reads from standard input.

`python -m bigfleet.engine.compiled.part FOLDER` writes them into that folder.
"""

import gc
import pickle
import sys
from pathlib import Path

from numba import njit

from bigfleet.engine import jit
from bigfleet.engine.compiled import kept, lean


def main() -> None:
    """Compile what standard input names, into the folder."""
    kept.end_with_parent()
    # A compiler makes millions of small objects and ends: looking for cycles among them costs a tenth of its time.
    gc.disable()
    jit.compile_walks(njit)
    # After that: reading the types imports the heap, which is made of walks too.
    types = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own parent's
    kept.import_walks()
    lean.compile_only({jit.ENTRIES[name].interpreted.__name__ for name in types})
    for name, each in types.items():
        dispatcher = jit.ENTRIES[name].run
        dispatcher.compile(each)
        kept.write(Path(sys.argv[1]), name, dispatcher)


if __name__ == "__main__":
    main()
