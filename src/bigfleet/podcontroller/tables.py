"""What the controller knows of pods and of its requests. Both go by one key: the request's namespace and name.

A pod's request keeps its name for the pod's whole life, so no key depends on another. A new pod under an old name has
another key, and a second request for one pod has a key without a pod.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from bigfleet.kube.objects.kinds import Namespace, Pod
from bigfleet.model.crd import CapacityRequest, CapacityRequestSpec, OwnerReference
from bigfleet.podcontroller.pod.label_sets import written
from bigfleet.podcontroller.pod.reading import PodDemand, PodReading, read, request_name

Key = tuple[str, str]
"""Namespace and name of a request."""

Changed = Callable[[Key], None]

# Different demands that are remembered; past that, remembering begins anew.
_MOST_DEMANDS = 65536


class PodTable:
    """The sink of a watch on Pods. A pod is read when a worker looks at it, and only its reading is kept from then on.

    Equal demands are kept once. Reading in the sink would hold up the event loop for as long as it takes to read a
    whole cluster.
    """

    def __init__(self, changed: Changed) -> None:
        self._changed = changed
        #: Pods that no worker has looked at since they changed.
        self._unread: dict[Key, Pod] = {}
        self._readings: dict[Key, PodReading] = {}
        #: Demands by their content.
        self._demands: dict[bytes, PodDemand] = {}
        #: Keys of pods that the watch saw deleted, until their requests are gone too.
        self._ended: set[Key] = set()

    def keys(self) -> set[Key]:
        """The keys of all pods."""
        return self._unread.keys() | self._readings.keys()

    def get(self, key: Key) -> PodReading | None:
        """The pod whose request has this key."""
        former = self._readings.get(key)
        pod = self._unread.pop(key, None)
        if pod is None:
            return former
        reading = read(pod)
        if former is not None and former.unschedulable:
            # A pod that was once unschedulable has a request to the end of its life.
            reading = msgspec.structs.replace(reading, unschedulable=True)
        if reading.demand is not None:
            reading = msgspec.structs.replace(reading, demand=self._one(reading.demand))
        self._readings[key] = reading
        return reading

    def has_ended(self, key: Key) -> bool:
        """Whether the API server said that the pod was deleted; a pod may also be missing from a list."""
        return key in self._ended

    def forget(self, key: Key) -> None:
        """Forget that the pod was deleted: its request is gone too."""
        self._ended.discard(key)

    def replaced(self, objects: Iterable[Pod]) -> None:
        """The watch has listed anew: these are all pods."""
        gone = self.keys()
        for pod in objects:
            self.put(pod)
            gone.discard(_key(pod))
        for key in gone:
            self._remove(key)

    def put(self, pod: Pod) -> None:
        """A pod is new, or has changed."""
        key = _key(pod)
        self._unread[key] = pod
        self._changed(key)

    def removed(self, pod: Pod) -> None:
        """A pod is gone, or can no longer be read; in the latter case only its metadata is filled."""
        key = _key(pod)
        if pod.spec.containers:
            self._ended.add(key)
        self._remove(key)

    def _remove(self, key: Key) -> None:
        self._unread.pop(key, None)
        self._readings.pop(key, None)
        self._changed(key)

    def _one(self, demand: PodDemand) -> PodDemand:
        if len(self._demands) >= _MOST_DEMANDS:
            self._demands.clear()
        boxes = [written(box) for box in demand.alternatives]
        told = msgspec.msgpack.encode((demand.spec, boxes, demand.penalties, demand.priority_class), order="sorted")
        return self._demands.setdefault(told, demand)


def _key(pod: Pod) -> Key:
    return pod.metadata.namespace, request_name(pod.metadata.name, pod.metadata.uid)


class Made(msgspec.Struct, frozen=True):
    """One of our requests as the API server has it."""

    uid: str
    spec: CapacityRequestSpec
    owners: tuple[OwnerReference, ...]


class RequestTable:
    """The sink of a watch on the requests that carry our label."""

    def __init__(self, changed: Changed) -> None:
        self._changed = changed
        self._made: dict[Key, Made] = {}
        #: Keys that are being written, as long as the watch has shown nothing of them since.
        self._writing: set[Key] = set()

    def keys(self) -> set[Key]:
        """The keys of all requests."""
        return set(self._made)

    def get(self, key: Key) -> Made | None:
        """The request of this key."""
        return self._made.get(key)

    @contextmanager
    def writing(self, key: Key) -> Iterator[None]:
        """The request of this key is being written, for as long as the body runs."""
        self._writing.add(key)
        try:
            yield
        finally:
            self._writing.discard(key)

    def wrote(self, request: CapacityRequest) -> None:
        """The answer to a write. It is dropped where the watch has shown the request since: that may be newer."""
        if (request.metadata.namespace, request.metadata.name) in self._writing:
            self.put(request)

    def replaced(self, objects: Iterable[CapacityRequest]) -> None:
        """The watch has listed anew: these are all our requests."""
        gone = self.keys() | self._writing
        self._writing.clear()
        for request in objects:
            self.put(request)
            gone.discard((request.metadata.namespace, request.metadata.name))
        for key in gone:
            self._made.pop(key, None)
            self._changed(key)

    def put(self, request: CapacityRequest) -> None:
        """A request of ours was seen, or was just written."""
        metadata = request.metadata
        key = (metadata.namespace, metadata.name)
        self._writing.discard(key)
        made = Made(metadata.uid, request.spec, metadata.owner_references)
        if self._made.get(key) != made:
            self._made[key] = made
            self._changed(key)

    def removed(self, request: CapacityRequest) -> None:
        """A request is gone, or no longer carries our label."""
        self._writing.discard((request.metadata.namespace, request.metadata.name))
        self.drop((request.metadata.namespace, request.metadata.name), request.metadata.uid)

    def drop(self, key: Key, uid: str) -> None:
        """Forget a request that is gone; a newer one of the same name is kept."""
        made = self._made.get(key)
        if made is not None and made.uid == uid:
            del self._made[key]
            self._changed(key)


class Scope:
    """The namespaces whose pods get requests. It is the sink of a watch on namespaces where a selector is given.

    Without names all namespaces count, until the watch has listed.
    """

    def __init__(self, names: Collection[str] | None, changed: Callable[[str], None]) -> None:
        self._names = None if names is None else set(names)
        self._changed = changed

    def covers(self, namespace: str) -> bool:
        """Whether pods of this namespace get requests."""
        return self._names is None or namespace in self._names

    def replaced(self, objects: Iterable[Namespace]) -> None:
        """The watch has listed anew: these are all namespaces that are selected."""
        former = self._names or set()
        self._names = {namespace.metadata.name for namespace in objects}
        for name in former ^ self._names:
            self._changed(name)

    def put(self, namespace: Namespace) -> None:
        """A namespace is selected."""
        if self._names is not None and namespace.metadata.name not in self._names:
            self._names.add(namespace.metadata.name)
            self._changed(namespace.metadata.name)

    def removed(self, namespace: Namespace) -> None:
        """A namespace is gone, or no longer selected."""
        if self._names is not None and namespace.metadata.name in self._names:
            self._names.discard(namespace.metadata.name)
            self._changed(namespace.metadata.name)
