"""`bigfleet conformance`: certify a provider."""

import asyncio
import secrets
import shlex
import signal
from pathlib import Path
from typing import Annotated

import typer

from bigfleet.cli.program import InputError, console, examples
from bigfleet.conformance.catalogue import BEHAVIOURS
from bigfleet.conformance.errors import TargetError
from bigfleet.conformance.report import write_reports
from bigfleet.conformance.run import Options, Report, certify
from bigfleet.conformance.suite import Profile, selects
from bigfleet.conformance.terminal import Terminal, plain
from bigfleet.telemetry.logs import Level, configure
from bigfleet.transport.address import dial_address
from bigfleet.transport.identity import Role
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSFiles

CONFORMANCE_EPILOG = examples(
    "bigfleet conformance --target 127.0.0.1:9001",
    "bigfleet conformance --target 127.0.0.1:9001 --profile cloud,fault --only B3,B501 --report out",
    "bigfleet conformance --target unix:/tmp/p.sock --launch 'my-provider --listen unix:/tmp/p.sock --state p.db'",
)

_AUTO = "auto"
_MAX_BLOB_BYTES = 1 << 20
_TERMINATED = 128 + signal.SIGTERM


def conformance(
    target: Annotated[str, typer.Option(help="The provider: HOST:PORT or unix:PATH.")],
    profile: Annotated[
        list[str] | None,
        typer.Option(
            help="core, cloud, bare-metal, spot, scale, durable or fault; several by comma or repetition. "
            "auto is what the probes find; scale runs only when named. [default: auto]"
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Some behaviours only: B3 for an area, B501 for one; several by comma.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the random cases of an earlier run again.", min=0)] = None,
    settle_seconds: Annotated[
        float, typer.Option(help="How long a transition may take before it counts as stuck.", min=0.1, max=86_400)
    ] = 60.0,
    launch: Annotated[
        str | None,
        typer.Option(help="Start the provider with this command, kill -9 it and start it again for B10xx."),
    ] = None,
    hosts_cmd: Annotated[
        str | None,
        typer.Option(help="A command that prints the reference of every host there is, one a line, for B708."),
    ] = None,
    bootstrap_blob: Annotated[
        Path | None, typer.Option(help="A file whose bytes Configure sends, where nodes really have to join.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="A folder for junit.xml, report.json and report.html.")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Certificate chain, PEM; all three TLS files or none.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its private key, PEM.")] = None,
    tls_ca: Annotated[str | None, typer.Option(help="The CA bundle that peers are checked against, PEM.")] = None,
    log_level: Annotated[Level, typer.Option(help="The least severe event that is logged.")] = Level.WARNING,
) -> None:
    """Certify a provider against the capacity contract.

    The suite makes the six calls of the contract and no others. It uses only machines that are Speculative or Idle
    and unbound, and brings them back. A machine with the label conformance.bigfleet.lucy.sh/fault lets failures be
    seen: create-error, configure-error, drain-error, delete-error, create-hang, configure-hang, create-late or
    join-late, the last two with conformance.bigfleet.lucy.sh/seconds. Exit code 0: nothing failed. With TLS, give
    the suite a shard certificate of its own, not that of a shard in use.
    """
    configure(log_level)
    files = TLSFiles.from_flags(tls_cert, tls_key, tls_ca)
    tls = None if files is None else LiveTLS.start(files)
    if tls is not None and tls.identity.role is not Role.SHARD:
        raise InputError(f"--tls-cert names {tls.identity}; a provider takes mutating calls from bigfleet://shard/<id>")
    # The folder is made before the run, so that one that cannot be written to is noticed at once and not after an hour.
    folder = None if report is None else _folder(report)
    options = Options(
        address=dial_address(target),
        seed=secrets.randbelow(2**32) if seed is None else seed,
        tls=tls,
        profiles=_profiles(profile or []),
        only=_selectors(only or []),
        settle_seconds=settle_seconds,
        launch=_command(launch, "--launch"),
        launch_log=folder / "provider.log" if launch and folder else None,
        hosts_command=_command(hosts_cmd, "--hosts-cmd"),
        **({} if bootstrap_blob is None else {"bootstrap_blob": _blob(bootstrap_blob)}),
    )
    try:
        result = asyncio.run(_watched(options))
        if launch and not result.passed:
            kept = "is not kept without --report FOLDER" if folder is None else f"is in {options.launch_log}"
            typer.echo(f"what the provider said {kept}")
    except TargetError as error:
        for line in error.log:
            typer.echo(f"  {plain(line)}", err=True)
        raise InputError(str(error)) from None
    except asyncio.CancelledError:
        raise typer.Exit(_TERMINATED) from None
    if folder is not None:
        write_reports(result, folder)
    raise typer.Exit(0 if result.passed else 1)


async def _watched(options: Options) -> Report:
    """Run the suite and show it on the terminal. SIGTERM, as a CI system sends it, ends the run in order, as Ctrl-C."""
    if (run := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, run.cancel)
    with Terminal(console()) as terminal:
        report = await certify(options, terminal)
    terminal.ended(report)
    return report


def _words(values: list[str]) -> list[str]:
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def _profiles(values: list[str]) -> frozenset[Profile]:
    names = {profile.value for profile in Profile}
    words = _words(values)
    for word in words:
        if word not in names and word != _AUTO:
            raise typer.BadParameter(f"--profile {word!r} is none of {_AUTO}, {', '.join(sorted(names))}")
    if _AUTO in words and len(words) > 1:
        raise typer.BadParameter(f"--profile {_AUTO} stands alone")
    return frozenset(Profile(word) for word in words if word != _AUTO)


def _selectors(values: list[str]) -> tuple[str, ...]:
    words = _words(values)
    for word in words:
        if not any(selects(word, behaviour) for behaviour in BEHAVIOURS):
            raise typer.BadParameter(f"--only {word!r} names no behaviour; B3 is an area, B301 one behaviour")
    return tuple(words)


def _command(text: str | None, flag: str) -> str | None:
    try:
        usable = text is None or bool(shlex.split(text))
    except ValueError:
        usable = False
    if not usable:
        raise typer.BadParameter(f"{flag} {text!r} is no command; check its quotes")
    return text


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--report {path}: {error.strerror or 'cannot be made'}") from None
    return path


def _blob(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BLOB_BYTES + 1)
    except OSError as error:
        raise InputError(f"--bootstrap-blob {path}: {error.strerror or 'cannot be read'}") from None
    if len(content) > _MAX_BLOB_BYTES:
        raise InputError(f"--bootstrap-blob {path}: is larger than {_MAX_BLOB_BYTES} bytes")
    return content
