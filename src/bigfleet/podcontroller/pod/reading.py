"""Reads a pod: whether a machine may be bought for it, and what it asks for. All that is kept of a pod is here."""

import hashlib
from collections.abc import Mapping

import msgspec

from bigfleet.kube.objects.kinds import Pod
from bigfleet.kube.objects.pod_facts import has_ended, is_daemon, is_mirror, is_unschedulable
from bigfleet.kube.objects.pod_requests import asked
from bigfleet.model.crd import CapacityRequestSpec, SelectorRequirement
from bigfleet.model.quantity import QuantityError
from bigfleet.podcontroller.pod import penalties
from bigfleet.podcontroller.pod.complaints import UNTRANSLATABLE, Complaint
from bigfleet.podcontroller.pod.label_sets import Box, holds, written
from bigfleet.podcontroller.pod.node_terms import places
from bigfleet.podcontroller.pod.penalties import Defaults, Penalties
from bigfleet.podcontroller.pod.placement import placing

_MAX_NAME = 253
_PREFIX = "cr-pod-"


class PodDemand(msgspec.Struct, frozen=True):
    """What a pod asks for, before penalty defaults and the choice between alternatives."""

    spec: CapacityRequestSpec
    alternatives: tuple[Box, ...]
    penalties: Penalties
    priority_class: str

    def request(self, defaults: Defaults, node_labels: Mapping[str, str] | None = None) -> CapacityRequestSpec:
        """The request's content. Of several alternatives it has the first that the pod's node meets, else the first."""
        count = self.penalties.over(defaults.get(self.priority_class, Penalties()))
        here = [box for box in self.alternatives if node_labels is not None and holds(box, node_labels)]
        requirements: tuple[SelectorRequirement, ...] = written((here or self.alternatives)[0])
        return msgspec.structs.replace(
            self.spec,
            requirements=requirements,
            interruption_penalty=penalties.amount(count.interruption_penalty),
            reclamation_penalty=penalties.amount(count.reclamation_penalty),
        )


class PodReading(msgspec.Struct, frozen=True):
    """A pod as the controller knows it. A pod without `demand` gets no request."""

    namespace: str
    name: str
    uid: str
    node: str
    unschedulable: bool
    demand: PodDemand | None
    complaints: tuple[Complaint, ...] = ()

    @property
    def request_name(self) -> str:
        """The name of the pod's request."""
        return request_name(self.name, self.uid)


def read(pod: Pod) -> PodReading:
    """What the controller needs of a pod."""
    demand, complaints = (None, ()) if no_demand(pod) else _demand(pod)
    meta, node = pod.metadata, pod.spec.node_name
    return PodReading(meta.namespace, meta.name, meta.uid, node, is_unschedulable(pod), demand, complaints)


def no_demand(pod: Pod) -> bool:
    """Whether no machine is bought for the pod."""
    return (
        has_ended(pod)
        # The operator reports daemons with the roll-up, and a mirror pod belongs to its node.
        or is_daemon(pod)
        or is_mirror(pod)
        # A gated pod is not meant to run yet.
        or bool(pod.spec.scheduling_gates)
        # A pod that was deleted before it was placed will never run.
        or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)
    )


def request_name(pod_name: str, uid: str) -> str:
    """The name of a pod's request. It is fixed for the pod's life, so that the request cannot be made twice."""
    ending = "-" + hashlib.blake2b(uid.encode(), digest_size=5).hexdigest()
    room = _MAX_NAME - len(_PREFIX) - len(ending)
    return _PREFIX + pod_name[:room].rstrip("-.") + ending


def _demand(pod: Pod) -> tuple[PodDemand | None, tuple[Complaint, ...]]:
    where = places(pod)
    if not where.alternatives:
        return None, where.complaints
    try:
        resources = asked(pod)
    except QuantityError as error:
        return None, (Complaint(UNTRANSLATABLE, f"a resource of the pod cannot be counted: {error}"),)
    place = placing(pod)
    said, malformed = penalties.annotated(pod)
    spec = CapacityRequestSpec(
        resources=dict(resources),
        priority=pod.spec.priority or 0,
        topology_spread=place.spread,
        co_location=place.co_location,
        max_per_node=place.max_per_node,
    )
    demand = PodDemand(spec, where.alternatives, said, pod.spec.priority_class_name)
    return demand, (*where.complaints, *place.complaints, *malformed)
