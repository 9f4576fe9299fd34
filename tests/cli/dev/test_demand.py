"""`bigfleet dev demand`, run as a person runs it: a cluster that asks for what is in a file."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc import StatusCode

from bigfleet.cli.ctl.shard_client import Target, list_clusters
from bigfleet.transport.address import UnixAddress
from tests.cli.playground import SCRIPT, all_in_one

pytestmark = pytest.mark.timeout(120)

_PATIENCE = 60.0


def manifest(*sizes: str, priority: int = 1000) -> str:
    """A request for each of these cores."""
    return "---\n".join(
        "apiVersion: bigfleet.lucy.sh/v1alpha1\nkind: CapacityRequest\n"
        f"metadata: {{name: web-{number}, namespace: a}}\n"
        f"spec: {{resources: {{cpu: {cpu}}}, priority: {priority}}}\n"
        for number, cpu in enumerate(sizes)
    )


class Asking:
    """A running `bigfleet dev demand`, and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.said = process, list[str]()

    async def until(self, *words: str) -> str:
        """The next line that holds all of these words."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(_PATIENCE):
                async for raw in self.process.stdout:
                    self.said.append(raw.decode().rstrip())
                    if all(word in self.said[-1] for word in words):
                        return self.said[-1]
        except TimeoutError:
            pass
        raise AssertionError(f"it never said {words}: {self.said}")

    async def rest(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.read()).decode()


@asynccontextmanager
async def asking(folder: Path, *arguments: str | Path) -> AsyncIterator[Asking]:
    """One that is killed at the end unless it is over by then."""
    process = await asyncio.create_subprocess_exec(
        *(str(SCRIPT), "dev", "demand", *map(str, arguments), f"--shard=unix:{folder}/s"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Asking(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def refusal(*arguments: str | Path) -> str:
    done = subprocess.run(
        [str(SCRIPT), "dev", "demand", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


async def test_it_asks_for_what_is_in_the_file_follows_it_and_leaves_the_demand_behind(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(manifest("5", "5"))
    target = Target(UnixAddress(f"{tmp_path}/s"), None)
    async with all_in_one(tmp_path), asking(tmp_path, file, "--cluster", "a") as one:
        await one.until("a: asks for 2 requests in 1 row")
        await one.until("2 units of cpu 5 at priority 1000; machines must have: anything")
        await one.until("the shard has taken the demand: 1 row")
        await one.until("on the way:", "m.8 OnDemand in a")
        await one.until("pods: 2 of 2 run")
        assert any("Ready: " in line for line in one.said)

        file.write_text(manifest("5", "5", "fast"))
        said = await one.until("the demand stays as it was")
        assert f"{file}: document 3: spec.resources[cpu]: 'fast' is no quantity" in said

        file.write_text(manifest("5", "5", "64"))
        await one.until("asks for 3 requests in 2 rows")
        await one.until("short: 1 of 1 unit of cpu 64")
        await one.until("short: next: ")
        file.write_text(manifest("5", "5", "5"))
        await one.until("nothing is short any more")
        await one.until("pods: 3 of 3 run")

        one.process.send_signal(signal.SIGINT)
        last = await one.rest()
        assert await one.process.wait() == 0
        assert "the cluster keeps its 3 machines" in last
        assert f"bigfleetctl clusters forget a --yes --shard unix:{tmp_path}/s gives everything back" in last
        (left,) = await list_clusters(target)
        assert (left.connected, left.needs, left.machines) == (False, 1, 3)

        async with asking(tmp_path, file, "--cluster", "a") as again:
            await again.until("pods: 3 of 3 run")
            assert not any("on the way" in line for line in again.said)


async def test_two_clusters_ask_at_once_and_the_more_important_one_gets_what_there_is(tmp_path: Path) -> None:
    files = [tmp_path / "batch.yaml", tmp_path / "web.yaml"]
    files[0].write_text(manifest(*["8"] * 20, priority=10))
    files[1].write_text(manifest("8", "8"))
    async with all_in_one(tmp_path), asking(tmp_path, files[0], "--cluster", "batch") as batch:
        await batch.until("pods: 20 of 20 run")
        async with asking(tmp_path, files[1], "--cluster", "web") as web:
            await web.until("pods: 2 of 2 run")
        await batch.until("leaving:", "because more important work takes it")
        await batch.until("short: ")


async def test_a_shard_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(manifest("1"))
    async with asking(tmp_path, file, "--cluster", "a") as one:
        said = await one.until("no session with the shard", "trying again")
        assert StatusCode.UNAVAILABLE.name in said
        async with all_in_one(tmp_path):
            await one.until("connected to the shard")
            await one.until("pods: 1 of 1 run")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (manifest("1", "fast"), "document 2: spec.resources[cpu]: 'fast' is no quantity"),
        (manifest("1").replace("priority: 1000", "priority: high"), "document 1: spec.priority: Expected `int`"),
        (manifest("1").replace("CapacityRequest", "Deployment"), "document 1: kind: 'Deployment' is none of"),
        ("", "no CapacityRequest is in there"),
    ],
)
def test_a_manifest_at_fault_is_named_by_file_document_and_field(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(text)
    assert f"bigfleet: {file}: {words}" in refusal(file, "--cluster", "a")


def test_a_cluster_that_no_certificate_could_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(manifest("1"))
    assert refusal(file, "--cluster", "a/b").startswith("bigfleet: --cluster: ")
