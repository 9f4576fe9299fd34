"""The labels of a node that requirements look at: the provider's own, and those made from a machine's fields.

Engine section 2 says which and how they match.
"""

from collections.abc import Mapping

from bigfleet.model.demand.profile import Operator, Requirement
from bigfleet.model.machine import CapacityType

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
CAPACITY_TYPE = "bigfleet.lucy.sh/capacity-type"
RACK = "topology.bigfleet.lucy.sh/rack"
KUBELET_VERSION = "bigfleet.lucy.sh/kubelet-version"
"""Which kubelet a machine's image has, where its provider says so."""

CONFORMANCE_FAULT = "conformance.bigfleet.lucy.sh/fault"
"""Names the fault of a machine that fails on purpose, for the conformance suite. The fault strikes every call of its
kind, except a call made out of Failed, which works."""

CONFORMANCE_SECONDS = "conformance.bigfleet.lucy.sh/seconds"
"""Says of a machine with the fault create-late or join-late how many seconds late it is."""


def of_fields(instance_type: str, zone: str, capacity_type: CapacityType) -> dict[str, str]:
    """The labels that are made from a machine's fields; they win over the provider's labels of the same name."""
    paid = "" if capacity_type is CapacityType.UNSPECIFIED else capacity_type.label
    made = {INSTANCE_TYPE: instance_type, ZONE: zone, CAPACITY_TYPE: paid}
    return {name: value for name, value in made.items() if value}


def satisfies(labels: Mapping[str, str], requirement: Requirement) -> bool:
    """Whether labels meet a requirement as Kubernetes reads it, to which an absent label is in no list of values."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case Operator.IN:
            return value in requirement.values
        case Operator.NOT_IN:
            return value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
        case Operator.SAME:
            raise ValueError(f"{requirement.key!r}: SAME is about several machines, not about one")
