"""The inventory file: the hosts, and how they are reached. The whole file is checked before it is used."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from bigfleet.providerkit import CapacityType, ConfigError, Offer, OfferError, Shape

RACK = "topology.bigfleet.lucy.sh/rack"
"""The label by which a shard tells racks apart."""

# Ids and addresses become words of a command line. These patterns allow nothing that a shell or ssh would interpret.
_ID = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,39}")

_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_User = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]


class SSH(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How hosts are reached. A host may have its own `user` and `port`."""

    known_hosts: str
    """The file of host keys. It is required, because a blob must not reach the wrong host."""
    identity_file: str = ""
    user: _User = "root"
    port: _Port = 22
    client: tuple[str, ...] = ("ssh",)
    connect_seconds: Annotated[int, msgspec.Meta(ge=1, le=300)] = 10
    parallel: Annotated[int, msgspec.Meta(ge=1, le=512)] = 128
    """The most sessions at the same time. A drain holds one until it has ended."""


class Scripts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scripts that run on a host, as files beside the inventory. Those left out come with this program."""

    bootstrap: str = ""
    ready: str = ""
    drain: str = ""
    become: tuple[str, ...] = ("sudo", "-n")
    """The command that turns the SSH user into root. Empty if the user is root."""
    work_dir: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._/-]+$")] = "/var/lib/bigfleet"


class Watch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often each host is probed, and after how long a silence it counts as broken."""

    every_seconds: _Seconds = 60.0
    broken_after_seconds: _Seconds = 600.0


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One piece of hardware."""

    id: str
    """The machine's id and its node's name. Keep it when the address changes."""
    address: str
    instance_type: str
    resources: Mapping[str, str]
    zone: str = ""
    rack: str = ""
    price_per_hour: float = 0.0
    allocatable: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    user: _User | None = None
    port: _Port | None = None

    def offer(self) -> Offer:
        """The host as an offer. The hardware exists already, so its machine begins Idle."""
        shape = Shape(
            instance_type=self.instance_type,
            capacity_type=CapacityType.BARE_METAL,
            zone=self.zone,
            price_per_hour=self.price_per_hour,
            resources=self.resources,
            allocatable=self.allocatable,
            labels={**self.labels, RACK: self.rack} if self.rack else self.labels,
        )
        return Offer(self.id, shape, host=self.id)


class Inventory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Keys that begin with `x-` are ignored, so that YAML anchors have a place."""

    ssh: SSH
    hosts: tuple[Host, ...]
    scripts: Scripts = Scripts()
    watch: Watch = Watch()


def load(path: Path) -> Inventory:
    """Read and check an inventory, or ConfigError with the file and the field at fault."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from error
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if not str(key).startswith("x-")}
    try:
        inventory = msgspec.convert(content, Inventory)
        _check(inventory)
    except (msgspec.ValidationError, OfferError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return _beside(inventory, path.parent)


def _check(inventory: Inventory) -> None:
    seen: set[str] = set()
    for host in inventory.hosts:
        if not _ID.fullmatch(host.id):
            raise OfferError(f"host {host.id!r}: an id is a DNS name in small letters, as a node's name is")
        if host.id in seen:
            raise OfferError(f"host {host.id!r}: is there twice")
        if not _ADDRESS.fullmatch(host.address):
            raise OfferError(f"host {host.id!r}: address {host.address!r} is no host name and no IP address")
        seen.add(host.id)
        host.offer()
    if not inventory.hosts:
        raise OfferError("hosts: is empty")
    if not inventory.ssh.client:
        raise OfferError("ssh.client: is empty")


def _beside(inventory: Inventory, folder: Path) -> Inventory:
    """The inventory with the names of its files made relative to its own folder."""
    change = msgspec.structs.replace

    def located(name: str) -> str:
        return str(folder / Path(name).expanduser()) if name else ""

    ssh = change(
        inventory.ssh,
        known_hosts=located(inventory.ssh.known_hosts),
        identity_file=located(inventory.ssh.identity_file),
    )
    scripts = inventory.scripts
    scripts = change(
        scripts, bootstrap=located(scripts.bootstrap), ready=located(scripts.ready), drain=located(scripts.drain)
    )
    for name in filter(None, (ssh.known_hosts, ssh.identity_file, scripts.bootstrap, scripts.ready, scripts.drain)):
        if not Path(name).is_file():
            raise ConfigError(f"{name}: the inventory names it, and it is not a file")
    return change(inventory, ssh=ssh, scripts=scripts)
