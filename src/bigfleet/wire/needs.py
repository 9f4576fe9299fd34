"""Roll-ups on the wire ↔ roll-ups of the model.

A malformed roll-up is refused as a whole, with the path of the field at fault; the last good demand then stands.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from bigfleet.model.demand.need import Daemon, Need, Rollup, UnrequestedNode
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Profile, ProfileError, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.resources import MAX_TOTAL, MAX_UNITS, ResourceError, Resources, demand, quantities
from bigfleet.wire.errors import WireError
from bigfleet.wire.v1alpha1 import capacity_pb2 as pb

T = TypeVar("T")

MAX_OWNERS, MAX_OWNER = 3, 100
"""How many owners of a need are told, and how many characters of each."""

_OPERATORS = {operator.value: operator for operator in Operator}
_MODES = {mode.value: mode for mode in WhenUnsatisfiable}
# A peer that leaves a bucket out states no penalty, which is zero dollars.
_BUCKETS = {0: PenaltyBucket.ZERO} | {bucket.value: bucket for bucket in PenaltyBucket}


def rollup_from_wire(message: pb.ClusterCapacityNeeds) -> Rollup:
    """The roll-up that a message carries, or WireError naming what and where."""
    if not message.cluster_id:
        raise WireError("cluster_id", "is empty")
    return Rollup(
        cluster_id=message.cluster_id,
        timestamp_unix_nanos=message.timestamp_unix_nanos,
        needs=tuple(_need_from_wire(need, f"needs[{i}]") for i, need in enumerate(message.needs)),
        daemons=tuple(_daemon_from_wire(daemon, f"daemons[{i}]") for i, daemon in enumerate(message.daemons)),
        empty_nodes=tuple(_filled(node, f"empty_nodes[{i}]") for i, node in enumerate(message.empty_nodes)),
        partial_demand=message.partial_demand,
        unrequested_nodes=tuple(
            _unrequested_from_wire(node, f"unrequested_nodes[{i}]") for i, node in enumerate(message.unrequested_nodes)
        ),
        # Owners are only shown, so one that is too long is cut and no reason to refuse demand.
        owners=tuple(
            tuple(owner[:MAX_OWNER] for owner in entry.owners[:MAX_OWNERS] if owner) for entry in message.need_owners
        ),
    )


def rollup_to_wire(rollup: Rollup) -> pb.ClusterCapacityNeeds:
    """The message that carries a roll-up."""
    return pb.ClusterCapacityNeeds(
        cluster_id=rollup.cluster_id,
        timestamp_unix_nanos=rollup.timestamp_unix_nanos,
        needs=[need_to_wire(need) for need in rollup.needs],
        daemons=[
            pb.DaemonDemand(
                requirements=requirements_to_wire(daemon.requirements), resources=quantities(daemon.resources)
            )
            for daemon in rollup.daemons
        ],
        empty_nodes=rollup.empty_nodes,
        partial_demand=rollup.partial_demand,
        unrequested_nodes=[
            pb.UnrequestedNode(
                node=node.node,
                priority=node.priority,
                interruption_penalty_bucket=pb.PenaltyBucket.ValueType(node.interruption),
                reclamation_penalty_bucket=pb.PenaltyBucket.ValueType(node.reclamation),
            )
            for node in rollup.unrequested_nodes
        ],
        need_owners=[pb.NeedOwners(owners=owners) for owners in rollup.owners],
    )


def need_to_wire(need: Need) -> pb.CapacityNeed:
    """The message that carries one row."""
    profile = need.profile
    return pb.CapacityNeed(
        requirements=requirements_to_wire(profile.requirements),
        aggregate_resources=quantities(need.aggregate),
        priority=profile.priority,
        spread=[
            pb.TopologySpread(
                topology_key=spread.topology_key,
                max_skew=spread.max_skew,
                when_unsatisfiable=pb.TopologySpread.WhenUnsatisfiable.ValueType(spread.when_unsatisfiable),
            )
            for spread in profile.spread
        ],
        interruption_penalty_bucket=pb.PenaltyBucket.ValueType(profile.interruption),
        reclamation_penalty_bucket=pb.PenaltyBucket.ValueType(profile.reclamation),
        min_unit=quantities(need.unit),
        group=need.group,
        max_per_machine=profile.max_per_machine,
    )


def need_from_wire(message: pb.CapacityNeed) -> Need:
    """The row that a message carries, or WireError naming what and where."""
    return _need_from_wire(message, "need")


def requirements_to_wire(requirements: Iterable[Requirement]) -> list[pb.NodeSelectorRequirement]:
    """The messages that carry a requirement list."""
    return [
        pb.NodeSelectorRequirement(
            key=r.key, operator=pb.NodeSelectorRequirement.Operator.ValueType(r.operator), values=r.values
        )
        for r in requirements
    ]


def requirements_from_wire(messages: Iterable[pb.NodeSelectorRequirement], path: str) -> tuple[Requirement, ...]:
    """The requirement list that messages carry, or WireError; `path` is where the list stands."""
    requirements = []
    for i, message in enumerate(messages):
        with _naming(f"{path}[{i}]"):
            operator = _enum(_OPERATORS, message.operator, "operator")
            requirements.append(Requirement(message.key, operator, tuple(message.values)))
    return tuple(requirements)


def _need_from_wire(message: pb.CapacityNeed, path: str) -> Need:
    requirements = requirements_from_wire(message.requirements, f"{path}.requirements")
    spread = []
    for i, s in enumerate(message.spread):
        with _naming(f"{path}.spread[{i}]"):
            mode = _enum(_MODES, s.when_unsatisfiable, "when_unsatisfiable")
            spread.append(Spread(s.topology_key, s.max_skew, mode))
    aggregate = _vector(message.aggregate_resources, f"{path}.aggregate_resources", MAX_TOTAL)
    unit = _vector(message.min_unit, f"{path}.min_unit", MAX_UNITS)
    if message.min_unit and not unit:
        raise WireError(f"{path}.min_unit", "holds nothing but zeros; leave it out for demand that may be cut anywhere")
    with _naming(path):
        profile = Profile(
            requirements=requirements,
            spread=tuple(spread),
            priority=message.priority,
            interruption=_enum(_BUCKETS, message.interruption_penalty_bucket, "interruption_penalty_bucket"),
            reclamation=_enum(_BUCKETS, message.reclamation_penalty_bucket, "reclamation_penalty_bucket"),
            max_per_machine=message.max_per_machine,
        )
        return Need(profile, aggregate, unit, message.group)


def _daemon_from_wire(message: pb.DaemonDemand, path: str) -> Daemon:
    return Daemon(
        requirements_from_wire(message.requirements, f"{path}.requirements"),
        _vector(message.resources, f"{path}.resources", MAX_UNITS),
    )


def _unrequested_from_wire(message: pb.UnrequestedNode, path: str) -> UnrequestedNode:
    with _naming(path):
        return UnrequestedNode(
            _filled(message.node, f"{path}.node"),
            message.priority,
            _enum(_BUCKETS, message.interruption_penalty_bucket, "interruption_penalty_bucket"),
            _enum(_BUCKETS, message.reclamation_penalty_bucket, "reclamation_penalty_bucket"),
        )


def _filled(text: str, path: str) -> str:
    if not text:
        raise WireError(path, "is empty")
    return text


def _vector(amounts: Mapping[str, str], path: str, limit: int) -> Resources:
    try:
        return demand(amounts, limit)
    except ResourceError as error:
        raise WireError(f"{path}[{error.name!r}]", error.problem) from None


def _enum(known: Mapping[int, T], number: int, field: str) -> T:
    try:
        return known[number]
    except KeyError:
        raise ProfileError(field, f"{number} is not a value that can be asked for") from None


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except ProfileError as error:
        raise WireError(f"{path}.{error.field}", error.problem) from None
