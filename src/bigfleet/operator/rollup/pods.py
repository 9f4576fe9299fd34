"""The cluster's pods as the watch shows them: which node each is on, which found no place, which have no request.

Of each pod only what is used is kept. Which nodes are empty, and which run pods without a request (protocol rule 13),
is kept up to date pod by pod, so that a roll-up need not walk all pods.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from bigfleet.kube.objects.kinds import Pod, PodSpec, PodStatus
from bigfleet.kube.objects.names import INTERRUPTION, RECLAMATION
from bigfleet.kube.objects.pod_facts import MIRROR, has_ended, is_daemon, is_mirror, is_unschedulable
from bigfleet.model.crd import ObjectMeta
from bigfleet.model.demand.need import UnrequestedNode
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.quantity import QuantityError

Key = tuple[str, str]
"""Namespace and name."""


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """One pod. `counts` tells whether the pod keeps its node from being empty, as no daemon and no mirror pod does."""

    pod: Pod
    priority: int
    interruption: PenaltyBucket
    reclamation: PenaltyBucket
    counts: bool


class Pods:
    """The sink of a watch on Pods.

    `has_request` says whether a request that counts stands for the pod of a UID. `changed` is called with a node's name
    when a pod has come to that node, gone from it or changed on it.
    """

    def __init__(self, has_request: Callable[[str], bool], changed: Callable[[str], None]) -> None:
        self._has_request, self._changed = has_request, changed
        self._pods: dict[Key, _Kept] = {}
        self._by_uid: dict[str, Key] = {}
        #: The pods on each node.
        self._on: dict[str, dict[Key, _Kept]] = {}
        #: By node, how many pods keep it from being empty.
        self._counting: dict[str, int] = {}
        #: By node, the pods on it that count and have no request.
        self._unrequested: dict[str, set[Key]] = {}
        #: UIDs of pods that the scheduler found no node for.
        self._unschedulable: set[str] = set()

    def __len__(self) -> int:
        return len(self._pods)

    # What the watch says.

    def replaced(self, pods: Sequence[Pod]) -> None:
        """The watch has listed anew: these are all pods."""
        found = {(pod.metadata.namespace, pod.metadata.name) for pod in pods}
        for key in [key for key in self._pods if key not in found]:
            self._take_out(key)
        for pod in pods:
            self.put(pod)

    def put(self, pod: Pod) -> None:
        """A pod is new, or has changed."""
        key = pod.metadata.namespace, pod.metadata.name
        former = self._pods.get(key)
        before = "" if former is None else former.pod.spec.node_name
        self._take_out(key, tell=False)
        if not has_ended(pod):
            self._put_in(key, _kept(pod))
        elif former is None:
            return
        for node in {before, pod.spec.node_name} - {""}:
            self._changed(node)

    def removed(self, pod: Pod) -> None:
        """A pod is gone."""
        self._take_out((pod.metadata.namespace, pod.metadata.name))

    def request_changed(self, pod_uid: str) -> None:
        """A request has come to stand for the pod of that UID, or no longer does."""
        key = self._by_uid.get(pod_uid)
        if key is not None:
            self._judge(key, self._pods[key])

    # What is to be known.

    def on(self, node: str) -> Sequence[Pod]:
        """The pods that are bound to a node and have not ended."""
        return [kept.pod for kept in self._on.get(node, {}).values()]

    def is_empty(self, node: str) -> bool:
        """Whether nothing but daemons and mirror pods is on the node."""
        return node not in self._counting

    def unrequested(self) -> tuple[UnrequestedNode, ...]:
        """Every node with a pod that has no request, each with the highest priority and penalties among such pods."""
        return tuple(self._stakes(node, self._unrequested[node]) for node in sorted(self._unrequested))

    def unschedulable(self) -> Iterable[str]:
        """The UIDs of pods that the scheduler found no place for."""
        return self._unschedulable

    def named(self, uid: str) -> Key:
        """Namespace and name of a pod that is there."""
        return self._by_uid[uid]

    def owner_of(self, uid: str) -> str:
        """The name of what owns the pod of a UID, or the pod's own; empty for a pod that is not there."""
        key = self._by_uid.get(uid)
        if key is None:
            return ""
        return next((owner.name for owner in self._pods[key].pod.metadata.owner_references), "") or key[1]

    def _stakes(self, node: str, keys: Iterable[Key]) -> UnrequestedNode:
        pods = [self._pods[key] for key in keys]
        return UnrequestedNode(
            node,
            max(pod.priority for pod in pods),
            max(pod.interruption for pod in pods),
            max(pod.reclamation for pod in pods),
        )

    def _put_in(self, key: Key, kept: _Kept) -> None:
        pod = kept.pod
        self._pods[key] = kept
        self._by_uid[pod.metadata.uid] = key
        node = pod.spec.node_name
        if node:
            self._on.setdefault(node, {})[key] = kept
            if kept.counts:
                self._counting[node] = self._counting.get(node, 0) + 1
        elif kept.counts and is_unschedulable(pod) and pod.metadata.deletion_timestamp is None:
            self._unschedulable.add(pod.metadata.uid)
        self._judge(key, kept)

    def _take_out(self, key: Key, *, tell: bool = True) -> None:
        kept = self._pods.pop(key, None)
        if kept is None:
            return
        uid, node = kept.pod.metadata.uid, kept.pod.spec.node_name
        if self._by_uid.get(uid) == key:
            del self._by_uid[uid]
        self._unschedulable.discard(uid)
        self._forget_unrequested(key, node)
        if not node:
            return
        there = self._on[node]
        del there[key]
        if not there:
            del self._on[node]
        if kept.counts:
            self._counting[node] -= 1
            if not self._counting[node]:
                del self._counting[node]
        if tell:
            self._changed(node)

    def _judge(self, key: Key, kept: _Kept) -> None:
        """Note whether the pod is on a node, counts there and has no request."""
        node = kept.pod.spec.node_name
        if node and kept.counts and not self._has_request(kept.pod.metadata.uid):
            self._unrequested.setdefault(node, set()).add(key)
        else:
            self._forget_unrequested(key, node)

    def _forget_unrequested(self, key: Key, node: str) -> None:
        keys = self._unrequested.get(node)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._unrequested[node]


def _kept(pod: Pod) -> _Kept:
    metadata, annotations = pod.metadata, pod.metadata.annotations
    slim = Pod(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            deletion_timestamp=metadata.deletion_timestamp,
            annotations={MIRROR: annotations[MIRROR]} if MIRROR in annotations else {},
            owner_references=metadata.owner_references,
        ),
        spec=PodSpec(
            node_name=pod.spec.node_name,
            termination_grace_period_seconds=pod.spec.termination_grace_period_seconds,
            # Kubernetes gives every pod tolerations of NoExecute; nothing here reads those.
            tolerations=tuple(each for each in pod.spec.tolerations if each.effect != "NoExecute"),
        ),
        status=PodStatus(phase=pod.status.phase, conditions=() if pod.spec.node_name else pod.status.conditions),
    )
    return _Kept(
        slim,
        pod.spec.priority or 0,
        _bucket(annotations.get(INTERRUPTION, "0")),
        _bucket(annotations.get(RECLAMATION, "0")),
        not is_daemon(pod) and not is_mirror(pod),
    )


def _bucket(dollars: str) -> PenaltyBucket:
    """The penalty that an annotation states; zero where it is no amount, as in the pod's request."""
    try:
        return PenaltyBucket.from_dollars(dollars)
    except QuantityError:
        return PenaltyBucket.ZERO
