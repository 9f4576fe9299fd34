"""Where the programs of a control plane are: installed at a fitting version, or built once into the user's cache.

Each is looked for by itself, so a machine that has some of them builds only the others.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from bigfleet.sim.controlplane.programs.building import build
from bigfleet.sim.controlplane.programs.versions import KUBERNETES, PROGRAMS, Program, parse

ASSETS = "KUBEBUILDER_ASSETS"
"""The environment variable that names a folder with such binaries; other projects' tests use the same."""

_ASK_SECONDS = 30.0

Binaries = Mapping[str, Path]
"""The path of each program, by its name."""


def cache() -> Path:
    """The folder that programs are built into, the same for every checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bigfleet"


def obtain(say: Callable[[str], None]) -> Binaries:
    """Every program, built now where none that fits is installed; BinariesError if that is not possible.

    `say` is told how the build goes.
    """
    folder = cache() / f"kube-{KUBERNETES}"
    found = _find(folder)
    if len(found) < len(PROGRAMS):
        build(folder, lambda: [program for program in PROGRAMS if _fitting(program, folder) is None], say)
        found = _find(folder)
    return found


def _find(folder: Path) -> Binaries:
    return {program.name: path for program in PROGRAMS if (path := _fitting(program, folder)) is not None}


def _fitting(program: Program, folder: Path) -> Path | None:
    """The first binary that fits: from KUBEBUILDER_ASSETS, from PATH, or from the cache."""
    assets = os.environ.get(ASSETS)
    candidates = (assets and Path(assets) / program.name, shutil.which(program.name), folder / program.name)
    return next((Path(path) for path in candidates if path and _fits(program, Path(path))), None)


def _fits(program: Program, path: Path) -> bool:
    if not os.access(path, os.X_OK):
        return False
    try:
        asked = subprocess.run([path, *program.asked], capture_output=True, text=True, timeout=_ASK_SECONDS, check=True)
        return program.fits(parse(asked.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        # It is some other program of that name, which is no error of the person's.
        return False
