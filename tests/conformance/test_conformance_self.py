"""What this tree ships, certified by its own suite: the simulated cloud, in memory and durable, as a cloud and as bare
metal, and a project begun with the kit. `make conformance-self` runs these with the suite's own output."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bigfleet.providerkit.new import write_project

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "bigfleet"]


def certify(
    folder: Path, provider: list[str], profiles: str, *more: str, path: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Let the suite start the provider on a socket of its own and judge it in these profiles."""
    target = f"unix:{folder}/provider.sock"
    launch = shlex.join([*provider, "--listen", target, "--log-level", "error"])
    suite = [*PROGRAM, "conformance", "--target", target, "--profile", profiles, "--launch", launch, *more]
    environment = {**os.environ, **({} if path is None else {"PYTHONPATH": str(path)})}
    return subprocess.run(suite, cwd=folder, env=environment, timeout=110, check=False)


@pytest.mark.parametrize(
    ("config", "state", "profiles"),
    [
        ("conformance", "memory", "core,cloud,spot,fault"),
        ("conformance", "state", "core,cloud,spot,fault,durable"),
        ("bare-metal", "state", "core,bare-metal,durable"),
    ],
)
def test_the_simulated_cloud_conforms(tmp_path: Path, config: str, state: str, profiles: str) -> None:
    file = ROOT / "examples" / "cloud" / f"{config}.yaml"
    provider = [*PROGRAM, "provider", "sim", "--config", str(file), "--state", state]
    hosts = ["--hosts-cmd", shlex.join([*PROGRAM, "provider", "hosts", "--state", state])] if state != "memory" else []
    assert certify(tmp_path, provider, profiles, *hosts).returncode == 0


def test_a_project_begun_with_the_kit_conforms_in_memory_too(tmp_path: Path) -> None:
    """Its own tests, which the author guide runs, do the same with durable state."""
    project = tmp_path / "project"
    write_project("acme-cloud", project)
    config = ["--config", str(project / "config.yaml"), "--conformance-faults"]
    provider = [sys.executable, "-m", "acme_cloud", "--state", "memory", *config]
    hosts = ["--hosts-cmd", "ls hosts"]
    assert certify(tmp_path, provider, "core,cloud,fault", *hosts, path=project).returncode == 0
