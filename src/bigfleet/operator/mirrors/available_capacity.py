"""AvailableCapacity objects: for each profile of the last roll-up, what the shard could still give the cluster."""

import math
from collections.abc import Collection

from bigfleet.kube.objects.names import MANAGED_BY, OPERATOR
from bigfleet.model.crd import (
    Availability,
    AvailableCapacity,
    AvailableCapacitySpec,
    NodeTemplate,
    ObjectMeta,
    SelectorOperator,
    SelectorRequirement,
)
from bigfleet.operator.mirrors.mirror import Mirror, object_name
from bigfleet.operator.waiting import SETTLED_SECONDS
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

# What the shard puts before a profile's fingerprint in `supersedes_key`.
_PREFIX = "available:"
_C = pb.AvailableCapacityUpdate
_AVAILABILITY: dict[int, Availability] = {
    _C.CONFIDENCE_NONE: "None",
    _C.CONFIDENCE_LOW: "Low",
    _C.CONFIDENCE_MEDIUM: "Medium",
    _C.CONFIDENCE_HIGH: "High",
}
_R = capacity_pb2.NodeSelectorRequirement
_OPERATORS: dict[int, SelectorOperator] = {
    _R.OPERATOR_IN: "In",
    _R.OPERATOR_NOT_IN: "NotIn",
    _R.OPERATOR_EXISTS: "Exists",
    _R.OPERATOR_DOES_NOT_EXIST: "DoesNotExist",
}


class AvailableCapacities:
    """Makes objects of what the shard says is available."""

    def __init__(self, mirror: Mirror[AvailableCapacity]) -> None:
        self._mirror = mirror
        #: Object names of profiles that this session has answered for.
        self._named: set[str] = set()
        #: When the session has answered for every profile.
        self._settles = math.inf

    def opened(self, now: float) -> None:
        """A session begins: the shard will answer for every profile."""
        self._named.clear()
        self._settles = now + SETTLED_SECONDS

    def closed(self) -> None:
        """The session is over."""
        self._settles = math.inf

    def heard(self, update: pb.AvailableCapacityUpdate) -> None:
        """The shard says what it could still give for one profile."""
        name = _name(update.supersedes_key.removeprefix(_PREFIX))
        availability = _AVAILABILITY.get(update.confidence)
        if availability is None:
            return
        self._named.add(name)
        requirements = tuple(
            SelectorRequirement(each.key, _OPERATORS[each.operator], tuple(each.values))
            for each in update.requirements
            if each.operator in _OPERATORS
        )
        has_any = availability != "None"
        self._mirror.want(
            AvailableCapacity(
                metadata=ObjectMeta(name=name, labels={MANAGED_BY: OPERATOR}),
                spec=AvailableCapacitySpec(
                    requirements=requirements,
                    resources=dict(update.resources.resources),
                    available_count=update.available_count,
                    availability=availability,
                    cost=f"{update.cost_per_hour:.6g}" if has_any else None,
                    node_template=_template(requirements),
                    supports_atomic_provisioning=update.atomic,
                    estimated_provisioning_time=f"{update.eta_seconds}s" if update.HasField("eta_seconds") else None,
                ),
            )
        )

    def rolled_up(self, fingerprints: Collection[str]) -> None:
        """The shard has taken a roll-up with these profiles. Objects for other profiles are out of date and deleted."""
        names = {_name(fingerprint) for fingerprint in fingerprints}
        for name in [name for name in self._named if name not in names]:
            self._named.discard(name)
            self._mirror.drop(name)

    def tick(self, now: float) -> None:
        """Delete objects for which this session has brought no answer."""
        if now >= self._settles:
            self._settles = math.inf
            for name in [name for name in self._mirror if name not in self._named]:
                self._mirror.drop(name)

    def due(self) -> float:
        """When the next tick has something to do."""
        return self._settles


def _name(profile: str) -> str:
    return object_name(f"profile-{profile}")


def _template(requirements: tuple[SelectorRequirement, ...]) -> NodeTemplate | None:
    """The labels of which the requirements allow one value only."""
    labels = {each.key: each.values[0] for each in requirements if each.operator == "In" and len(each.values) == 1}
    return NodeTemplate(labels=labels) if labels else None
