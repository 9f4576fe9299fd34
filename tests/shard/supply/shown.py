"""Machines and lists as a provider shows them, and what is read off the effects of showing them."""

from collections.abc import Iterable

import msgspec

from bigfleet.engine.records import Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.provider.records import Listing, Refusal
from bigfleet.shard.supply.known import Changed, Doubt, Effect, Incident, IncidentKind
from bigfleet.shard.supply.stamps import Binding, to_metadata
from bigfleet.shard.supply.table import Supply

S = MachineState
HOSTLESS = frozenset({S.SPECULATIVE, S.CREATING})
BOUND = frozenset({S.CONFIGURING, S.CONFIGURED, S.DRAINING})
P, Q = "sim", "metal"


def machine(machine_id: str = "m-1", state: MachineState = S.IDLE, **fields: object) -> Machine:
    settings: dict[str, object] = {
        "id": machine_id,
        "state": state,
        "instance_type": "c8",
        "capacity_type": CapacityType.ON_DEMAND,
        "host": None if state in HOSTLESS else Host("sim", f"i-{machine_id}"),
        "cluster": "prod" if state in BOUND else "",
        "last_error": "boom" if state is S.FAILED else "",
        "price_per_hour": 1.0,
    }
    return Machine(**{**settings, **fields})  # type: ignore[arg-type]


def many(count: int, state: MachineState = S.IDLE) -> list[Machine]:
    return [machine(f"m-{i:02d}", state) for i in range(count)]


def listing(
    *machines: Machine, began: float, full: bool = True, refused: tuple[Refusal, ...] = (), cursor: bytes = b""
) -> Listing:
    return Listing({m.id: m for m in machines}, refused, cursor, full, began)


def full(supply: Supply, *machines: Machine, at: float, provider: str = P, epoch: int | None = None) -> list[Effect]:
    """A full list that takes no time."""
    return supply.listed(provider, listing(*machines, began=at), at, epoch)


def delta(supply: Supply, *machines: Machine, at: float, provider: str = P, epoch: int | None = None) -> list[Effect]:
    return supply.listed(provider, listing(*machines, began=at, full=False), at, epoch)


def known(*machines: Machine, provider: str = P) -> Supply:
    """A supply that was shown these at time 0."""
    supply = Supply("eu-1")
    full(supply, *machines, at=0, provider=provider)
    return supply


def spoiled(row: Machine, *fields: str) -> Refusal:
    fields = fields or ("price_per_hour",)
    rest = msgspec.structs.replace(row, **dict.fromkeys(fields, 0.0))
    return Refusal(row.id, "price", fields[0], "is no price", rest, fields)


def stamped(shard_id: str = "eu-1", epoch: int = 5) -> dict[str, str]:
    stamp = Stamp(NeedKey("f", "", (("cpu", 1000),)), 0, PenaltyBucket.ZERO, PenaltyBucket.ZERO, 1)
    return to_metadata(Binding(stamp, shard_id, epoch, 1))


def doubted(effects: Iterable[Effect]) -> list[str]:
    return [effect.machine_id for effect in effects if isinstance(effect, Doubt)]


def removed(effects: Iterable[Effect]) -> list[str]:
    return [effect.machine_id for effect in effects if isinstance(effect, Changed) and effect.after is None]


def incidents(effects: Iterable[Effect]) -> list[IncidentKind]:
    return [effect.kind for effect in effects if isinstance(effect, Incident)]
