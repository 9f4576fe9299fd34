"""Building the programs of a control plane from their Go modules, once.

A lock file beside the folder is held during a build, so that two processes do not build at once. A program has another
name until it is built whole, so that a build that was killed leaves nothing behind that could be used.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from bigfleet.sim.controlplane.errors import BinariesError
from bigfleet.sim.controlplane.launch import launched
from bigfleet.sim.controlplane.programs.go import toolchain
from bigfleet.sim.controlplane.programs.versions import KUBERNETES, Program

_PROGRESS_SECONDS = 15.0
_LAST_LINES = 5
_UNFINISHED = ".building-"
_MAJOR, _MINOR, _ = KUBERNETES.split(".")
# The programs can only tell their version if the linker is told it.
_KUBERNETES_FLAGS = " ".join(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in (("gitVersion", f"v{KUBERNETES}"), ("gitMajor", _MAJOR), ("gitMinor", _MINOR))
)


def sources() -> Path:
    """The folder hack/kube: in the installed package, or else in the checkout."""
    package = Path(str(files("bigfleet")))
    installed = package / "hack" / "kube"
    return installed if installed.is_dir() else package.parents[1] / "hack" / "kube"


def build(folder: Path, missing: Callable[[], Sequence[Program]], say: Callable[[str], None]) -> None:
    """Build the missing programs into a folder. `missing` is asked under the lock, after any other process's build."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder, say):
            if programs := missing():
                _build(programs, folder, say)
    except OSError as error:
        raise BinariesError(
            f"{folder}: {error.strerror or error}; the control plane's programs belong there"
        ) from error
    if lacking := missing():
        names = ", ".join(program.name for program in lacking)
        raise BinariesError(f"{names}: built in {folder}, but does not answer with a version that fits")


def _build(programs: Sequence[Program], folder: Path, say: Callable[[str], None]) -> None:
    go = toolchain(folder.parent, say)
    names = ", ".join(program.name for program in programs)
    say(f"building {names} from source, once: about ten minutes on two cores, 1.5 GB to download and 3 GB of disk")
    began = time.monotonic()
    for abandoned in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
    try:
        for program in programs:
            _compile(go, program, unfinished / program.name, say)
            (unfinished / program.name).replace(folder / program.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    say(f"built in {time.monotonic() - began:.0f} s; they are kept in {folder}")


def _compile(go: Path, program: Program, target: Path, say: Callable[[str], None]) -> None:
    """Run `go build` to its end, and tell how many packages it has compiled."""
    arguments = ("build", "-C", str(sources() / program.module), "-mod=readonly", "-trimpath", "-buildvcs=false", "-v")
    linked = "-s -w " + (_KUBERNETES_FLAGS if program.pinned == KUBERNETES else "")
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    began = said = time.monotonic()
    compiled, last = 0, [""]
    process = subprocess.Popen(
        launched([str(go), *arguments, "-ldflags", linked, "-o", str(target), program.package]),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    with process:
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        try:
            for line in process.stderr:
                last = [*last, line.strip()][-_LAST_LINES:]
                compiled += 1
                if time.monotonic() - said >= _PROGRESS_SECONDS:
                    said = time.monotonic()
                    say(f"building {program.name}: {said - began:.0f} s, {compiled} packages, now {last[-1][:80]}")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise BinariesError(
            f"{program.name} cannot be built with {go} (exit code {process.returncode}): {' | '.join(last)[:1000]}; "
            "go env GOPROXY names where modules come from"
        )
    say(f"built {program.name} in {time.monotonic() - began:.0f} s")


@contextmanager
def _alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is building the control plane's programs; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
