"""Tells the shard whether each machine's Node has come up in the present binding (protocol rules 16, 22).

A Node counts if it was made after the machine's bootstrap request. The time of the request is that of its token's
Secret, by the API server's clock, so an operator that restarts knows it too. Where there is no Secret, any Node counts:
a request is answered only once the Node of an earlier binding is gone, and the Secret stays until the new Node is Ready
or the token expires.
"""

from collections.abc import Callable
from datetime import datetime

from bigfleet.kube.objects.kinds import Node
from bigfleet.operator.node_life.machines import BOUND, KnownMachine, KnownMachines, find_node
from bigfleet.operator.node_life.views import NodesSeen
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

Frames = list[pb.OperatorMessage]

_ABSENT, _NOT_READY, _READY = (
    pb.NodeReadyReport.STATE_ABSENT,
    pb.NodeReadyReport.STATE_NOT_READY,
    pb.NodeReadyReport.STATE_READY,
)


def is_ready(node: Node) -> bool:
    """Whether the Node's kubelet says that it is Ready."""
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


class NodeReadyReports:
    """Reports on the Node of each machine that this session has named: once, and whenever its state changes.

    `asked_at` says when a machine's bootstrap request came, if that is known. `became_ready` is called with a machine's
    id when its Node has become Ready.
    """

    def __init__(
        self,
        machines: KnownMachines,
        nodes: NodesSeen,
        asked_at: Callable[[str], datetime | None],
        became_ready: Callable[[str], None],
    ) -> None:
        self._machines, self._nodes, self._asked_at, self._became_ready = machines, nodes, asked_at, became_ready
        #: By machine, what this session was told last.
        self._told: dict[str, pb.NodeReadyReport.State.ValueType] = {}
        #: Machines whose Node has been Ready in the present binding.
        self._latched: set[str] = set()
        #: Machines by the name of their Node, where the shard calls that Node otherwise.
        self._machine_of: dict[str, str] = {}

    def opened(self) -> None:
        """A session begins: nothing has been reported in it."""
        self._told.clear()

    def asked(self, machine_id: str) -> None:
        """A bootstrap request has come for the machine: a new binding begins."""
        self._latched.discard(machine_id)
        self._told.pop(machine_id, None)

    def heard(self, machine: KnownMachine) -> Frames:
        """The shard has described a machine. Returns the frames to send."""
        if machine.state not in BOUND:
            self.asked(machine.id)
            return []
        return self._report(machine)

    def node_changed(self, name: str) -> Frames:
        """The Node of that name has come, gone or changed. Returns the frames to send."""
        node = self._nodes.get(name)
        machine = None if node is None else self._machines.of(node)
        if machine is None:
            machine = self._machines.get(self._machine_of.pop(name, "")) or self._machines.by_node_name(name)
        if machine is None or machine.state not in BOUND:
            return []
        return self._report(machine)

    def machine_of(self, node_name: str) -> KnownMachine | None:
        """The machine whose Node was last seen under that name, where the shard calls it otherwise."""
        return self._machines.get(self._machine_of.get(node_name, ""))

    def state(self, machine: KnownMachine) -> pb.NodeReadyReport.State.ValueType:
        """How far the machine's Node has come. Within a binding, a Node that was Ready stays so until it is gone."""
        node = find_node(self._nodes, machine.node_name, machine)
        if node is None:
            self._latched.discard(machine.id)
            return _ABSENT
        if machine.id in self._latched:
            return _READY
        if self._is_from_before(node, machine.id):
            return _ABSENT
        if node.metadata.name != machine.node_name:
            self._machine_of[node.metadata.name] = machine.id
        if not is_ready(node):
            return _NOT_READY
        self._latched.add(machine.id)
        self._became_ready(machine.id)
        return _READY

    def _is_from_before(self, node: Node, machine_id: str) -> bool:
        asked, made = self._asked_at(machine_id), node.metadata.creation_timestamp
        return asked is not None and made is not None and made < asked

    def _report(self, machine: KnownMachine) -> Frames:
        state = self.state(machine)
        if not self._machines.is_named(machine.id) or self._told.get(machine.id) == state:
            return []
        self._told[machine.id] = state
        node = None if state == _ABSENT else find_node(self._nodes, machine.node_name, machine)
        provider_id = "" if node is None else node.spec.provider_id
        return [
            pb.OperatorMessage(
                node_ready=pb.NodeReadyReport(
                    machine_id=machine.id, node_name=machine.node_name, provider_id=provider_id, state=state
                )
            )
        ]
