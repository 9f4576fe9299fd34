"""`fauxctl`, the simulator, which is not built yet: the program says so and fails."""

from typing import NoReturn

from bigfleet.cli.program import leave


def fauxctl() -> NoReturn:
    """The console script."""
    leave("fauxctl", "is not built yet; bigfleet --help lists the programs that are", 1)
