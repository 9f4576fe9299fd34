"""`bigfleet pod-controller` as a person starts it: mistakes are one line, and a signal ends it well."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.podcontroller.api_server import ApiServer
from tests.podcontroller.stage import REQUESTS, pod
from tests.shared.command_line import bigfleet
from tests.shared.program import Program

BIGFLEET = str(Path(sys.executable).with_name("bigfleet"))


@pytest.fixture
def kubeconfig(tmp_path: Path, server: ApiServer) -> Path:
    path = tmp_path / "kubeconfig"
    named = {
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **named}))
    return path


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--namespaces", "a", "--namespace-selector", "b"], "give --namespaces or --namespace-selector, not both"),
        (["--kubeconfig", "/nowhere/kubeconfig"], "/nowhere/kubeconfig"),
        (["--mode", "most"], "'most' is not one of 'all', 'unschedulable-only'"),
        (["--metrics-listen", "nonsense"], "nonsense"),
    ],
)
def test_a_mistake_is_one_line(flags: list[str], said: str) -> None:
    result = bigfleet("pod-controller", *flags)
    assert result.returncode in {1, 2}
    (line,) = result.stderr.splitlines()
    assert said in line


async def test_bad_penalty_defaults_are_one_line(kubeconfig: Path, tmp_path: Path) -> None:
    bad = tmp_path / "penalties.yaml"
    bad.write_text("web: lots")
    flags = ("--kubeconfig", str(kubeconfig), "--metrics-listen", "127.0.0.1:0", "--penalty-defaults", str(bad))
    program = await Program.start("pod-controller", BIGFLEET, "pod-controller", *flags)
    assert await program.ended() == 1
    (line,) = program.texts
    assert f"penalty defaults {bad}: " in line


async def test_a_selector_that_the_server_refuses_is_one_line(kubeconfig: Path) -> None:
    flags = ("--kubeconfig", str(kubeconfig), "--metrics-listen", "127.0.0.1:0", "--namespace-selector", "a of b")
    program = await Program.start("pod-controller", BIGFLEET, "pod-controller", *flags)
    assert await program.ended() == 1
    (line,) = program.texts
    assert "--namespace-selector 'a of b': unable to parse" in line


async def test_it_works_until_a_signal_and_gives_its_lease_up(kubeconfig: Path, server: ApiServer) -> None:
    server.add("pods", pod())
    flags = ("--kubeconfig", str(kubeconfig), "--metrics-listen", "127.0.0.1:0", "--namespaces", "shop,other")
    program = await Program.start("pod-controller", BIGFLEET, "pod-controller", *flags)
    await asyncio.gather(program.said("caches_synced"), server.until(lambda: server.all(REQUESTS)))
    assert await program.stop() == 0
    assert program.has_said("pod_controller_stopped")
    assert server.objects["leases", "bigfleet-system", "bigfleet-pod-controller"]["spec"]["holderIdentity"] == ""
