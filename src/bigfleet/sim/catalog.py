"""Archetypes of real fleets: what workloads ask for, and the hardware that they run on. Data, no behaviour.

Sizes, gang sizes and shares follow published traces of large clusters in kind, not in digits: many small co-located
jobs, few large ones, most of the capacity under a handful of services.
"""

import enum

import msgspec

from bigfleet.model.demand.need import Daemon
from bigfleet.model.demand.penalty_buckets import PenaltyBucket as Bucket
from bigfleet.model.demand.profile import Operator, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.labels import ZONE
from bigfleet.model.machine import CapacityType
from bigfleet.model.resources import Resources

REGION = "topology.kubernetes.io/region"
FAMILY = "node.bigfleet.lucy.sh/family"
GPU = "nvidia.com/gpu"

ZONES = ("eu-1a", "eu-1b", "eu-1c")
RACK_SLOTS = (32, 40, 48)

GIB = 2**20
"""One GiB in the KiB that memory is counted in."""

DEFAULT, BATCH, SERVICE, CRITICAL = 0, 100, 1_000, 1_000_000
"""The priority classes. Batch jobs and services also use a few priorities below the one of their class."""


class Family(enum.StrEnum):
    """Kinds of instance type. The two scarce ones are new generations that are sold out."""

    GENERAL = "m"
    COMPUTE = "c"
    MEMORY = "r"
    INFERENCE = "g"
    TRAINING = "p"
    SCARCE_GENERAL = "m-next"
    SCARCE_TRAINING = "p-next"


SCARCE = frozenset({Family.SCARCE_GENERAL, Family.SCARCE_TRAINING})


class InstanceType(msgspec.Struct, frozen=True):
    """One size of a family."""

    name: str
    family: Family
    resources: Resources
    allocatable: Resources
    price: float
    """The on-demand price, in dollars an hour."""
    share: float
    """How often this size is chosen among those of its family, from 0 to 1."""


class CapacityClass(msgspec.Struct, frozen=True):
    """How racks are paid for. Both ranges are drawn from once for each instance type and zone."""

    name: str
    capacity_type: CapacityType
    price: tuple[float, float]
    """The least and the most, as a share of the on-demand price."""
    interruption: tuple[float, float] = (0.0, 0.0)
    """The least and the highest probability of interruption."""


OWNED = CapacityClass("owned", CapacityType.RESERVED, (0.58, 0.62))
METAL = CapacityClass("metal", CapacityType.BARE_METAL, (0.50, 0.55))
ON_DEMAND = CapacityClass("on-demand", CapacityType.ON_DEMAND, (1.0, 1.0))
SPOT = CapacityClass("spot", CapacityType.SPOT, (0.30, 0.40), (0.02, 0.15))


def owned(family: Family) -> CapacityClass:
    """The class of what a fleet holds for good: large accelerators as metal, everything else as reservations."""
    return METAL if family in (Family.TRAINING, Family.SCARCE_TRAINING) else OWNED


def _sizes(
    family: Family, cores: tuple[int, ...], gib_per_core: float, price_per_core: float, gpus_per_core: float = 0
) -> tuple[InstanceType, ...]:
    """A family's sizes. The kubelet keeps a little of each machine, relatively more of the small ones."""
    types = []
    for n in cores:
        memory = round(n * gib_per_core * GIB)
        kept = 300 * 1024 + memory // 40 + 12 * 110 * 1024
        gpus = ((GPU, round(n * gpus_per_core)),) if gpus_per_core else ()
        resources = (("cpu", n * 1000), ("memory", memory), *gpus, ("pods", 110))
        allocatable = (("cpu", n * 1000 - 60 - 3 * n), ("memory", memory - kept), *gpus, ("pods", 110))
        price = round(price_per_core * n, 4)
        types.append(InstanceType(f"{family}.{n}", family, resources, allocatable, price, 1 / len(cores)))
    return tuple(types)


INSTANCE_TYPES: dict[Family, tuple[InstanceType, ...]] = {
    Family.GENERAL: _sizes(Family.GENERAL, (8, 16, 32, 64), 4, 0.048),
    Family.COMPUTE: _sizes(Family.COMPUTE, (8, 16, 32, 64), 2, 0.0425),
    Family.MEMORY: _sizes(Family.MEMORY, (8, 16, 32, 64), 8, 0.063),
    Family.INFERENCE: _sizes(Family.INFERENCE, (16, 32, 64), 4, 0.11, 1 / 16),
    Family.TRAINING: _sizes(Family.TRAINING, (96,), 12, 0.34, 1 / 12),
    Family.SCARCE_GENERAL: _sizes(Family.SCARCE_GENERAL, (16, 32), 4, 0.045),
    Family.SCARCE_TRAINING: _sizes(Family.SCARCE_TRAINING, (96,), 20, 0.62, 1 / 12),
}

