"""Hosts to test with. There is no hardware here: `fake_ssh.py` plays it, a folder a host, and runs scripts for real."""

import asyncio
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from bigfleet.providerkit import Job

from bigfleet_ssh_hosts.backend import SSHHosts
from bigfleet_ssh_hosts.inventory import load

HERE = Path(__file__).parent

READY = '#!/bin/sh\n[ "$(cat node)" = "$BIGFLEET_MACHINE Ready" ]\n'
DRAIN = """#!/bin/sh
echo "$BIGFLEET_GRACE_SECONDS" >>graces
[ ! -e stubborn ] || { echo "pods will not go"; exit 1; }
rm -f node
"""
JOINS = b'#!/bin/sh\necho "$BIGFLEET_MACHINE Ready" >node\n'
"""A blob that joins the host at once: the node is a file in the work folder."""


@dataclass
class Rack:
    """Some hosts that are folders, and the inventory file that names them."""

    folder: Path
    ids: list[str]
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.yaml"

    def work(self, host: str) -> Path:
        """Where errands work on a host."""
        return self.folder / "hosts" / f"{host}.test" / "work"

    def write(self, **changes: Any) -> Path:
        """The inventory file, with these parts of it changed."""
        self.inventory.write_text(yaml.safe_dump({**self.content, **changes}))
        return self.inventory

    def down(self, host: str, down: bool) -> None:
        switch = self.folder / "hosts" / f"{host}.test" / "down"
        switch.touch() if down else switch.unlink()

    def backend(self, **changes: Any) -> SSHHosts:
        return SSHHosts(load(self.write(**changes)))

    def argv(self) -> str:
        """Every command line that was given to `ssh`."""
        return (self.folder / "hosts" / "argv.log").read_text()


def job(host: str, cluster: str = "") -> Job:
    return Job(machine=host, shape=None, token="", host=host, cluster=cluster)  # type: ignore[arg-type]


async def eventually(holds: Callable[[], object]) -> None:
    """Wait for what happens in another process or task; the test's time-out is the bound."""
    while not holds():  # noqa: ASYNC110 - there is nothing to wait on but the clock
        await asyncio.sleep(0.02)


@pytest.fixture
def rack(tmp_path: Path) -> Rack:
    """Sixteen hosts, all up."""
    ids = [f"r01-n{number:02}" for number in range(16)]
    (tmp_path / "known_hosts").touch()
    (tmp_path / "ready").write_text(READY)
    (tmp_path / "drain").write_text(DRAIN)
    for host in ids:
        (tmp_path / "hosts" / f"{host}.test").mkdir(parents=True)
    shape = {"instance_type": "r640", "zone": "ams1", "rack": "r01", "price_per_hour": 0.3}
    resources = {"resources": {"cpu": "64", "memory": "384Gi"}, "allocatable": {"cpu": "63", "memory": "376Gi"}}
    hosts = [{"id": host, "address": f"{host}.test", **shape, **resources} for host in ids]
    client = [sys.executable, str(HERE / "fake_ssh.py"), str(tmp_path / "hosts")]
    content = {
        "ssh": {"known_hosts": "known_hosts", "client": client},
        "scripts": {"ready": "ready", "drain": "drain", "become": [], "work_dir": "work"},
        "hosts": hosts,
    }
    rack = Rack(tmp_path, ids, content)
    rack.write()
    return rack


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A loopback port that nobody has at the moment."""

    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port: int = server.getsockname()[1]
            return port

    return find
