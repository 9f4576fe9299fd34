"""The real `ssh` against a real `sshd` on loopback, with keys of its own. Where there is no sshd, these are skipped."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from bigfleet.providerkit import BackendError

from bigfleet_ssh_hosts.backend import SSHHosts
from bigfleet_ssh_hosts.inventory import load

from .conftest import DRAIN, JOINS, READY, job

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
pytestmark = [
    pytest.mark.skipif(SSHD is None, reason="there is no sshd here (Debian: openssh-server)"),
    pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="there is no ssh-keygen here (Debian: openssh-client)"),
]

CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel ERROR
"""


@dataclass
class Server:
    folder: Path
    port: int

    def backend(self, host_key: str) -> SSHHosts:
        """A backend that takes the host for the one with this key."""
        public = (self.folder / f"{host_key}.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")
        host = {"id": "real", "address": "127.0.0.1", "instance_type": "r640", "resources": {"cpu": "1"}}
        inventory: dict[str, Any] = {
            "ssh": {
                "known_hosts": "known_hosts",
                "identity_file": "user_key",
                "user": pwd.getpwuid(os.getuid()).pw_name,
                "port": self.port,
            },
            "scripts": {"ready": "ready", "drain": "drain", "become": [], "work_dir": str(self.folder / "work")},
            "hosts": [host],
        }
        (self.folder / "inventory.yaml").write_text(yaml.safe_dump(inventory))
        (self.folder / "ready").write_text(READY)
        (self.folder / "drain").write_text(DRAIN)
        return SSHHosts(load(self.folder / "inventory.yaml"))


@pytest.fixture
def server(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Server]:
    assert SSHD is not None
    for name in ("host_key", "user_key", "other_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    server = Server(tmp_path, free_port())
    config = tmp_path / "sshd_config"
    config.write_text(CONFIG.format(port=server.port, folder=tmp_path))
    tried = subprocess.run([SSHD, "-t", "-f", str(config)], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"sshd cannot be run here as this user: {tried.stderr.strip()}")
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL)
    try:
        _await_port(server.port, process)
        yield server
    finally:
        process.kill()
        process.wait()


def _await_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    import socket

    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionRefusedError:
            continue
        return
    raise AssertionError(f"sshd ended with code {process.returncode}")


async def test_a_host_joins_says_so_and_leaves(server: Server) -> None:
    backend = server.backend("host_key")
    await backend.configure(job("real", "blue"), JOINS)
    assert await backend.ready(job("real", "blue"))
    await backend.drain(job("real", "blue"), 3)
    assert not await backend.ready(job("real"))


async def test_a_blob_of_a_megabyte_arrives(server: Server) -> None:
    await server.backend("host_key").configure(job("real"), JOINS + b"#" * (1 << 20))


async def test_a_host_with_another_key_gets_no_blob(server: Server) -> None:
    with pytest.raises(BackendError, match="Host key verification failed"):
        await server.backend("other_key").configure(job("real", "blue"), JOINS)
    assert not (server.folder / "work").exists()
