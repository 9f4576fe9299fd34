"""UpcomingNode objects: each machine of the cluster on its way in and out, as the shard and the Nodes show it.

The phase follows from the machine's state, from whether its Node is Ready, and from the phase before: a machine that is
Idle is Launched on the way in and Drained on the way out. The object of a machine that has left stays for a while, then
it is deleted. The object of a machine that the shard has not named a minute into a session is deleted too.
"""

import math
from collections.abc import Callable
from datetime import datetime
from typing import get_args

import msgspec

from bigfleet.kube.objects.names import MACHINE, MANAGED_BY, OPERATOR
from bigfleet.model.crd import (
    NodePhase,
    NodeRef,
    ObjectMeta,
    Taint,
    TaintEffect,
    UpcomingNode,
    UpcomingNodeSpec,
    UpcomingNodeStatus,
)
from bigfleet.model.machine import MachineState
from bigfleet.operator.mirrors.mirror import Mirror, object_name
from bigfleet.operator.waiting import SETTLED_SECONDS
from bigfleet.wire.parting import GONE, NO_LONGER_MEANT
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

LEFT_SECONDS = 300.0
"""How long the object of a machine that has left stays."""

_S = MachineState
_ON_THE_WAY: dict[MachineState, NodePhase] = {
    _S.SPECULATIVE: "Provisioning",
    _S.CREATING: "Provisioning",
    _S.IDLE: "Launched",
    _S.CONFIGURING: "Registered",
    _S.CONFIGURED: "Registered",
    _S.DRAINING: "Draining",
    _S.FAILED: "Failed",
}
# States in which a machine that was in the cluster has left it.
_LEAVES = frozenset({_S.SPECULATIVE, _S.IDLE, _S.DELETING})
_EFFECTS: dict[str, TaintEffect] = {each: each for each in get_args(TaintEffect)}
# Phases of a machine that has been a node of the cluster.
_IN: frozenset[NodePhase | None] = frozenset({"Ready", "Draining", "Drained"})


class UpcomingNodes:
    """Makes objects of what the shard says about machines. `is_ready` says whether a machine's Node is Ready."""

    def __init__(
        self, mirror: Mirror[UpcomingNode], is_ready: Callable[[str], bool], wall: Callable[[], datetime]
    ) -> None:
        self._mirror, self._is_ready, self._wall = mirror, is_ready, wall
        #: By object name, what the shard said last.
        self._updates: dict[str, pb.NodeStateUpdate] = {}
        #: Object names of machines that this session has named.
        self._named: set[str] = set()
        #: By object name, since when the machine has left.
        self._left: dict[str, float] = {}
        #: When the session has named every machine of the cluster.
        self._settles = math.inf

    def opened(self, now: float) -> None:
        """A session begins: the shard will name every machine of the cluster."""
        self._named.clear()
        self._settles = now + SETTLED_SECONDS

    def closed(self) -> None:
        """The session is over. No object counts as stale until the next session has named its machines."""
        self._settles = math.inf

    def heard(self, update: pb.NodeStateUpdate, now: float) -> None:
        """The shard has described a machine of this cluster, in a known state."""
        name = object_name(update.machine_id)
        self._named.add(name)
        self._updates[name] = update
        self._show(update, now)

    def node_changed(self, machine: str, now: float) -> None:
        """The machine's Node has come, gone, or become Ready or not."""
        update = self._updates.get(object_name(machine))
        if update is not None and MachineState(update.state) is _S.CONFIGURED:
            self._show(update, now)

    def tick(self, now: float) -> list[UpcomingNode]:
        """Delete objects of machines that left long enough ago, and of machines that this session has not named.

        Returns the latter. No drain of those was seen, so their Nodes may still be there.
        """
        unnamed = []
        for name in [name for name, since in self._left.items() if now - since >= LEFT_SECONDS]:
            self._forget(name)
        if now >= self._settles:
            self._settles = math.inf
            for name in list(self._mirror):
                found = self._former(name)
                if name in self._named or name in self._left or found is None:
                    continue
                unnamed.append(found)
                if self._phase(name) == "Drained":
                    # An earlier process of the operator wrote this.
                    self._left[name] = now
                else:
                    self._forget(name)
        return unnamed

    def due(self) -> float:
        """When the next tick has something to do."""
        return min(self._settles, min(self._left.values(), default=math.inf) + LEFT_SECONDS)

    def _show(self, update: pb.NodeStateUpdate, now: float) -> None:
        state, name = MachineState(update.state), object_name(update.machine_id)
        before = self._phase(name)
        if state in _LEAVES and (before in _IN or (state is _S.DELETING and before is not None)):
            self._leave(update, name, now)
            return
        if state is _S.DELETING or (state is _S.SPECULATIVE and before not in (None, "Provisioning")):
            self._forget(name)
            return
        self._left.pop(name, None)
        if state is _S.FAILED and update.last_error in (GONE, NO_LONGER_MEANT):
            self._left[name] = now
        phase = _ON_THE_WAY[state]
        if state is _S.CONFIGURED and self._is_ready(update.machine_id):
            phase = "Ready"
        self._mirror.want(self._object(update, name, phase))

    def _leave(self, update: pb.NodeStateUpdate, name: str, now: float) -> None:
        if name not in self._left:
            self._left[name] = now
            self._mirror.want(self._object(update, name, "Drained"))

    def _forget(self, name: str) -> None:
        self._left.pop(name, None)
        self._updates.pop(name, None)
        self._mirror.drop(name)

    def _object(self, update: pb.NodeStateUpdate, name: str, phase: NodePhase) -> UpcomingNode:
        former = self._former(name)
        node = update.node_name or update.machine_id
        status = None if former is None else former.status
        goes_on = status is not None and (status.phase == phase or status.phase not in ("Drained", "Failed"))
        began = status.provisioning_start_time if status is not None and goes_on else None
        has_node = phase in _IN
        spec = UpcomingNodeSpec(
            resources=dict(update.resources.resources),
            labels=dict(update.labels),
            taints=tuple(
                Taint(key=each.key, effect=_EFFECTS[each.effect], value=each.value)
                for each in update.taints
                if each.effect in _EFFECTS
            ),
        )
        if former is not None and not spec.resources:
            # A machine that is gone is described without resources: what was said of them before stays.
            spec = msgspec.structs.replace(spec, resources=former.spec.resources)
        return UpcomingNode(
            metadata=ObjectMeta(name=name, labels={MANAGED_BY: OPERATOR}, annotations={MACHINE: update.machine_id}),
            spec=spec,
            status=UpcomingNodeStatus(
                phase=phase,
                node_ref=NodeRef(node) if has_node else None,
                provider_id=update.provider_id,
                last_error=update.last_error if phase == "Failed" else "",
                provisioning_start_time=began or self._wall().replace(microsecond=0),
            ),
        )

    def _former(self, name: str) -> UpcomingNode | None:
        return self._mirror.wanted(name) or self._mirror.actual(name)

    def _phase(self, name: str) -> NodePhase | None:
        former = self._former(name)
        return None if former is None or former.status is None else former.status.phase
