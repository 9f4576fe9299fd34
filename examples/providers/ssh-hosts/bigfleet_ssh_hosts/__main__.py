"""The program: `python -m bigfleet_ssh_hosts --config inventory.yaml --state FILE`."""

from pathlib import Path
from typing import NoReturn

from bigfleet.providerkit import Backend, ConfigError, main

from bigfleet_ssh_hosts.backend import SSHHosts
from bigfleet_ssh_hosts.inventory import load


def make(path: Path | None) -> Backend:
    """The backend of an inventory file."""
    if path is None:
        raise ConfigError("--config FILE is needed: the inventory of hosts")
    return SSHHosts(load(path))


def run() -> NoReturn:
    """Serve until told to stop."""
    main("bigfleet-ssh-hosts", make)


if __name__ == "__main__":
    run()
