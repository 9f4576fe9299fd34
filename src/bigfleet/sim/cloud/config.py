"""What a simulated cloud is made of, as its configuration file describes it: values and their rules, no behaviour."""

import math
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated

import msgspec

from bigfleet.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, RACK, ZONE
from bigfleet.model.machine import Call, CapacityType
from bigfleet.providerkit.backend import Limits
from bigfleet.providerkit.offer import Shape
from bigfleet.sim.catalog import FAMILY, REGION
from bigfleet.sim.cloud.delays import Delay, Seconds

MAX_MACHINES = 1_000_000
"""How many machines all pools together may have."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")
_OURS = frozenset({INSTANCE_TYPE, ZONE, CAPACITY_TYPE, FAMILY, RACK, REGION})

Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_MACHINES)]
CountFromZero = Annotated[int, msgspec.Meta(ge=0, le=MAX_MACHINES)]


class ConfigPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the configuration; an unknown field is refused."""


class PoolCapacityType(StrEnum):
    """How a pool is paid for, as people and metrics write it."""

    BARE_METAL = CapacityType.BARE_METAL.label
    RESERVED = CapacityType.RESERVED.label
    ON_DEMAND = CapacityType.ON_DEMAND.label
    SPOT = CapacityType.SPOT.label


class Nodes(StrEnum):
    """What becomes of a host's bootstrap data."""

    IMAGINED = "imagined"
    """Nothing: the node counts as Ready after a while."""
    REAL = "real"
    """The host joins the cluster that the data names, as a kubelet does, and is as ready as its Node there."""


class Latency(ConfigPart, frozen=True, kw_only=True):
    """How long each step takes; None where another part of the configuration says it."""

    create: Delay | None = None
    configure: Delay | None = None
    """The time that handing the bootstrap blob over takes."""
    join: Delay | None = None
    """The time from the blob until the node is Ready or, where nodes are real, until the kubelet starts."""
    drain: Delay | None = None
    """The time that pods take to leave; a drain never takes longer than its grace."""
    wipe: Delay | None = None
    """The time that wiping a host after its drain takes."""
    delete: Delay | None = None

    def over(self, other: "Latency") -> "Latency":
        """These delays, with the other's in the place of those that are None."""
        return Latency(**{name: getattr(self, name) or getattr(other, name) for name in self.__struct_fields__})


DEFAULT_LATENCY = Latency(
    create=Delay.read({"median": 45, "p99": 180}),
    configure=Delay.read(2),
    join=Delay.read({"median": 50, "p99": 150}),
    drain=Delay.read({"median": 30, "p99": 300}),
    wipe=Delay.read(10),
    delete=Delay.read({"median": 20, "p99": 60}),
)


class Failure(ConfigPart, frozen=True, kw_only=True):
    """How often a step goes wrong."""

    error: Rate = 0.0
    """The share that ends with an error."""
    hang: Rate = 0.0
    """The share that never ends."""

    def __post_init__(self) -> None:
        if sum(getattr(self, name) for name in self.__struct_fields__) > 1:
            raise ValueError("the rates add up to more than 1")


class CreateFailure(Failure, frozen=True, kw_only=True):
    """How often a Create goes wrong."""

    late: Rate = 0.0
    """The share whose host appears after the provider has given up."""


class Failures(ConfigPart, frozen=True, kw_only=True):
    """How often each step goes wrong."""

    create: CreateFailure = CreateFailure()
    configure: Failure = Failure()
    drain: Failure = Failure()
    delete: Failure = Failure()

    def of(self, call: Call) -> Failure:
        """The rates of one kind of call."""
        failure: Failure = getattr(self, call.value.lower())
        return failure


class Timeouts(ConfigPart, frozen=True, kw_only=True):
    """After how long a step counts as failed."""

    create: Seconds = Seconds(Limits().create)
    configure: Seconds = Seconds(Limits().configure)
    drain: Seconds = Seconds(Limits().drain)
    delete: Seconds = Seconds(Limits().delete)
    late_hosts: Seconds = Seconds(900)
    """For how long after a failed Create its host may still appear."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name):
                raise ValueError(f"{name}: must be above 0")


class Exceeded(StrEnum):
    """What becomes of a call above the rate."""

    WAIT = "wait"
    FAIL = "fail"


class RateLimit(ConfigPart, frozen=True, kw_only=True):
    """How many calls the cloud takes."""

    per_second: Annotated[float, msgspec.Meta(gt=0, le=1e6)]
    burst: Count = 1
    """How many calls are taken at once after a pause."""
    exceeded: Exceeded = Exceeded.WAIT


class RateLimits(ConfigPart, frozen=True, kw_only=True):
    """The cloud's limits by kind of call; None for no limit."""

    create: RateLimit | None = None
    configure: RateLimit | None = None
    drain: RateLimit | None = None
    delete: RateLimit | None = None
    describe: RateLimit | None = None


class StockOut(ConfigPart, frozen=True, kw_only=True):
    """A time in which a pool has only few hosts to give. Both ends are counted from the start of the cloud."""

    begin: Seconds = msgspec.field(name="from", default=Seconds(0))
    end: Seconds = msgspec.field(name="to")
    capacity: CountFromZero = 0
    """How many hosts the pool may have in that time."""

    def __post_init__(self) -> None:
        if self.begin >= self.end:
            raise ValueError("to: must come after from")


