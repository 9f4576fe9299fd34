"""The agent's script itself, in a real bash; the metadata service is a small server here, and `aws` copies files."""

import asyncio
import os
import shutil
import signal
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import bigfleet_ec2
from bigfleet_ec2.config import load
from bigfleet_ec2.mailbox import Mailbox
from bigfleet_ec2.userdata import user_data

from .conftest import BUCKET, ROLE, World, eventually

AGENT = Path(bigfleet_ec2.__file__).with_name("agent.sh")
INSTANCE = "i-0123456789abcdef0"
AWS = """#!/bin/sh
# aws s3 cp --only-show-errors FROM TO
from=$4 to=$5
case $from in s3://*) from=$FAKE_S3/${from#s3://} ;; esac
case $to in s3://*) to=$FAKE_S3/${to#s3://} && mkdir -p "$(dirname "$to")" ;; esac
if [ "$from" = - ]; then cat >"$to.part" && mv "$to.part" "$to"; else cp "$from" "$to"; fi
"""
pytestmark = pytest.mark.skipif(
    not (shutil.which("bash") and shutil.which("curl")), reason="bash and curl are needed to run the agent"
)


@dataclass
class Guest:
    """One instance: its metadata, its disk and its folder in S3."""

    folder: Path
    imds: str = ""
    metadata: dict[str, str] = field(default_factory=dict)

    def hook(self, name: str, script: str) -> None:
        path = self.folder / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def program(self, name: str, script: str) -> None:
        """A program that the agent finds before the real one."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def order(self, order: str) -> None:
        self.metadata["tags/instance/bigfleet:order"] = order

    def mail(self, order: str, name: str) -> Path:
        return self.folder / "s3" / BUCKET / f"bigfleet/{ROLE}:{INSTANCE}" / order / name

    def leave(self, order: str, blob: str) -> None:
        path = self.mail(order, "bootstrap")
        path.parent.mkdir(parents=True)
        path.write_text(blob)

    async def word(self, order: str, name: str) -> str:
        await eventually(self.mail(order, name).exists)
        return self.mail(order, name).read_text()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The agent while the body runs, in a process group of its own."""
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FAKE_S3": str(self.folder / "s3"),
            "BIGFLEET_IMDS": self.imds,
            "BIGFLEET_STATE": str(self.folder / "state"),
            "BIGFLEET_HOOKS": str(self.folder / "hooks"),
            "BIGFLEET_MACHINE": "m5-a-0",
            "BIGFLEET_MAILBOX": f"{BUCKET}/bigfleet/{ROLE}",
            "BIGFLEET_EVERY": "0.05",
            # Whatever a test does, the agent's own way of leaving a cluster must not touch the machine it runs on.
            "BIGFLEET_HOST_ROOT": str(self.folder / "root"),
        }
        process = await asyncio.create_subprocess_exec("bash", str(AGENT), env=environment, start_new_session=True)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    guest = Guest(tmp_path)
    guest.metadata |= {"instance-id": INSTANCE, "placement/availability-zone": "us-east-1a"}

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer("secret-token" if self.path == "/latest/api/token" else None)

        def do_GET(self) -> None:
            allowed = self.headers.get("X-aws-ec2-metadata-token") == "secret-token"
            self._answer(guest.metadata.get(self.path.removeprefix("/latest/meta-data/")) if allowed else None)

        def _answer(self, text: str | None) -> None:
            self.send_response(404 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    (tmp_path / "bin").mkdir()
    aws = tmp_path / "bin" / "aws"
    aws.write_text(AWS)
    aws.chmod(0o755)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        guest.imds = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield guest
        server.shutdown()
        serving.join()


async def test_a_node_joins_and_leaves(guest: Guest) -> None:
    node = guest.folder / "node"
    guest.hook("ready", f"[ -e {node}.ready ]")
    guest.hook("leave", f'echo "$BIGFLEET_GRACE_SECONDS" >{guest.folder}/grace; rm -f {node}')
    guest.leave("a1", f'#!/bin/sh\necho "$BIGFLEET_MACHINE $BIGFLEET_PROVIDER_ID" >{node}\n')
    async with guest.running():
        guest.order("join a1")
        await eventually(lambda: node.exists() and node.read_text())
        assert node.read_text() == f"m5-a-0 aws:///us-east-1a/{INSTANCE}\n"
        assert not guest.mail("a1", "joined").exists()
        node.with_suffix(".ready").touch()
        assert await guest.word("a1", "joined") == "m5-a-0\n"
        guest.order("leave b2 30")
        await guest.word("b2", "left")
    assert (guest.folder / "grace").read_text() == "30\n"
    assert not node.exists()
    assert {path.name for path in (guest.folder / "state").iterdir()} == {"done"}


async def test_a_blob_that_fails_is_told_of_without_what_it_said(guest: Guest) -> None:
    guest.leave("a1", "#!/bin/sh\necho sesame\nexit 4\n")
    guest.order("join a1")
    async with guest.running():
        said = await guest.word("a1", "failed")
    assert "ended with code 4" in said
    assert "sesame" not in said
    log = guest.folder / "state" / "bootstrap.log"
    assert log.read_text() == "sesame\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_a_wipe_that_fails_is_told_of(guest: Guest) -> None:
    guest.hook("leave", "echo the kubelet will not stop; exit 1")
    guest.order("leave b2 0")
    async with guest.running():
        assert "the kubelet will not stop" in await guest.word("b2", "failed")


KEY = "root/var/lib/kubelet/pki/kubelet-client.pem"


def _node(guest: Guest) -> Path:
    """A host with a kubelet's key, a container and a pod; what it is asked to do goes to a file."""
    key = guest.folder / KEY
    key.parent.mkdir(parents=True)
    key.touch()
    asked = guest.folder / "asked"
    for name in ("systemctl", "umount"):
        guest.program(name, f'echo {name} "$@" >>{asked}')
    guest.program("crictl", f'echo crictl "$@" >>{asked}\ncase "$1" in ps) echo c1 ;; pods) echo p1 ;; esac')
    guest.program("pgrep", "exit 1")
    return asked


async def test_without_a_hook_the_kubelet_pods_and_keys_go(guest: Guest) -> None:
    asked = _node(guest)
    guest.order("leave b2 7")
    async with guest.running():
        await guest.word("b2", "left")
    assert asked.read_text().splitlines() == [
        "systemctl stop kubelet.service",
        "crictl ps --quiet",
        "crictl stop --timeout 7 c1",
        "crictl pods --quiet",
        "crictl rmp --force p1",
    ]
    assert not (guest.folder / KEY).exists()


@pytest.mark.parametrize(
    ("name", "script"), [("systemctl", "exit 1"), ("crictl", "[ $1 != rmp ] || exit 1; echo x"), ("pgrep", "exit 0")]
)
async def test_a_host_that_is_not_clean_never_says_that_it_left(guest: Guest, name: str, script: str) -> None:
    _node(guest)
    guest.program(name, script)
    guest.order("leave b2 0")
    async with guest.running():
        assert "could not leave" in await guest.word("b2", "failed")
    assert not guest.mail("b2", "left").exists()


async def test_an_agent_that_starts_again_runs_no_blob_twice(guest: Guest) -> None:
    runs = guest.folder / "runs"
    guest.hook("ready", f"[ -e {guest.folder}/ready ]")
    guest.leave("a1", f"#!/bin/sh\necho run >>{runs}\n")
    guest.order("join a1")
    async with guest.running():
        await eventually((guest.folder / "state" / "ran").exists)
    (guest.folder / "ready").touch()
    async with guest.running():
        await guest.word("a1", "joined")
    assert runs.read_text() == "run\n"


async def test_provider_and_agent_mean_the_same_folder(world: World, guest: Guest) -> None:
    config = load(world.config)
    folder = Mailbox(None, config.guest).folder(INSTANCE)  # type: ignore[arg-type]
    assert guest.mail("a1", "joined") == guest.folder / "s3" / BUCKET / folder / "a1" / "joined"
    assert f"BIGFLEET_MAILBOX={BUCKET}/{folder.removesuffix(f':{INSTANCE}/')}\n" in user_data(config, "m5-a-0")


async def test_the_user_data_is_a_script_that_bash_can_read(world: World) -> None:
    script = user_data(load(world.config), "m5-a-0")
    process = await asyncio.create_subprocess_exec("bash", "-n", stdin=asyncio.subprocess.PIPE)
    await process.communicate(script.encode())
    assert process.returncode == 0
