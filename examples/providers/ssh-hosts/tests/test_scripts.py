"""The scripts that come with the program, run for real; what they call is played by programs put first in PATH."""

import os
import subprocess
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest

KEY = "root/var/lib/kubelet/pki/kubelet-client.pem"


@dataclass
class Node:
    """A host with a kubelet's key, a container and a pod."""

    folder: Path

    @property
    def asked(self) -> list[str]:
        """What the script had done, in order."""
        return (self.folder / "asked").read_text().splitlines()

    def program(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >>{self.folder}/asked\n{script}\n')
        path.chmod(0o755)

    def run(self, name: str) -> "subprocess.CompletedProcess[str]":
        script = resources.files("bigfleet_ssh_hosts").joinpath(f"scripts/{name}.sh")
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "BIGFLEET_MACHINE": "n1",
            "BIGFLEET_GRACE_SECONDS": "7",
            # Whatever a test does, the script must not touch the machine it runs on.
            "BIGFLEET_HOST_ROOT": str(self.folder / "root"),
        }
        return subprocess.run(
            ["sh", "-s"], input=script.read_text(), env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "bin").mkdir()
    key = tmp_path / KEY
    key.parent.mkdir(parents=True)
    key.touch()
    node = Node(tmp_path)
    node.program("systemctl", '[ "$1" != list-unit-files ] || echo kubelet.service enabled')
    node.program("crictl", 'case "$1" in ps) echo c1; echo c2 ;; pods) echo p1 ;; esac')
    node.program("kubeadm", "")
    node.program("umount", "")
    node.program("pgrep", "exit 1")
    node.program("curl", "")
    node.program("kubectl", "printf True")
    return node


def test_drain_ends_the_kubelet_then_the_pods_then_the_keys(node: Node) -> None:
    assert node.run("drain").returncode == 0
    asked = node.asked
    assert asked.index("systemctl stop kubelet.service") < asked.index("crictl ps --quiet")
    assert {"crictl stop --timeout 7 c1", "crictl stop --timeout 7 c2", "crictl rmp --force p1"} < set(asked)
    assert not (node.folder / KEY).exists()


def test_drain_of_a_clean_host_succeeds(node: Node) -> None:
    assert node.run("drain").returncode == 0
    node.program("systemctl", "")
    node.program("crictl", "")
    assert node.run("drain").returncode == 0


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("systemctl", '[ "$1" != stop ] || exit 1; echo kubelet.service'),
        ("crictl", "exit 1"),
        ("crictl", '[ "$1" != rmp ] || exit 1; echo x'),
        ("kubeadm", "exit 1"),
        ("pgrep", "exit 0"),
    ],
)
def test_drain_of_a_host_that_is_not_clean_fails(node: Node, name: str, script: str) -> None:
    node.program(name, script)
    assert node.run("drain").returncode != 0


def test_a_container_that_ends_by_itself_is_no_failure_of_the_drain(node: Node) -> None:
    node.program("crictl", 'case "$1" in ps) echo c1 ;; pods) echo p1 ;; stop) exit 1 ;; esac')
    assert node.run("drain").returncode == 0


def test_a_node_is_ready_once_its_kubelet_is_well_and_its_cluster_says_so(node: Node) -> None:
    assert node.run("ready").returncode == 0
    assert any("get node n1" in line for line in node.asked)


@pytest.mark.parametrize(("name", "script"), [("curl", "exit 7"), ("kubectl", "printf False"), ("kubectl", "exit 1")])
def test_a_node_is_not_ready_before(node: Node, name: str, script: str) -> None:
    node.program(name, script)
    assert node.run("ready").returncode != 0
