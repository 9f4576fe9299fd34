"""The program: `python -m bigfleet_ec2 --config pools.yaml --state FILE`."""

from pathlib import Path
from typing import NoReturn

from bigfleet.providerkit import Backend, ConfigError, main

from bigfleet_ec2.backend import EC2
from bigfleet_ec2.config import load


def make(path: Path | None) -> Backend:
    """The backend of a configuration file."""
    if path is None:
        raise ConfigError("--config FILE is needed: the pools")
    return EC2(load(path))


def run() -> NoReturn:
    """Serve until told to stop."""
    main("bigfleet-ec2", make)


if __name__ == "__main__":
    run()
