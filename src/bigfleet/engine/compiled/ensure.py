"""Where compiled walks are built, and having them in this process whatever it takes.

A shard goes on deciding while they are built; commands, benches and tests would rather wait, and call `ensure`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bigfleet.engine.compiled import kept


class BuildError(Exception):
    """The walks could not be compiled; the text is the compiler's last line."""


class Place(NamedTuple):
    """Where the walks are to be built."""

    folder: Path
    problem: str = ""
    """Why that is not the cache; empty where it is. A folder outside the cache serves this one process."""

    @property
    def command(self) -> tuple[str, ...]:
        """The program that builds the folder; it exits with 0 once the folder is there."""
        return (sys.executable, "-m", "bigfleet.engine.compiled.build", str(self.folder))

    def is_there(self) -> bool:
        """Whether the folder was built."""
        return self.folder.is_dir()

    def problem_of(self, said: str) -> str:
        """What the program that builds said last, when it did not exit with 0."""
        lines = said.strip().splitlines()
        return lines[-1] if lines else "the compiler was ended"

    def load(self) -> Callable[[], None]:
        """Load what was built, as `kept.load` does."""
        install = kept.load(self.folder)
        if self.problem:
            shutil.rmtree(self.folder.parent, ignore_errors=True)
        return install


def place() -> Place:
    """The folder of this version: in the cache, or in a temporary folder where the cache cannot be written."""
    name, cache = kept.folder_name(), kept.cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if not (cache / name).is_dir() and not os.access(cache, os.W_OK):
            raise PermissionError(f"{cache} is not writable")
    except OSError as error:
        return Place(Path(tempfile.mkdtemp(prefix="bigfleet-engine-")) / name, str(error))
    return Place(cache / name)


def ensure() -> Place:
    """Run entries compiled from now on, and say where they are kept. Building them first takes a minute."""
    here = place()
    if kept.is_allowed() and not kept.is_loaded():
        if not here.is_there():
            built = subprocess.run(here.command, check=False, capture_output=True, text=True)
            if built.returncode:
                raise BuildError(here.problem_of(built.stderr))
        here.load()()
    return here
