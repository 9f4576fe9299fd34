"""`bigfleet conformance` as a person runs it."""

import asyncio
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from bigfleet.cli.bigfleet import main
from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.refusals import EmptyIdIsNotFound
from tests.conformance.reference import Context, Reference, Request, S, serving
from tests.conformance.reference import Options as ProviderOptions
from tests.conformance.stand import free_port, launch_command
from tests.shared.program import DEADLINE


async def started(*arguments: str | Path) -> asyncio.subprocess.Process:
    """The installed script, running."""
    return await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "bigfleet"),
        "conformance",
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "160", "PYTHONUNBUFFERED": "1"},
    )


async def bigfleet(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the installed script."""
    process = await started(*arguments)
    out, err = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()


async def test_a_provider_that_the_suite_starts_is_certified_and_reported(tmp_path: Path) -> None:
    port = free_port()
    code, out, err = await bigfleet(
        f"--target=127.0.0.1:{port}",
        f"--launch={launch_command(port, tmp_path / 'state')}",
        f"--report={tmp_path / 'out'}",
        "--only=B101,B10",
        "--only=B301",
        "--seed=42",
        "--settle-seconds=10",
    )
    assert (code, err) == (0, "")
    assert "replay with --seed 42" in out
    assert "B10xx durability" in out
    assert re.search(r"CONFORMS; checked: B101, B10, B301 only  9 passed, 0 failed, 0 skipped in \d", out)
    assert [line.split()[1] for line in out.splitlines() if line.startswith("✓")] == [
        "B101", "B301", *(f"B{number}" for number in range(1001, 1008)),
    ]  # fmt: skip
    assert json.loads((tmp_path / "out" / "report.json").read_text())["passed"] is True
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "junit.xml", "report.json", "report.html", "provider.log",
    }  # fmt: skip


async def in_the_middle(port: int, state: Path) -> asyncio.subprocess.Process:
    """A run that has started its provider and moved machines, and is not done."""
    process = await started(
        f"--target=127.0.0.1:{port}",
        f"--launch={launch_command(port, state, '--latency', '0.05')}",
        # B101 is among the first to end, and much is left to do by then, however slow the reader is.
        "--only=B1,B2,B3,B4,B5",
        "--settle-seconds=10",
    )
    assert process.stdout is not None
    while not (line := (await process.stdout.readline()).decode()).startswith("✓ B101"):
        assert line, "the run ended before it was called off"
    return process


async def test_sigterm_brings_machines_back_and_ends_the_provider(tmp_path: Path) -> None:
    port = free_port()
    process = await in_the_middle(port, tmp_path / "state")
    process.terminate()
    out, err = await process.communicate()
    assert (process.returncode, err) == (143, b"")
    assert b"CONFORM" not in out
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    left = Reference(ProviderOptions(state=tmp_path / "state"))
    assert {S(record.state) for record in left.fleet.machines.values()} == {S.SPECULATIVE}


async def test_a_provider_does_not_outlive_a_suite_that_is_killed(tmp_path: Path) -> None:
    port = free_port()
    process = await in_the_middle(port, tmp_path / "state")
    process.kill()
    await process.communicate()
    async with asyncio.timeout(DEADLINE):
        await gone(port)


async def gone(port: int) -> None:
    """Wait until nobody listens here: a connection ends when the process at its other side does."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_a_liar_ends_with_code_1_and_the_behaviour_it_broke() -> None:
    async with serving(EmptyIdIsNotFound(ProviderOptions(machines=2))) as port:
        code, out, err = await bigfleet(f"--target=127.0.0.1:{port}", "--only=B208,B215", "--settle-seconds=5")
    assert (code, err) == (1, "")
    assert "✗ B208  an empty id is INVALID_ARGUMENT" in out
    assert "expected a refusal with INVALID_ARGUMENT, because the id is empty; came NOT_FOUND" in " ".join(out.split())
    assert "✓ B215" in out
    assert "DOES NOT CONFORM  1 passed, 1 failed, 0 skipped" in out


class BrokenHandler(Reference):
    """Raises an exception in whatever touches an existing machine."""

    async def mutate(self, call: Call, request: Request, context: Context) -> pb.TransitionAck:
        if request.machine_id in self.fleet.machines and call is not Call.DELETE:
            raise KeyError("rack")
        return await super().mutate(call, request, context)


async def test_failures_of_one_cause_are_one_cross_and_a_list() -> None:
    async with serving(BrokenHandler(ProviderOptions(machines=6))) as port:
        code, out, _ = await bigfleet(f"--target=127.0.0.1:{port}", "--only=B1,B2,B5", "--settle-seconds=5")
    assert code == 1
    crosses = [line for line in out.splitlines() if line.startswith("✗")]
    assert crosses[0].startswith("✗ B101 ")
    assert re.fullmatch(r"✗ one cause, 2\d failures: calls are answered with UNKNOWN: .*KeyError.*rack.*", crosses[1])
    assert len(crosses) == 2
    assert re.search(r"^ +B101, B102, B103, B104, B105, .*B501, B502, B503, B504, B505$", out, re.MULTILINE)


async def test_a_verdict_names_what_was_not_checked_and_how_to_check_it() -> None:
    async with serving(Reference(ProviderOptions(machines=6))) as port:
        code, out, _ = await bigfleet(f"--target=127.0.0.1:{port}", "--settle-seconds=5")
    assert code == 0
    assert re.search(r"^CONFORMS; not checked: durable, fault, hosts  \d+ passed, 0 failed", out, re.MULTILINE)
    assert re.search(r"^○ durable: 7 behaviours are not checked: .*give --launch CMD", out, re.MULTILINE)
    assert re.search(r"^○ hosts: B708 is not checked: give --hosts-cmd CMD", out, re.MULTILINE)


async def test_a_provider_that_cannot_start_shows_what_it_said_last() -> None:
    broken = "import sys; print('reading config'); sys.exit('config.yaml: machines is missing')"
    port = free_port()
    code, out, err = await bigfleet(f"--target=127.0.0.1:{port}", f"--launch={sys.executable} -c {broken!r}")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "  reading config",
        "  config.yaml: machines is missing",
        f"bigfleet: --launch {sys.executable}: ended with code 1 before it listened at 127.0.0.1:{port}",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--target=127.0.0.1:1", "--profile=moon"], "--profile 'moon' is none of auto, bare-metal, cloud, core"),
        (["--target=127.0.0.1:1", "--profile=auto,core"], "--profile auto stands alone"),
        (["--target=127.0.0.1:1", "--only=B304"], "--only 'B304' names no behaviour"),
        (["--target=127.0.0.1:1", "--launch="], "--launch '' is no command"),
        (["--target=127.0.0.1:1", "--hosts-cmd=cat 'x"], "is no command; check its quotes"),
        (["--target=127.0.0.1:1", "--settle-seconds=0"], "--settle-seconds"),
        ([], "--target"),
    ],
    ids=str,
)
def test_a_mistake_on_the_command_line_is_one_line_and_code_2(
    arguments: list[str], problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bigfleet", "conformance", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    (line,) = err.splitlines()
    assert problem in line


async def refusal(*arguments: str | Path) -> str:
    """The one line about a target or file that cannot be used."""
    code, out, err = await bigfleet(*arguments)
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    return line


async def test_a_target_that_cannot_be_reached_is_one_line() -> None:
    port = free_port()
    assert f"cannot use the server at 127.0.0.1:{port}: " in await refusal(f"--target=127.0.0.1:{port}")


async def test_a_target_that_is_no_provider_is_one_line() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    line = await refusal(f"--target=127.0.0.1:{port}")
    await server.stop(None)
    assert f"127.0.0.1:{port} answers, but is no CapacityProvider" in line


async def test_a_target_that_does_not_speak_grpc_is_one_line() -> None:
    async def chatter(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(chatter, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        line = await refusal(f"--target=127.0.0.1:{port}", "--settle-seconds=1")
    assert f"127.0.0.1:{port}" in line


class Hanging(Reference):
    async def List(self, request: pb.ListFilter, context: Context) -> pb.MachineList:  # noqa: N802 - the contract's name
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_target_that_hangs_is_one_line() -> None:
    async with serving(Hanging(ProviderOptions(machines=1))) as port:
        line = await refusal(f"--target=127.0.0.1:{port}", "--settle-seconds=0.5")
    assert f"127.0.0.1:{port} does not answer: List took longer than 0.5 s (--settle-seconds)" in line


async def test_a_certificate_of_no_shard_is_refused(pki: Any) -> None:
    files = pki.write(pki.issue("bigfleet://readonly"))
    flags = [f"--tls-cert={files.cert}", f"--tls-key={files.key}", f"--tls-ca={files.ca}"]
    line = await refusal("--target=127.0.0.1:1", *flags)
    assert "--tls-cert names bigfleet://readonly; a provider takes mutating calls from bigfleet://shard/<id>" in line


async def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing, target = tmp_path / "none", f"--target=127.0.0.1:{free_port()}"
    assert f"--bootstrap-blob {missing}: No such file" in await refusal(target, f"--bootstrap-blob={missing}")
    (tmp_path / "file").touch()
    assert f"--report {tmp_path / 'file'}: File exists" in await refusal(target, f"--report={tmp_path / 'file'}")
