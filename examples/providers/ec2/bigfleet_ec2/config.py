"""The configuration file: the pools, and how the cloud is reached. The whole file is checked before it is used."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from bigfleet.providerkit import CapacityType, ConfigError, Offer, OfferError, Shape

# Names become parts of machine ids, and those are node names.
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class Capacity(StrEnum):
    """How the instances of a pool are paid for."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Guest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role of instances, and where they and the provider leave messages for each other."""

    bucket: str
    prefix: Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9._-]+/)*$")] = "bigfleet/"
    instance_profile: str
    role_id: Annotated[str, msgspec.Meta(pattern=r"^[A-Z0-9]{16,128}$")]
    """The unique id of the profile's role (AROA…). A policy uses it to give each instance a folder of its own."""


class Pool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of slots for equal instances."""

    name: _Name
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    instance_type: str
    zone: str
    capacity: Capacity
    price_per_hour: float
    resources: Mapping[str, str]
    ami: str
    interruption_probability: float = 0.0
    allocatable: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    subnet: str = ""
    security_groups: tuple[str, ...] = ()
    key: str = ""

    def offers(self) -> Iterator[Offer]:
        """The pool's machines. Their ids stay the same for as long as the pool has its name."""
        shape = Shape(
            instance_type=self.instance_type,
            capacity_type=CapacityType.SPOT if self.capacity is Capacity.SPOT else CapacityType.ON_DEMAND,
            zone=self.zone,
            price_per_hour=self.price_per_hour,
            interruption_probability=self.interruption_probability,
            resources=self.resources,
            allocatable=self.allocatable,
            labels=self.labels,
        )
        for number in range(self.count):
            yield Offer(f"{self.name}-{number}", shape)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Keys that begin with `x-` are ignored, so that YAML anchors have a place."""

    name: _Name
    """Tells this provider's instances from others in the account. Never change it while there are instances."""
    region: str
    guest: Guest
    pools: tuple[Pool, ...]
    endpoint_url: str | None = None
    """The address of a cloud other than AWS that has the same APIs."""
    poll_seconds: _Seconds = 5.0
    """The shortest time between two looks at all instances."""
    leave_seconds: _Seconds = 180.0
    """An instance that has not said this long after the grace that it has left its cluster is terminated."""
    parallel: Annotated[int, msgspec.Meta(ge=1, le=256)] = 32
    """The most calls to the cloud at the same time."""


def load(path: Path) -> Config:
    """Read and check a configuration, or ConfigError with the file and the field at fault."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from error
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if not str(key).startswith("x-")}
    try:
        config = msgspec.convert(content, Config)
        _check(config)
    except (msgspec.ValidationError, OfferError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return config


def _check(config: Config) -> None:
    if not config.pools:
        raise OfferError("pools: is empty")
    seen: set[str] = set()
    for pool in config.pools:
        if pool.name in seen:
            raise OfferError(f"pool {pool.name!r}: is there twice")
        seen.add(pool.name)
        next(pool.offers())
    # Machine a-1-0 is of pool a-1. Beside a pool `a` people would take it for one of that pool.
    for pool in config.pools:
        base, _, number = pool.name.rpartition("-")
        if number.isdigit() and base in seen:
            raise OfferError(f"pool {pool.name!r}: its machines could be taken for those of pool {base!r}; rename it")
