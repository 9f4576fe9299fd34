"""What can be told of a pod at a look: whether it has ended, who put it there, whether it found a place."""

from bigfleet.kube.objects.kinds import Pod

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a pod in the API server that mirrors one which a kubelet runs by itself."""

_ENDED = frozenset({"Succeeded", "Failed"})


def has_ended(pod: Pod) -> bool:
    """Whether all containers of the pod have ended for good."""
    return pod.status.phase in _ENDED


def is_daemon(pod: Pod) -> bool:
    """Whether a DaemonSet made the pod."""
    return any(owner.kind == "DaemonSet" and owner.controller for owner in pod.metadata.owner_references)


def is_mirror(pod: Pod) -> bool:
    """Whether the pod only mirrors one that a kubelet runs by itself."""
    return MIRROR in pod.metadata.annotations


def is_unschedulable(pod: Pod) -> bool:
    """Whether the scheduler says that it found no node for the pod."""
    return any(
        each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable"
        for each in pod.status.conditions
    )
