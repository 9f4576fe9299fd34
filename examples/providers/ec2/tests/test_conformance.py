"""The conformance suite against this provider, as its author runs it; moto is the cloud, and a thread its guests."""

import asyncio
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Guests, World
from .test_process import HERE, command, environment


@pytest.mark.timeout(600)
async def test_the_provider_conforms(world: World, guests: Guests, free_port: Callable[[], int]) -> None:
    port, report = free_port(), world.folder / "report"
    hosts = [sys.executable, str(HERE / "hosts.py"), world.endpoint]
    suite = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("bigfleet")), "conformance"),
        *("--target", f"127.0.0.1:{port}", "--launch", shlex.join(command(world, port))),
        *("--profile", "core,cloud,spot,durable,fault", "--hosts-cmd", shlex.join(hosts), "--report", str(report)),
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await suite.communicate()
    assert suite.returncode == 0, said.decode()
    behaviours = json.loads((report / "report.json").read_text())["behaviours"]
    assert [each["id"] for each in behaviours if each["outcome"] != "passed" and each["profile"] != "scale"] == []
    assert world.instances("pending", "running") == [], "the suite left instances that cost money"
    assert world.mail() == [], "the suite left mail"
