"""The fleet of a day of churn: its clouds, its clusters and their workloads."""

import json
from typing import Any

from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator as Is
from bigfleet.model.demand.profile import Profile, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.labels import RACK, ZONE
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import demand
from bigfleet.sim.cloud.config import CloudConfig
from bigfleet.sim.cloud.reading import read
from bigfleet.sim.clusters.world import Workload

HOUR = 3600.0
CYCLE = 30.0
LOOK = 60.0
SETTLE_HOURS, QUIET_HOURS, EMPTY_HOURS = 6, 1, 6
PUT_OFF = 31 * 60.0
"""A machine that would not empty is no candidate for half an hour."""

S = MachineState
CLUSTERS = ("prod", "shop", "data", "lab")
STRANGERS = "lab"
"""The cluster whose operator is somebody else's."""

_POOLS = (
    # name, type, zone, class, count, cores, dollars an hour
    ("od-a", "c.8", "a", "OnDemand", 50, 8, 0.40),
    ("od-b", "c.8", "b", "OnDemand", 50, 8, 0.41),
    ("spot-a", "c.8", "a", "Spot", 40, 8, 0.12),
    ("spot-b", "c.8", "b", "Spot", 40, 8, 0.13),
    ("res-a", "m.16", "a", "Reserved", 24, 16, 0.50),
)


def clouds(seed: int) -> list[CloudConfig]:
    """A cloud and a hall of bare metal; all that goes wrong in them goes wrong in this cloud."""
    pools = [_pool(*row) for row in _POOLS]
    pools[0]["stock_outs"] = [{"from": "2h", "to": "3h", "capacity": 5}, {"from": "9h", "to": "11h", "capacity": 20}]
    sim: dict[str, Any] = {
        "scheme": "sim",
        "seed": seed,
        "failures": {
            "create": {"error": 0.03, "hang": 0.01, "late": 0.02},
            "configure": {"error": 0.03, "hang": 0.01},
            "drain": {"error": 0.03, "hang": 0.01},
            "delete": {"error": 0.03, "hang": 0.01},
        },
        "pools": pools,
    }
    metal: dict[str, Any] = {
        "scheme": "metal",
        "seed": seed,
        "failures": {"configure": {"error": 0.05}, "drain": {"error": 0.05}},
        "pools": [_pool("metal-a", "b.32", "a", "BareMetal", 12, 32, 0.0)],
    }
    return [read(json.dumps(cloud), cloud["scheme"]) for cloud in (sim, metal)]


def _pool(name: str, kind: str, zone: str, paid: str, count: int, cores: int, price: float) -> dict[str, Any]:
    return {
        "name": name,
        "instance_type": kind,
        "zone": zone,
        "capacity_type": paid,
        "count": count,
        "racks": max(2, count // 10),
        "price_per_hour": price,
        "interruption_probability": 0.1 if paid == "Spot" else 0.0,
        "resources": {"cpu": cores, "memory": f"{4 * cores}Gi", "pods": 110},
    }


def _workload(name: str, cores: int, leave_seconds: float = 20.0, **profile: Any) -> Workload:
    unit = demand({"cpu": cores, "memory": f"{2 * cores}Gi"})
    return Workload(name=name, unit=unit, profile=Profile(**profile), leave_seconds=leave_seconds)


_SKEW = Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
_SAME_RACK = Requirement(RACK, Is.SAME)
_HALF, _FOUR = PenaltyBucket.HALF_DOLLAR, PenaltyBucket.P_4
WORKLOADS = {
    each.name: (each, most)
    for each, most in (
        (_workload("web", 2, priority=1000, interruption=_HALF, spread=(_SKEW,)), 60),
        (_workload("api", 1, priority=900, reclamation=_FOUR, max_per_machine=3), 40),
        (_workload("batch", 3, priority=50), 70),
        (_workload("gang", 6, priority=300, requirements=(_SAME_RACK,)), 6),
        (_workload("ring", 12, leave_seconds=90.0, priority=5000, requirements=(_SAME_RACK,)), 4),
        (_workload("crit", 4, priority=2_000_000, interruption=PenaltyBucket.PINNED), 16),
    )
}
NEVER = _workload("never", 2, priority=400, requirements=(Requirement("no-such-label", Is.EXISTS),))
TOO_BIG = _workload("too-big", 6, priority=5000, requirements=(_SAME_RACK,))
UNSATISFIABLE = (NEVER, TOO_BIG)
"""Demand that stays unmet through the quiet hours, and must cause nothing."""