DAEMONS: tuple[Daemon, ...] = (
    Daemon((), (("cpu", 150), ("memory", 256 * 1024))),
    Daemon(
        (Requirement(FAMILY, Operator.IN, (Family.INFERENCE, Family.TRAINING, Family.SCARCE_TRAINING)),),
        (("cpu", 100), ("memory", 128 * 1024)),
    ),
)
"""What every cluster runs on its nodes: a log shipper everywhere, a device plugin beside accelerators."""


class Size(msgspec.Struct, frozen=True):
    """One pod: millicores, memory in KiB, accelerators."""

    cpu: int
    memory: int
    gpus: int = 0

    @property
    def unit(self) -> Resources:
        """The pod as a unit of demand."""
        plain = (("cpu", self.cpu), ("memory", self.memory))
        return (*plain, (GPU, self.gpus)) if self.gpus else plain


def _grid(cores: tuple[float, ...], gib_per_core: tuple[float, ...], gpus: int = 0) -> tuple[Size, ...]:
    return tuple(Size(round(c * 1000), round(c * g * GIB), gpus) for c in cores for g in gib_per_core)


class Archetype(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of workload. Where a field holds several values, each row draws one of them."""

    name: str
    families: tuple[Family, ...]
    sizes: tuple[Size, ...]
    """The sizes that one pod may have."""
    share: float
    """For plain demand the share of machines that it takes, for gangs the share of rows."""
    lifetime: tuple[int, int]
    """The shortest and the longest life of its pods, in seconds."""
    priorities: tuple[tuple[int, float], ...] = ((DEFAULT, 1.0),)
    """Pairs of a priority and its weight."""
    interruption: tuple[Bucket, ...] = (Bucket.ZERO,)
    reclamation: tuple[Bucket, ...] = (Bucket.ZERO,)
    gang: tuple[int, ...] = ()
    """How many pods a gang has; empty for plain demand."""
    spread: tuple[Spread, ...] = ()
    max_per_machine: int = 0
    replicas: tuple[int, ...] = ()
    """How many pods a row has; empty where that follows from `share`."""
    zonal: float = 0.0
    """The share of rows that a volume ties to one zone."""
    capacity: tuple[tuple[str, float], ...] = (("owned", 0.5), ("on-demand", 0.3), ("spot", 0.2))
    """Pairs of a capacity class and its weight, for machines that a settled fleet has bound."""


HOUR, DAY = 3600, 86400
_ANYWAY = Spread(ZONE, 1, WhenUnsatisfiable.SCHEDULE_ANYWAY)
_EVEN = Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
_MOSTLY_SPOT = (("owned", 0.2), ("on-demand", 0.1), ("spot", 0.7))
_NEVER_SPOT = (("owned", 0.7), ("on-demand", 0.3))

PLAIN: tuple[Archetype, ...] = (
    Archetype(
        name="web",
        families=(Family.GENERAL,),
        sizes=_grid((0.25, 0.5, 1, 1.5, 2, 3, 4), (1, 2, 3, 4)),
        share=0.40,
        lifetime=(DAY, 60 * DAY),
        priorities=((DEFAULT, 0.55), (500, 0.2), (SERVICE, 0.2), (CRITICAL, 0.05)),
        interruption=(Bucket.P_1, Bucket.P_4, Bucket.P_16),
        reclamation=(Bucket.HALF_DOLLAR, Bucket.P_2),
        spread=(_ANYWAY,),
    ),
    Archetype(
        name="batch",
        families=(Family.COMPUTE, Family.GENERAL),
        sizes=_grid((0.5, 1, 2, 4, 6, 8), (1, 1.5, 2)),
        share=0.25,
        lifetime=(300, 6 * HOUR),
        priorities=((DEFAULT, 0.8), (50, 0.1), (BATCH, 0.1)),
        interruption=(Bucket.ZERO, Bucket.HALF_DOLLAR),
        capacity=_MOSTLY_SPOT,
    ),
    Archetype(
        name="cache",
        families=(Family.MEMORY,),
        sizes=_grid((1, 2, 3, 4), (6, 7, 7.5)),
        share=0.15,
        lifetime=(7 * DAY, 90 * DAY),
        priorities=((DEFAULT, 0.7), (SERVICE, 0.3)),
        interruption=(Bucket.P_32, Bucket.P_128),
        reclamation=(Bucket.P_16, Bucket.P_64),
        spread=(_ANYWAY,),
        capacity=_NEVER_SPOT,
    ),
    Archetype(
        name="stateful",
        families=(Family.MEMORY, Family.GENERAL),
        sizes=_grid((2, 3, 4, 6), (3, 3.5)),
        share=0.08,
        lifetime=(30 * DAY, 365 * DAY),
        priorities=((DEFAULT, 0.6), (SERVICE, 0.3), (CRITICAL, 0.1)),
        interruption=(Bucket.P_512, Bucket.PINNED),
        reclamation=(Bucket.P_512, Bucket.PINNED),
        spread=(_EVEN,),
        max_per_machine=1,
        replicas=(3, 3, 5, 9),
        capacity=_NEVER_SPOT,
    ),
    Archetype(
        name="inference",
        families=(Family.INFERENCE,),
        sizes=_grid((4, 8, 12), (2, 3), gpus=1),
        share=0.12,
        lifetime=(HOUR, 30 * DAY),
        priorities=((DEFAULT, 0.6), (SERVICE, 0.4)),
        interruption=(Bucket.P_4, Bucket.P_16),
        reclamation=(Bucket.P_2, Bucket.P_8),
        zonal=0.2,
    ),
)

GANGS: tuple[Archetype, ...] = (
    Archetype(
        name="pair",
        families=(Family.GENERAL,),
        sizes=_grid((0.5, 1, 2), (2, 3)),
        share=0.34,
        lifetime=(HOUR, 30 * DAY),
        priorities=((DEFAULT, 0.82), (500, 0.12), (SERVICE, 0.06)),
        interruption=(Bucket.HALF_DOLLAR, Bucket.P_4),
        reclamation=(Bucket.HALF_DOLLAR,),
        gang=(2, 2, 3),
    ),
    Archetype(
        name="analytics",
        families=(Family.COMPUTE,),
        sizes=_grid((0.5, 1, 2), (1, 1.5)),
        share=0.40,
        lifetime=(120, 2 * HOUR),
        priorities=((DEFAULT, 0.9), (50, 0.06), (BATCH, 0.04)),
        gang=(2, 3, 4, 6, 8),
        capacity=_MOSTLY_SPOT,
    ),
    Archetype(
        name="shuffle",
        families=(Family.MEMORY,),
        sizes=_grid((0.5, 1, 2), (6, 7)),
        share=0.15,
        lifetime=(600, 8 * HOUR),
        priorities=((DEFAULT, 0.9), (BATCH, 0.1)),
        interruption=(Bucket.P_2, Bucket.P_8),
        gang=(2, 4, 6),
        capacity=_MOSTLY_SPOT,
    ),
    Archetype(
        name="model-parallel",
        families=(Family.INFERENCE,),
        sizes=_grid((4, 8), (2, 3), gpus=1),
        share=0.06,
        lifetime=(HOUR, 14 * DAY),
        priorities=((DEFAULT, 0.7), (SERVICE, 0.3)),
        interruption=(Bucket.P_8, Bucket.P_32),
        reclamation=(Bucket.P_8,),
        gang=(2, 4),
    ),
    Archetype(
        name="small-training",
        families=(Family.TRAINING,),
        sizes=_grid((8, 11), (8, 10), gpus=1),
        share=0.047,
        lifetime=(600, 2 * DAY),
        priorities=((DEFAULT, 0.9), (BATCH, 0.1)),
        interruption=(Bucket.P_16, Bucket.P_64),
        reclamation=(Bucket.P_16,),
        gang=(2, 4, 8),
        capacity=(("owned", 0.8), ("spot", 0.2)),
    ),
    Archetype(
        name="large-training",
        families=(Family.TRAINING, Family.SCARCE_TRAINING),
        sizes=_grid((80, 90), (8, 10), gpus=8),
        share=0.003,
        lifetime=(DAY, 30 * DAY),
        priorities=((DEFAULT, 0.7), (BATCH, 0.3)),
        interruption=(Bucket.P_2048, Bucket.P_8192),
        reclamation=(Bucket.P_1024, Bucket.P_4096),
        gang=(4, 8, 16, 32),
        capacity=(("owned", 1.0),),
    ),
)

EARLY = Archetype(
    name="early-adopter",
    families=(Family.SCARCE_GENERAL,),
    sizes=_grid((1, 2, 3, 4, 6), (2, 3, 4)),
    share=0.05,
    lifetime=(DAY, 30 * DAY),
    interruption=(Bucket.P_1, Bucket.P_4),
    capacity=(("owned", 0.5), ("on-demand", 0.5)),
)
"""Plain demand for a generation that is sold out. Its rows wait for the machines that they do not have."""

SPARE_TIME = -10
"""The priority of rows that wait for sold-out hardware: below the default, so that they only get what others leave."""

OVERSIZED_GANG = 64
"""How many machines of one rack a gang asks for that can never be met: no rack has more than 48."""