class Pool(ConfigPart, frozen=True, kw_only=True):
    """Machines of one kind in one zone."""

    name: str
    instance_type: str
    zone: str
    capacity_type: PoolCapacityType
    count: Count
    resources: dict[str, str | int]
    allocatable: dict[str, str | int] = {}
    price_per_hour: float = 0.0
    interruption_probability: Rate = 0.0
    """The chance that a host is taken back within one hour."""
    racks: CountFromZero = 0
    """Over how many racks the machines are spread; 0: they have no rack label."""
    family: str = ""
    labels: dict[str, str] = {}
    latency: Latency = Latency()
    """The steps that take another time in this pool than in the cloud."""
    failures: Failures | None = None
    """The pool's own failures; None: those of the cloud hold."""
    stock_outs: Annotated[tuple[StockOut, ...], msgspec.Meta(max_length=1000)] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError("name: has 1 to 50 characters of a-z, 0-9 and -, and neither begins nor ends with -")
        for field in ("instance_type", "zone"):
            if not getattr(self, field):
                raise ValueError(f"{field}: is empty")
        if self.racks > self.count:
            raise ValueError(f"racks: {self.racks} are more than the {self.count} machines")
        if self.interruption_probability == 1:
            raise ValueError("interruption_probability: must be below 1; 0.9999 is as good as sure")
        if self.capacity_type is PoolCapacityType.SPOT and not self.interruption_probability:
            raise ValueError("interruption_probability: must be above 0 for Spot")
        if self.metal and (self.interruption_probability or self.stock_outs):
            field = "interruption_probability" if self.interruption_probability else "stock_outs"
            raise ValueError(f"{field}: not for BareMetal, which stands there and stays")
        if taken := sorted(_OURS & self.labels.keys()):
            raise ValueError(f"labels: {taken[0]!r} is made from other fields; leave it out")

    @property
    def metal(self) -> bool:
        """Whether its machines are hardware, which is neither created nor deleted."""
        return self.capacity_type is PoolCapacityType.BARE_METAL

    @property
    def interruptions_per_second(self) -> float:
        """The rate at which a host is taken back, so that the probability holds over any hour."""
        return -math.log1p(-self.interruption_probability) / 3600

    def machine(self, number: int) -> str:
        """The id of one of its machines."""
        return f"{self.name}-{number:06d}"

    def shapes(self, region: str) -> Iterator[tuple[Shape, range]]:
        """The shape of each rack's machines, and their numbers; OfferError for a shape that no shard would take."""
        racks = max(self.racks, 1)
        for rack in range(racks):
            labels = {**self.labels, REGION: region, FAMILY: self.family}
            if self.racks:
                labels[RACK] = f"{self.name}-r{rack:04d}"
            shape = Shape(
                instance_type=self.instance_type,
                zone=self.zone,
                capacity_type=next(kind for kind in CapacityType if kind.label == self.capacity_type),
                resources={name: str(amount) for name, amount in self.resources.items()},
                allocatable={name: str(amount) for name, amount in self.allocatable.items()},
                price_per_hour=self.price_per_hour,
                interruption_probability=self.interruption_probability,
                labels={key: value for key, value in labels.items() if value},
            )
            yield shape, range(self.count * rack // racks, self.count * (rack + 1) // racks)


class CloudConfig(ConfigPart, frozen=True, kw_only=True):
    """A whole cloud."""

    pools: Annotated[tuple[Pool, ...], msgspec.Meta(min_length=1, max_length=10_000)]
    scheme: str = "sim"
    """What the provider ids of its hosts begin with."""
    region: str = ""
    seed: int = 0
    """What every random draw depends on."""
    latency: Latency = Latency()
    timeouts: Timeouts = Timeouts()
    failures: Failures = Failures()
    rate_limits: RateLimits = RateLimits()
    interruption_grace: Seconds = Seconds(120)
    """How long before its end the interruption of a host in use is announced."""
    nodes: Nodes = Nodes.IMAGINED
    faults: bool = False
    """Whether the first machines fail on purpose, for the conformance suite."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.scheme):
            raise ValueError("scheme: has 1 to 50 characters of a-z, 0-9 and -, and neither begins nor ends with -")
        names: set[str] = set()
        for pool in self.pools:
            if pool.name in names:
                raise ValueError(f"pools: two are named {pool.name!r}; rename one")
            names.add(pool.name)
        if (machines := sum(pool.count for pool in self.pools)) > MAX_MACHINES:
            raise ValueError(f"pools: {machines} machines in all, at most {MAX_MACHINES} are taken")
        if len({pool.metal for pool in self.pools}) > 1:
            raise ValueError(
                "pools: BareMetal cannot be deleted and the others can, which a provider is asked as a whole; "
                "give BareMetal a file and a process of its own"
            )

    @property
    def metal(self) -> bool:
        """Whether the machines are hardware, which is neither created nor deleted; all are or none."""
        return self.pools[0].metal

    def latency_of(self, pool: Pool | None) -> Mapping[str, Delay]:
        """How long each step takes in a pool; None stands for a pool that is no longer configured."""
        chosen = self.latency.over(DEFAULT_LATENCY)
        return msgspec.structs.asdict(chosen if pool is None else pool.latency.over(chosen))
