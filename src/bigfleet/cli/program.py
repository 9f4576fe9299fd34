"""What every program does in the same way: parse, run, and turn a user's mistake into one line and an exit code.

Exit code 2 is a mistake on the command line, 1 is anything else that a person can mend. A traceback is a bug of ours.
"""

import io
import sys
from typing import NoReturn

import structlog
import typer
from rich.console import Console

from bigfleet.model.crd import ManifestError
from bigfleet.model.demand.request import RequestError
from bigfleet.provider.epoch import EpochError
from bigfleet.providerkit.new import NewProjectError
from bigfleet.providerkit.server.main import USER_ERRORS as PROVIDER_ERRORS
from bigfleet.shard.config import ConfigError
from bigfleet.shard.persistence.audit_log import AuditError
from bigfleet.shard.persistence.journal import JournalError
from bigfleet.telemetry.traces import TracingError
from bigfleet.transport.address import AddressError
from bigfleet.transport.identity import Identity, IdentityError, Role
from bigfleet.transport.listen import ListenError
from bigfleet.transport.server_check import DialError
from bigfleet.transport.tls import TLSConfigError


class InputError(Exception):
    """Something that a person named on the command line cannot be used."""


USER_ERRORS: tuple[type[Exception], ...] = (
    InputError,
    ManifestError,
    RequestError,
    AddressError,
    ListenError,
    DialError,
    TLSConfigError,
    NewProjectError,
    ConfigError,
    EpochError,
    JournalError,
    AuditError,
    TracingError,
    *PROVIDER_ERRORS,
)
"""Errors that name what a person can mend; their text becomes the one line on standard error."""

INTERRUPTED = 130

_log = structlog.get_logger("bigfleet.cli")

# Typer carries a copy of click inside and does not export these two by name.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[1]
_ClickError: type[typer.BadParameter] = typer.BadParameter.__mro__[2]


def run(app: typer.Typer, name: str) -> NoReturn:
    """Run a program to its end and leave the process."""
    command = typer.main.get_command(app)
    try:
        result = command.main(prog_name=name, standalone_mode=False)
    except _UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else name
        leave(where, f"{error.format_message().rstrip('.')} (see {where} --help)", 2)
    except _ClickError as error:
        leave(name, error.format_message(), 1)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except USER_ERRORS as error:
        leave(name, str(error), 1)
    sys.exit(result if isinstance(result, int) else 0)


def examples(*commands: str) -> str:
    """The end of a help text: commands that a person can copy, one a line."""
    # The backspace tells click to leave the lines below it as they are.
    return "\n".join(("\b", "Examples:" if len(commands) > 1 else "Example:", *(f"  {each}" for each in commands)))


def check_id(text: str, flag: str) -> None:
    """Raise InputError for an id that no certificate could name."""
    try:
        Identity(Role.CLUSTER, text)
    except IdentityError as error:
        raise InputError(f"{flag}: {error}") from None


def console() -> Console:
    """Standard output for people. Nothing is taken for markup, and characters that cannot be shown are replaced."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(markup=False, highlight=False, emoji=False)


def leave(name: str, problem: str, code: int) -> NoReturn:
    """End the program with one line on standard error."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(problem.split()))
    sys.stderr.write(f"{name}: {line}\n")
    sys.exit(code)
