"""Programs whose names are taken and whose work is not built yet: they say so and fail."""

from typing import NoReturn

from bigfleet.cli.program import leave


def _say(name: str) -> NoReturn:
    leave(name, "is not built yet; bigfleet --help lists the programs that are", 1)


def fauxctl() -> NoReturn:
    """The simulator."""
    _say("fauxctl")
