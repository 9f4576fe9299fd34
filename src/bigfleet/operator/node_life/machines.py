"""The cluster's machines as the shard last described them, and their Nodes among those that the cluster has."""

from collections.abc import Iterator, Mapping
from typing import Protocol

import msgspec
import structlog

from bigfleet.kube.objects.kinds import Node
from bigfleet.model.machine import MachineState
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_log = structlog.get_logger("bigfleet.operator")

_STATES = {state.value: state for state in MachineState}
GONE = frozenset({MachineState.IDLE, MachineState.DELETING, MachineState.SPECULATIVE})
"""A machine in these states is bound to nobody, so a Node of it is left from an earlier binding."""
BOUND = frozenset(MachineState) - GONE - {MachineState.CREATING}
"""In these it may be bound to this cluster, and its Node is to be there."""


class NodesSeen(Protocol):
    """The cluster's Nodes as a watch shows them."""

    def get(self, name: str) -> Node | None:
        """The Node of that name."""
        ...

    def by_provider_id(self, provider_id: str) -> Node | None:
        """The Node with that spec.providerID, which is not empty."""
        ...

    def __iter__(self) -> Iterator[Node]:
        """All of them."""
        ...


class KnownMachine(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. `node_name` is what the shard calls its Node."""

    id: str
    state: MachineState
    node_name: str
    provider_id: str = ""
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()


class KnownMachines:
    """Machines by their ids and their Nodes' names."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._machines: dict[str, KnownMachine] = {}
        self._of_node: dict[str, str] = {}
        self._of_host: dict[str, str] = {}
        self._named: set[str] = set()

    def opened(self) -> None:
        """A session begins: what an earlier one said is known, but need not hold any more."""
        self._named.clear()

    def heard(self, update: pb.NodeStateUpdate) -> KnownMachine | None:
        """The shard says how a machine stands; None where it says nothing that concerns this cluster."""
        state = _STATES.get(update.state)
        if update.cluster_id != self._cluster_id or state is None or not update.machine_id:
            _log.warning("node_state_strayed", machine=update.machine_id, of=update.cluster_id, state=update.state)
            return None
        machine = KnownMachine(
            id=update.machine_id,
            state=state,
            node_name=update.node_name or update.machine_id,
            provider_id=update.provider_id,
            labels=dict(update.labels),
            taints=tuple({"key": each.key, "value": each.value, "effect": each.effect} for each in update.taints),
        )
        self.forget(machine.id)
        self._machines[machine.id] = machine
        self._of_node[machine.node_name] = machine.id
        if machine.provider_id:
            self._of_host[machine.provider_id] = machine.id
        self._named.add(machine.id)
        return machine

    def forget(self, machine_id: str) -> None:
        """Nobody needs to know of it any more."""
        self._named.discard(machine_id)
        if (machine := self._machines.pop(machine_id, None)) is not None:
            if self._of_node.get(machine.node_name) == machine_id:
                del self._of_node[machine.node_name]
            if self._of_host.get(machine.provider_id) == machine_id:
                del self._of_host[machine.provider_id]

    def get(self, machine_id: str) -> KnownMachine | None:
        """The machine of that id."""
        return self._machines.get(machine_id)

    def __iter__(self) -> Iterator[KnownMachine]:
        """All of them."""
        return iter(list(self._machines.values()))

    def is_named(self, machine_id: str) -> bool:
        """Whether this session has named it."""
        return machine_id in self._named

    def by_node_name(self, name: str) -> KnownMachine | None:
        """The machine whose Node the shard calls so."""
        return self._machines.get(self._of_node.get(name, ""))

    def of(self, node: Node) -> KnownMachine | None:
        """The machine whose Node this is."""
        machine = self._machines.get(self._of_host.get(node.spec.provider_id, "")) or self.by_node_name(
            node.metadata.name
        )
        return machine if machine is not None and belongs(node, machine) else None


def belongs(node: Node, machine: KnownMachine) -> bool:
    """Whether the Node is the machine's: by provider id where both have one, else by name."""
    if node.spec.provider_id and machine.provider_id:
        return node.spec.provider_id == machine.provider_id
    return node.metadata.name == machine.node_name


def find_node(nodes: NodesSeen, name: str, machine: KnownMachine | None) -> Node | None:
    """The Node that the shard calls so: by its machine's provider id where that is known, else by name."""
    if machine is not None and machine.provider_id and (node := nodes.by_provider_id(machine.provider_id)) is not None:
        return node
    node = nodes.get(name)
    return node if node is not None and (machine is None or belongs(node, machine)) else None
