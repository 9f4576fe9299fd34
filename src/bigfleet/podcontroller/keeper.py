"""Puts one key right: makes, changes or deletes the request of one pod.

Any step may be the last of this process, may be repeated, or may go by a cache that lags. So a request's name is fixed,
deletions name the UID that they mean, and nothing is deleted because of a cache alone.
"""

import contextlib
import enum
from collections.abc import Callable, Mapping

import msgspec

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.errors import AlreadyExistsError, InvalidError, NotFoundError
from bigfleet.kube.objects.kinds import ObjectReference
from bigfleet.kube.objects.names import MANAGED_BY, POD_CONTROLLER
from bigfleet.kube.objects.resources import CAPACITY_REQUESTS, NODES, PODS
from bigfleet.kube.recorder import Occurrence, Recorder
from bigfleet.model.crd import CapacityRequest, CapacityRequestSpec, ObjectMeta, OwnerReference
from bigfleet.podcontroller.pod.complaints import REFUSED, Complaint
from bigfleet.podcontroller.pod.penalties import Defaults
from bigfleet.podcontroller.pod.reading import PodDemand, PodReading, request_name
from bigfleet.podcontroller.tables import Key, Made, PodTable, RequestTable, Scope

LABELS: Mapping[str, str] = {MANAGED_BY: POD_CONTROLLER}
"""The labels that our requests carry, and no others."""

# Nodes whose labels are remembered.
_MOST_NODES = 20_000


class Mode(enum.StrEnum):
    """Which pods get a request: all that live, or only those for which the scheduler once found no node."""

    ALL = "all"
    UNSCHEDULABLE_ONLY = "unschedulable-only"


class KeepOutcome(enum.StrEnum):
    """What was done for a key."""

    CREATED = "created"
    PATCHED = "patched"
    DELETED = "deleted"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    REFUSED = "refused"
    ERROR = "error"


class Keeper:
    """Compares the request that a pod should have with the one it has, and calls the API server where they differ."""

    def __init__(
        self,
        client: Client,
        mode: Mode,
        pods: PodTable,
        requests: RequestTable,
        scope: Scope,
        defaults: Callable[[], Defaults],
        events: Recorder,
    ) -> None:
        self._client, self._mode = client, mode
        self._pods, self._requests, self._scope = pods, requests, scope
        self._defaults, self._events = defaults, events
        self._node_labels: dict[str, Mapping[str, str]] = {}

    async def keep(self, key: Key) -> KeepOutcome:
        """Put one key right. ApiError: try again."""
        pod, made = self._pods.get(key), self._requests.get(key)
        if pod is None:
            return await self._clear(key, made)
        if not self._scope.covers(pod.namespace):
            return await self._withdraw(key, made)
        wanted = self._mode is Mode.ALL or pod.unschedulable or made is not None
        if wanted:
            for complaint in pod.complaints:
                self._say(pod, complaint)
        if pod.demand is None or not wanted:
            return await self._withdraw(key, made)
        try:
            return await self._write(key, pod, pod.demand, made)
        except InvalidError as error:
            self._say(pod, Complaint(REFUSED, f"the API server does not take {key[1]}: {error.message}"))
            return KeepOutcome.REFUSED

    async def _write(self, key: Key, pod: PodReading, demand: PodDemand, made: Made | None) -> KeepOutcome:
        spec = demand.request(self._defaults(), await self._labels_of(pod, demand))
        owner = _owner(pod)
        if made is None:
            request = CapacityRequest(
                metadata=ObjectMeta(name=key[1], namespace=key[0], labels=dict(LABELS), owner_references=(owner,)),
                spec=spec,
            )
            try:
                with self._requests.writing(key):
                    self._requests.wrote(await self._client.create(CAPACITY_REQUESTS, request, key[0]))
            except AlreadyExistsError:
                # An earlier process made the request, or somebody took its label off.
                await self._correct(key, spec, owner, label=True)
                return KeepOutcome.PATCHED
            return KeepOutcome.CREATED
        if made.spec == spec and made.owners == (owner,):
            return KeepOutcome.UNCHANGED
        await self._correct(key, spec, owner, label=False)
        return KeepOutcome.PATCHED

    async def _correct(self, key: Key, spec: CapacityRequestSpec, owner: OwnerReference, *, label: bool) -> None:
        """Rewrite the request of that name, whatever it is now: the name belongs to this pod alone."""
        patch = [
            {"op": "add", "path": "/spec", "value": msgspec.to_builtins(spec)},
            {"op": "add", "path": "/metadata/ownerReferences", "value": msgspec.to_builtins((owner,))},
        ]
        if label:
            patch.append({"op": "add", "path": "/metadata/labels", "value": dict(LABELS)})
        namespace, name = key
        with self._requests.writing(key):
            self._requests.wrote(
                await self._client.patch(
                    CAPACITY_REQUESTS, name, patch, namespace, content=Patch.JSON, manager=POD_CONTROLLER
                )
            )

    async def _withdraw(self, key: Key, made: Made | None) -> KeepOutcome:
        if made is None:
            return KeepOutcome.SKIPPED
        with contextlib.suppress(NotFoundError):
            await self._client.delete(CAPACITY_REQUESTS, key[1], key[0], uid=made.uid)
        self._requests.drop(key, made.uid)
        return KeepOutcome.DELETED

    async def _clear(self, key: Key, made: Made | None) -> KeepOutcome:
        """Delete the request of a key for which no pod is known, unless only our view of the pods lags."""
        if made is not None and await self._pod_lives(key, made):
            return KeepOutcome.UNCHANGED
        outcome = await self._withdraw(key, made)
        self._pods.forget(key)
        return outcome

    async def _pod_lives(self, key: Key, made: Made) -> bool:
        """Whether the request's pod lives and only our view of the pods lags."""
        if self._pods.has_ended(key):
            return False
        for owner in made.owners:
            if owner.kind == "Pod" and request_name(owner.name, owner.uid) == key[1]:
                try:
                    pod = await self._client.get(PODS, owner.name, key[0])
                except NotFoundError:
                    return False
                return pod.metadata.uid == owner.uid
        return False

    def _say(self, pod: PodReading, complaint: Complaint) -> None:
        about = ObjectReference(api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
        self._events.say(Occurrence(about, complaint.reason, "RequestCapacity", complaint.note))

    async def _labels_of(self, pod: PodReading, demand: PodDemand) -> Mapping[str, str] | None:
        """The labels of the pod's node, where they decide between alternatives; else None."""
        if not pod.node or len(demand.alternatives) == 1:
            return None
        labels = self._node_labels.get(pod.node)
        if labels is None:
            try:
                labels = (await self._client.get(NODES, pod.node)).metadata.labels
            except NotFoundError:
                return None
            if len(self._node_labels) >= _MOST_NODES:
                self._node_labels.clear()
            self._node_labels[pod.node] = labels
        return labels


def _owner(pod: PodReading) -> OwnerReference:
    return OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True, block_owner_deletion=False
    )
