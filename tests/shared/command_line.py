"""`bigfleet` in the test's own process: all that it prints, and its exit code.

A process takes a second to start, most of it imports. One of each kind is started as a process all the same: those
tests say that the installed script works.
"""

import io
import os
import sys
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import structlog

from bigfleet.cli.bigfleet import main

ROOT = Path(__file__).parents[2]


class Ran(NamedTuple):
    """How a command ended, in the words of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str

    def refusal(self, code: int) -> str:
        """The one line that a person's mistake is answered with."""
        assert self.returncode == code, self.stderr
        assert self.stdout == ""
        (line,) = self.stderr.splitlines()
        return line


def bigfleet(*arguments: str | Path, encoding: str = "utf-8", **environment: str) -> Ran:
    """Run a command from the root of the tree, on a terminal that is 200 columns wide, to its end."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2))
    try:
        with (
            chdir(ROOT),
            patch.dict(os.environ, {"COLUMNS": "200", **environment}),
            patch.multiple(sys, argv=["bigfleet", *map(str, arguments)], stdout=out, stderr=err),
        ):
            main()
    except SystemExit as end:
        assert isinstance(end.code, int)
        code = end.code
    finally:
        # A command may have set up the log of a program.
        structlog.reset_defaults()
    return Ran(code, *(each.buffer.getvalue().decode(encoding) for each in (out, err)))
