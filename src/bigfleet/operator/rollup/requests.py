"""The cluster's CapacityRequests as the watch shows them: the rows they make, and which are not yet Acknowledged.

Only what is needed of a request is kept, so that a quarter of a million fit in little memory. A request that cannot
become demand is left out of the rows, and its owner is told once for each problem; its pod counts as one without a
request (protocol rule 20).
"""

from collections.abc import Callable, Sequence

import msgspec

from bigfleet.model.crd import CapacityRequest
from bigfleet.model.demand.aggregate import Aggregator
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.request import RequestError
from bigfleet.operator.rollup.owners import OwnerOfPod, Owners, told

URGENT_ABOVE = 100
"""A new request with a higher priority than this does not wait for the next roll-up; batch work is not above it."""

Key = tuple[str, str]
"""Namespace and name."""


class UnacknowledgedRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that is not yet Acknowledged."""

    namespace: str
    name: str
    uid: str


class Requests:
    """The sink of a watch on CapacityRequests.

    `urgent` is called when a request comes that should not wait for the next roll-up. `pod_changed` is called with a
    pod's UID when a request has come to stand for that pod, or no longer does. `complain` is called with a request that
    cannot become demand.
    """

    def __init__(
        self,
        urgent: Callable[[], None],
        pod_changed: Callable[[str], None],
        complain: Callable[[CapacityRequest, RequestError], None],
    ) -> None:
        self._urgent, self._pod_changed, self._complain = urgent, pod_changed, complain
        self._aggregator = Aggregator()
        self._owners = Owners()
        self._waiting: dict[Key, UnacknowledgedRequest] = {}
        #: The UID of the pod that owns a request.
        self._pod_of: dict[Key, str] = {}
        #: By a pod's UID, the request that stands for it.
        self._of_pod: dict[str, Key] = {}
        #: By a pod's UID, its other requests; hardly any pod has one.
        self._besides: dict[str, list[Key]] = {}
        #: Requests that cannot become demand, each with the problem.
        self._refused: dict[Key, str] = {}
        #: Whether requests of a kind may be there of which none is remembered in `_owners`.
        self._owners_lost = False

    def __len__(self) -> int:
        return len(self._aggregator) + len(self._refused)

    # What the watch says.

    def replaced(self, requests: Sequence[CapacityRequest]) -> None:
        """The watch has listed anew: these are all requests."""
        found = {(request.metadata.namespace, request.metadata.name) for request in requests}
        for key in [key for key in (*self._aggregator.keys(), *self._refused) if key not in found]:
            self._remove(key)
        for request in requests:
            self.put(request)

    def put(self, request: CapacityRequest) -> None:
        """A request is new, or has changed."""
        key = request.metadata.namespace, request.metadata.name
        before = self._counts(key), self._pod_of.get(key, "")
        self._take(key, request)
        counts, pod = after = self._counts(key), self._pod_of.get(key, "")
        if pod and after != before:
            self._pod_changed(pod)
        if counts and not before[0] and request.spec.priority > URGENT_ABOVE:
            self._urgent()

    def removed(self, request: CapacityRequest) -> None:
        """A request is gone."""
        self._remove((request.metadata.namespace, request.metadata.name))

    # What the requests come to.

    def needs(self) -> tuple[Need, ...]:
        """The rows of all requests."""
        return self._aggregator.needs()

    def owners(self, owner_of_pod: OwnerOfPod) -> dict[NeedKey, tuple[str, ...]]:
        """Some of those who ask for each row, as namespace/owner."""
        self._remember_owners()
        rows: dict[NeedKey, set[tuple[str, str]]] = {}
        for sample in self._owners.samples():
            row = self._aggregator.row(*next(iter(sample)))
            if row is not None:
                names = ((key[0], owner_of_pod(self._pod_of.get(key, "")) or name) for key, name in sample.items())
                rows.setdefault(row, set()).update(names)
        return {row: told(names) for row, names in rows.items()}

    def _remember_owners(self) -> None:
        """Remember requests of kinds whose remembered requests have all gone. That is rare, and a pass over all."""
        if self._owners_lost:
            self._owners_lost = False
            for key in list(self._aggregator.keys()):
                kind = self._aggregator.kind(*key)
                if not self._owners.knows(kind):
                    self._owners.put(key, kind, key[1])

    def waiting(self) -> list[UnacknowledgedRequest]:
        """Requests that are counted in the rows and not yet Acknowledged."""
        return list(self._waiting.values())

    def has_request(self, pod_uid: str) -> bool:
        """Whether a request that is counted in the rows stands for the pod of that UID."""
        key = self._of_pod.get(pod_uid)
        return key is not None and self._counts(key)

    def row_of_pod(self, pod_uid: str) -> NeedKey | None:
        """The row in which the request of the pod of that UID is counted."""
        key = self._of_pod.get(pod_uid)
        return None if key is None else self._aggregator.row(*key)

    def _counts(self, key: Key) -> bool:
        return key in self._aggregator

    def _take(self, key: Key, request: CapacityRequest) -> None:
        self._set_pod(key, request)
        before = self._aggregator.kind(*key)
        try:
            self._aggregator.put(request)
        except RequestError as error:
            self._withdraw(key)
            self._waiting.pop(key, None)
            if self._refused.get(key) != str(error):
                self._refused[key] = str(error)
                self._complain(request, error)
            return
        self._refused.pop(key, None)
        owner = next((owner.name for owner in request.metadata.owner_references), "") or key[1]
        kind = self._aggregator.kind(*key)
        self._owners.put(key, kind, owner)
        self._owners_lost = self._owners_lost or (before not in (None, kind) and not self._owners.knows(before))
        if request.status is None or request.status.phase == "Pending":
            former, uid = self._waiting.get(key), request.metadata.uid
            if former is None or former.uid != uid:
                self._waiting[key] = UnacknowledgedRequest(*key, uid)
        else:
            self._waiting.pop(key, None)

    def _set_pod(self, key: Key, request: CapacityRequest) -> None:
        pod = next((owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod"), "")
        former = self._pod_of.get(key, "")
        if former == pod:
            return
        if former:
            self._unset_pod(key, former)
        if pod:
            self._pod_of[key] = pod
            if (other := self._of_pod.get(pod)) is not None:
                self._besides.setdefault(pod, []).append(other)
            self._of_pod[pod] = key

    def _unset_pod(self, key: Key, pod: str) -> None:
        del self._pod_of[key]
        others = self._besides.pop(pod, [])
        if self._of_pod[pod] != key:
            others.remove(key)
        elif others:
            self._of_pod[pod] = others.pop()
            self._pod_changed(pod)
        else:
            del self._of_pod[pod]
            self._pod_changed(pod)
        if others:
            self._besides[pod] = others

    def _withdraw(self, key: Key) -> None:
        """Count the request no longer."""
        kind = self._aggregator.kind(*key)
        self._aggregator.remove(*key)
        self._owners.remove(key)
        self._owners_lost = self._owners_lost or (kind is not None and not self._owners.knows(kind))

    def _remove(self, key: Key) -> None:
        self._withdraw(key)
        self._waiting.pop(key, None)
        self._refused.pop(key, None)
        if pod := self._pod_of.get(key, ""):
            self._unset_pod(key, pod)
