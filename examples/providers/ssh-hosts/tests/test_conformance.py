"""The conformance suite against this provider, as its author runs it."""

import asyncio
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import JOINS, Rack
from .test_process import command, environment


@pytest.mark.timeout(600)
async def test_the_provider_conforms(rack: Rack, free_port: Callable[[], int]) -> None:
    port, report = free_port(), rack.folder / "report"
    # The suite also sends a blob that is no program, only large; these hosts join whatever they are sent.
    (rack.folder / "join").write_bytes(JOINS)
    rack.write(scripts={**rack.content["scripts"], "bootstrap": "join"})
    suite = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("bigfleet")), "conformance"),
        *("--target", f"127.0.0.1:{port}", "--launch", shlex.join(command(rack, port))),
        *("--profile", "core,bare-metal,durable,fault", "--report", str(report)),
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await suite.communicate()
    assert suite.returncode == 0, said.decode()
    behaviours = json.loads((report / "report.json").read_text())["behaviours"]
    skipped = {each["id"] for each in behaviours if each["outcome"] != "passed" and each["profile"] != "scale"}
    # Hardware is neither made nor deleted; what is about that cannot be seen here, and all the rest must be.
    assert skipped == {"B102", "B109", "B202", "B401", "B409", "B701", "B704", "B708", "B807"}
    assert not list(rack.folder.glob("hosts/*/*/node")), "a host was left in a cluster"
