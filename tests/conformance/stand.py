"""Running the suite on a provider of this folder, quickly."""

import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigfleet.conformance.run import Options, Report, certify
from bigfleet.conformance.suite import Behaviour, Outcome, Profile, Result
from bigfleet.conformance.workbench.bench import Facts
from bigfleet.transport.address import TCPAddress
from tests.conformance.reference import Options as ProviderOptions
from tests.conformance.reference import Reference, serving

# A transition of the reference takes milliseconds; a busy computer is given two seconds.
SETTLE_SECONDS = 2.0
ROOT = Path(__file__).parents[2]
SEED = 20_261


class Watcher:
    """Keeps what a run tells of itself."""

    def __init__(self) -> None:
        self.finished_ids: list[str] = []

    def began(self, options: Options, facts: Facts, profiles: Sequence[Profile], chosen: Sequence[Behaviour]) -> None:
        pass

    def started(self, behaviour: Behaviour) -> None:
        pass

    def finished(self, result: Result) -> None:
        self.finished_ids.append(result.behaviour.id)


async def certified(
    make: type[Reference],
    folder: Path,
    *,
    hosts: bool = False,
    settle: float = SETTLE_SECONDS,
    suite: dict[str, Any] | None = None,
    **options: Any,
) -> Report:
    """The report on a provider that is served for the length of one run."""
    path = folder / "hosts"
    path.touch()
    settings: dict[str, Any] = {"settle_seconds": settle, **(suite or {})}
    if hosts:
        options["hosts"] = path
        settings["hosts_command"] = f"cat {shlex.quote(str(path))}"
    async with serving(make(ProviderOptions(**{"machines": 6, **options}))) as port:
        return await certify(Options(TCPAddress("127.0.0.1", port), SEED, **settings), Watcher())


def outcomes(report: Report) -> dict[str, Outcome]:
    """What became of each behaviour."""
    return {result.behaviour.id: result.outcome for result in report.results}


def message(report: Report, behaviour_id: str) -> str:
    """What was said about one behaviour."""
    return next(result.message for result in report.results if result.behaviour.id == behaviour_id)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def launch_command(port: int, state: Path, *more: str) -> str:
    """How to start the reference as a process of its own."""
    module = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.conformance.reference"]
    words = [*module, "--listen", f"127.0.0.1:{port}", "--state", str(state), *more]
    return shlex.join(words)


async def certified_process(folder: Path, *words: str, only: tuple[str, ...] = (), **settings: Any) -> Report:
    """The report on a provider that the suite itself starts, kills and starts again."""
    port = free_port()
    options = Options(
        TCPAddress("127.0.0.1", port),
        SEED,
        only=only,
        launch=launch_command(port, folder / "state", *words),
        launch_log=folder / "provider.log",
        # Starting a process takes longer than any of its transitions.
        **{"settle_seconds": 3.0, **settings},
    )
    return await certify(options, Watcher())
