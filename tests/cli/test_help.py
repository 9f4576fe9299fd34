"""The help of every command: examples that can be copied, one a line, and summaries that are not cut."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from bigfleet.cli.bigfleet import app as bigfleet
from bigfleet.cli.ctl.bigfleetctl import app as bigfleetctl

WIDTH = 80
# A Typer group is a click group, which Typer carries inside and does not export by name.
Command = Any


def commands(command: Command, *names: str) -> Iterator[tuple[str, Command]]:
    """A command and all below it, by what a person types."""
    yield " ".join(names), command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, *names, name)


EVERY = dict(
    each
    for app, name in ((bigfleet, "bigfleet"), (bigfleetctl, "bigfleetctl"))
    for each in commands(typer.main.get_command(app), name)
)


def help_of(command: str) -> str:
    """The help on a terminal of the usual width."""
    found = EVERY[command]
    return str(found.get_help(typer.Context(found, info_name=command, terminal_width=WIDTH)))


def test_the_commands_of_all_groups_are_looked_at() -> None:
    assert {
        "bigfleet",
        "bigfleet provider sim",
        "bigfleet dev cluster up",
        "bigfleetctl clusters forget",
    } <= EVERY.keys()


@pytest.mark.parametrize("command", EVERY)
def test_the_help_ends_with_examples_that_can_be_copied(command: str) -> None:
    _, begin, examples = help_of(command).rpartition("\n\n  Example")
    assert begin, "there is no example"
    _, *lines = examples.splitlines()
    assert lines
    for line in lines:
        assert line.startswith("    "), line
        words = shlex.split(line)
        assert line.strip().startswith((command, 'eval "$(')), line
        assert "·" not in words, line


@pytest.mark.parametrize("command", EVERY)
def test_the_summaries_of_its_commands_are_not_cut(command: str) -> None:
    _, _, listed = help_of(command).partition("\nCommands:\n")
    names = getattr(EVERY[command], "commands", {})
    lines = listed.partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == list(names)
    assert [line for line in lines if line.endswith("...") or len(line) > WIDTH] == []
