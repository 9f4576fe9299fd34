"""What sessions, commitments and recoveries ask of the other parts."""

import uuid

from bigfleet.model.machine import Machine
from bigfleet.shard.demand.table import AWAY_SECONDS, Demand
from bigfleet.shard.execution.actuation import Actuation
from bigfleet.shard.execution.commitment import Commitment, Commitments
from bigfleet.shard.execution.operator_requests import OperatorRequests
from bigfleet.shard.sessions.node_readiness import NodeReadiness
from bigfleet.shard.sessions.outputs import Standing, Thing
from bigfleet.shard.sessions.sender import Sender
from bigfleet.shard.supply.machine_index import MachineIndex
from bigfleet.shard.supply.stamps import Binding, from_metadata
from bigfleet.shard.supply.table import Supply, node_name
from bigfleet.wire.hello import NODE_DRAINED, NODE_READY


class Lookups:
    """Answers from the parts. It knows nothing of its own."""

    def __init__(
        self,
        supply: Supply,
        demand: Demand,
        machine_index: MachineIndex,
        requests: OperatorRequests,
        commitments: Commitments,
        sender: Sender,
        readiness: NodeReadiness,
        actuation: Actuation,
    ) -> None:
        self._supply, self._demand, self._machine_index = supply, demand, machine_index
        self._requests, self._commitments = requests, commitments
        self._sender, self._readiness, self._actuation = sender, readiness, actuation

    # For sessions.

    def elsewhere(self, _cluster: str) -> str:
        """The address of the shard that the cluster is bound to: empty, since a shard alone has every cluster."""
        return ""

    def standing(self, cluster: str, thing: Thing, name: str) -> Standing:
        """Whose the thing of that id or name is, seen from the cluster."""
        match thing:
            case Thing.REQUEST | Thing.INSTRUCTION:
                is_request = thing is Thing.REQUEST
                asked = self._requests.request(name) if is_request else self._requests.instruction(name)
                if asked is None:
                    return Standing.UNKNOWN
                return Standing.OURS if asked.cluster == cluster else Standing.FOREIGN
            case Thing.MACHINE:
                return self._of_machine(cluster, self._supply.find(name))
            case Thing.NODE:
                return self._of_machine(cluster, self._supply.by_node(name))

    def stands(self, instruction: str, node: str) -> bool:
        """Whether the instruction stands and is about that node."""
        asked = self._requests.instruction(instruction)
        machine = None if asked is None else self._supply.find(asked.machine)
        return machine is not None and node_name(machine) == node

    def _of_machine(self, cluster: str, machine: Machine | None) -> Standing:
        if machine is None:
            return Standing.UNKNOWN
        clusters = self._machine_index.clusters(machine.id)
        if cluster in clusters:
            return Standing.OURS
        has_left = self._machine_index.has_left(machine.id, cluster)
        return Standing.UNKNOWN if not clusters or has_left else Standing.FOREIGN

    # For commitments and recoveries.

    def machine(self, machine_id: str) -> Machine | None:
        """The machine as last seen."""
        return self._supply.find(machine_id)

    def provider(self, machine_id: str) -> str:
        """The name of the machine's provider."""
        return self._supply.provider_of(machine_id) or ""

    def holds(self, commitment: Commitment, machine: Machine) -> bool:
        """Whether the machine is bound as the commitment wants it: to its cluster, by this shard, under its stamp."""
        reading = from_metadata(machine.shard_metadata)
        if not isinstance(reading, Binding) or reading.shard_id != self._supply.shard_id:
            return False
        return reading.stamp == commitment.stamp and machine.cluster == commitment.cluster

    def has_session(self, cluster_id: str) -> bool:
        """Whether the cluster's operator is connected."""
        return self._demand.has_session(cluster_id)

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        """Whether the operator has been away so long that its machines are drained without it."""
        return self._demand.away_seconds(cluster_id, now) >= AWAY_SECONDS

    def reports_drained(self, cluster_id: str) -> bool:
        """Whether the cluster's operator says when a node is empty."""
        return self._sender.has_feature(cluster_id, NODE_DRAINED)

    def node_ready(self, machine_id: str) -> bool:
        """Whether the machine's Node was seen Ready in this binding, or its operator reports no such thing."""
        machine = self._supply.find(machine_id)
        if machine is not None and machine.cluster and not self._sender.has_feature(machine.cluster, NODE_READY):
            return True
        return self._readiness.seen_ready(machine_id)

    def committed(self, machine_id: str) -> bool:
        """Whether the machine has a commitment."""
        return self._commitments.get(machine_id) is not None

    def usable(self, machine_id: str) -> bool:
        """Whether the machine may be acted on."""
        return self._supply.usable(machine_id)

    def may_act(self) -> bool:
        """Whether the local file can be written and nobody else is this shard."""
        return self._actuation.may_begin

    def new_id(self) -> str:
        """A fresh id for a request or an instruction."""
        return uuid.uuid4().hex
