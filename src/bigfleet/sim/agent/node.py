"""The Node that a host registers: what a kubelet would say of the machine it runs on."""

from collections.abc import Mapping
from typing import Any

import msgspec

from bigfleet.model import labels as known
from bigfleet.model.labels import KUBELET_VERSION
from bigfleet.providerkit.offer import Shape
from bigfleet.sim.agent.user_data import Bootstrap
from bigfleet.sim.controlplane.commands import KUBELET_KWOK, KUBELET_LABEL
from bigfleet.sim.controlplane.programs.versions import KUBERNETES

HOSTNAME = "kubernetes.io/hostname"
_OS, _ARCH = "kubernetes.io/os", "kubernetes.io/arch"
# A kubelet's own limit, where the offer says nothing of pods.
_PODS = "110"
# NodeRestriction lets a node set these labels of Kubernetes' own and no others.
_ALLOWED = frozenset({HOSTNAME, _OS, _ARCH, known.INSTANCE_TYPE, known.ZONE, "topology.kubernetes.io/region"})
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")


def manifest(name: str, provider_id: str, shape: Shape, bootstrap: Bootstrap) -> dict[str, Any]:
    """The Node as the host registers it; KWOK adds the conditions with its first heartbeat."""
    return {
        "metadata": {"name": name, "labels": _labels(name, shape, bootstrap)},
        "spec": {
            "providerID": provider_id,
            "taints": msgspec.to_builtins(bootstrap.taints),
        },
        "status": {
            "capacity": _amounts(shape.resources),
            "allocatable": _amounts(shape.allocatable or shape.resources),
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "kubeletVersion": f"v{shape.labels.get(KUBELET_VERSION, KUBERNETES).removeprefix('v')}",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": shape.labels.get(_ARCH, "amd64"),
                "osImage": "BigFleet simulated host",
                "containerRuntimeVersion": "",
                "kernelVersion": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
            },
        },
    }


def _labels(name: str, shape: Shape, bootstrap: Bootstrap) -> dict[str, str]:
    of_the_machine = {**shape.labels, **known.of_fields(shape.instance_type, shape.zone, shape.capacity_type)}
    return {
        _OS: "linux",
        _ARCH: "amd64",
        **{key: value for key, value in of_the_machine.items() if may_set(key)},
        **bootstrap.labels,
        HOSTNAME: name,
        KUBELET_LABEL: KUBELET_KWOK,
    }


def may_set(label: str) -> bool:
    """Whether a node may set this label on itself."""
    domain = label.rpartition("/")[0]
    if label in _ALLOWED or _within(domain, _ALLOWED_DOMAINS):
        return True
    return not _within(domain, _RESERVED_DOMAINS)


def _within(domain: str, domains: tuple[str, ...]) -> bool:
    return any(domain == each or domain.endswith(f".{each}") for each in domains)


def _amounts(vector: Mapping[str, str | int]) -> dict[str, str]:
    return {"pods": _PODS} | {name: str(amount) for name, amount in vector.items()}
