"""The resources that BigFleet uses: where an API server keeps each kind, and the struct that it is read into."""

from typing import Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from bigfleet.kube.objects import kinds
from bigfleet.model import crd

T = TypeVar("T")


class KubeObject(Protocol):
    """Any object with metadata, which makes it fit for a watch."""

    @property
    def metadata(self) -> crd.ObjectMeta:
        """Names, UID and version."""
        ...


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """A kind as the API server serves it. The core group is the empty string.

    `shared` says that very many objects of few different specs are expected: equal parts are then kept once.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]
    shared: bool = False

    @property
    def api_version(self) -> str:
        """Group and version as objects write them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the collection, of an object or of its subresource; without a namespace, of all namespaces."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        within = f"namespaces/{_segment(namespace)}" if self.namespaced and namespace else ""
        return "/".join(part for part in (root, within, self.plural, _segment(name), subresource) if part)


def _segment(name: str) -> str:
    """A name, quoted so that it is one part of a path."""
    if name in {".", ".."}:
        raise ValueError(f"{name!r} is no object's name")
    return quote(name, safe="")


PODS = Resource("", "v1", "pods", "Pod", True, kinds.Pod)
NODES = Resource("", "v1", "nodes", "Node", False, kinds.Node)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, kinds.Namespace)
SECRETS = Resource("", "v1", "secrets", "Secret", True, kinds.Secret)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, kinds.ConfigMap)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True, kinds.DaemonSet)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, kinds.Lease)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True, kinds.Event)
CSRS = Resource(
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    False,
    kinds.CertificateSigningRequest,
)

_GROUP, _, _VERSION = crd.API_VERSION.partition("/")
CAPACITY_REQUESTS = Resource(
    _GROUP, _VERSION, "capacityrequests", "CapacityRequest", True, crd.CapacityRequest, shared=True
)
AVAILABLE_CAPACITIES = Resource(
    _GROUP, _VERSION, "availablecapacities", "AvailableCapacity", False, crd.AvailableCapacity
)
UPCOMING_NODES = Resource(_GROUP, _VERSION, "upcomingnodes", "UpcomingNode", False, crd.UpcomingNode)
