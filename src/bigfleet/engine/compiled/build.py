"""Making compiled walks: two processes of low priority compile half of the entries each, into one folder.

`python -m bigfleet.engine.compiled.build FOLDER` makes that folder; it appears whole, or not at all.
"""

import fcntl
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bigfleet.engine.compiled import kept
from bigfleet.engine.compiled.ensure import BuildError
from bigfleet.engine.jit import ENTRIES
from bigfleet.engine.warmup import one_decision

_NICE = 10
_TOGETHER = ("walks.phases.phase_one", "walks.phases.phase_two")
"""These two call nearly the same walks, so one process compiles both; the other takes the rest in as much time."""


def build(folder: Path) -> None:
    """Make the folder, unless it is there. Two that want it at once make it once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".lock")):
        if folder.is_dir():
            return
        making = folder.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        try:
            _compile(making)
            making.rename(folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    kept.prune(folder)


def _compile(folder: Path) -> None:
    types = _types()
    together = {name: each for name, each in types.items() if name in _TOGETHER}
    parts = (together, {name: each for name, each in types.items() if name not in _TOGETHER})
    command = (sys.executable, "-m", "bigfleet.engine.compiled.part", str(folder))
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in parts]
    try:
        for process, part in zip(running, parts, strict=True):
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            process.stdin.write(pickle.dumps(part))
            process.stdin.close()
            process.stdin = None
        said = [process.communicate()[1] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    for process, words in zip(running, said, strict=True):
        if process.returncode:
            lines = words.decode(errors="replace").strip().splitlines()
            raise BuildError(lines[-1] if lines else f"the compiler ended with {process.returncode}")


def _types() -> dict[str, Any]:
    """The types that each entry is called with, seen in one decision that calls all of them."""
    from numba import typeof  # noqa: PLC0415

    seen: dict[str, Any] = {}

    def watched(name: str) -> Any:
        def run(*arguments: Any) -> Any:
            seen[name] = tuple(map(typeof, arguments))
            return ENTRIES[name].interpreted(*arguments)

        return run

    kept.import_walks()
    for name, entry in ENTRIES.items():
        entry.run = watched(name)
    one_decision()
    if missing := ENTRIES.keys() - seen.keys():
        raise BuildError(f"the decision that shows the types calls no {', '.join(sorted(missing))}")
    return seen


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Build as the command line says; what went wrong is one line on standard error."""
    kept.end_with_parent()
    os.nice(_NICE)
    try:
        build(Path(sys.argv[1]))
    except (OSError, BuildError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
