"""The cluster's machines as the shard last described them, and which Node is which machine's."""

from collections.abc import Iterator, Mapping

import msgspec
import structlog

from bigfleet.kube.objects.kinds import Node
from bigfleet.model.machine import MachineState
from bigfleet.operator.node_life.views import NodesSeen
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_log = structlog.get_logger("bigfleet.operator")

_STATES = {state.value: state for state in MachineState}
UNBOUND = frozenset({MachineState.IDLE, MachineState.DELETING, MachineState.SPECULATIVE})
"""A machine in one of these states is bound to no cluster, so a Node of it is left from an earlier binding."""
BOUND = frozenset(MachineState) - UNBOUND - {MachineState.CREATING}
"""A machine in one of these states may be bound to this cluster, so its Node should be there."""


class KnownMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as the shard described it to this operator. Not to be confused with a provider's whole record of it."""

    id: str
    state: MachineState
    #: What the shard calls the machine's Node.
    node_name: str
    #: What the Node's spec.providerID must be; empty where that is not known yet.
    provider_id: str = ""
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()


class KnownMachines:
    """The machines that the shard has described, by id, by the name of the Node and by providerID."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._machines: dict[str, KnownMachine] = {}
        #: Ids by the Nodes' names.
        self._of_node: dict[str, str] = {}
        #: Ids by providerID.
        self._of_host: dict[str, str] = {}
        #: Ids that this session has named.
        self._named: set[str] = set()

    def opened(self) -> None:
        """A session begins. What an earlier session said is kept, but may be out of date."""
        self._named.clear()

    def heard(self, update: pb.NodeStateUpdate) -> KnownMachine | None:
        """The shard describes a machine. Returns None where it is not this cluster's, or in no known state."""
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
        """Forget the machine."""
        self._named.discard(machine_id)
        if (machine := self._machines.pop(machine_id, None)) is not None:
            if self._of_node.get(machine.node_name) == machine_id:
                del self._of_node[machine.node_name]
            if self._of_host.get(machine.provider_id) == machine_id:
                del self._of_host[machine.provider_id]

    def get(self, machine_id: str) -> KnownMachine | None:
        """The machine with that id."""
        return self._machines.get(machine_id)

    def __iter__(self) -> Iterator[KnownMachine]:
        """All machines."""
        return iter(list(self._machines.values()))

    def is_named(self, machine_id: str) -> bool:
        """Whether this session has named the machine."""
        return machine_id in self._named

    def by_node_name(self, name: str) -> KnownMachine | None:
        """The machine whose Node the shard calls by that name."""
        return self._machines.get(self._of_node.get(name, ""))

    def of(self, node: Node) -> KnownMachine | None:
        """The machine whose Node this is."""
        machine = self._machines.get(self._of_host.get(node.spec.provider_id, "")) or self.by_node_name(
            node.metadata.name
        )
        return machine if machine is not None and belongs(node, machine) else None


def belongs(node: Node, machine: KnownMachine) -> bool:
    """Whether the Node is the machine's: by providerID where both have one, else by name."""
    if node.spec.provider_id and machine.provider_id:
        return node.spec.provider_id == machine.provider_id
    return node.metadata.name == machine.node_name


def find_node(nodes: NodesSeen, name: str, machine: KnownMachine | None) -> Node | None:
    """The Node that the shard calls `name`: by its machine's providerID where that is known, else by name."""
    if machine is not None and machine.provider_id and (node := nodes.by_provider_id(machine.provider_id)) is not None:
        return node
    node = nodes.get(name)
    return node if node is not None and (machine is None or belongs(node, machine)) else None
