"""What sessions and actions ask the rest of the shard: whose a thing is, who is connected, how a machine stands."""

import uuid
from typing import TYPE_CHECKING

from bigfleet.model.machine import Machine
from bigfleet.shard.demand.table import AWAY_SECONDS
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.execution.effects import Instruct
from bigfleet.shard.sessions.session import Standing, Thing
from bigfleet.shard.supply.stamps import Binding, from_metadata
from bigfleet.shard.supply.table import node_name
from bigfleet.wire.hello import NODE_DRAINED, NODE_READY

if TYPE_CHECKING:
    from bigfleet.shard.core.parts import State


class Books:
    """Answers from the core's parts, and which request or instruction belongs to which cluster and machine."""

    def __init__(self, state: "State") -> None:
        self._state = state
        self._requests: dict[str, tuple[str, str]] = {}
        self._request_of: dict[str, str] = {}
        self._instructions: dict[str, tuple[str, str]] = {}

    # What was asked of operators.

    def kept(self, commitment: Commitment) -> None:
        """A commitment stands like this now; a request that it had and has no more was answered or withdrawn."""
        self._requests.pop(self._request_of.pop(commitment.machine, ""), None)
        if commitment.request_id:
            self._requests[commitment.request_id] = commitment.cluster, commitment.machine
            self._request_of[commitment.machine] = commitment.request_id
        if commitment.instruction_id:
            self._instructions[commitment.instruction_id] = commitment.leaves, commitment.machine

    def ended(self, commitment: Commitment) -> None:
        """A commitment is no more."""
        self._requests.pop(self._request_of.pop(commitment.machine, ""), None)
        self._instructions.pop(commitment.instruction_id, None)

    def instructed(self, told: Instruct) -> None:
        """An operator is told to empty a node."""
        self._instructions[told.instruction_id] = told.cluster, told.machine

    def withdrawn(self, instruction_id: str) -> None:
        """An instruction stands no more."""
        self._instructions.pop(instruction_id, None)

    def behind_request(self, request_id: str) -> Commitment | None:
        """The commitment that waits for the request's answer."""
        _, machine_id = self._requests.get(request_id, ("", ""))
        commitment = self._state.execute.get(machine_id)
        return commitment if commitment is not None and commitment.request_id == request_id else None

    # For sessions.

    def elsewhere(self, _cluster: str) -> str:
        """Alone, a shard has every cluster."""
        return ""

    def standing(self, cluster: str, thing: Thing, name: str) -> Standing:
        """Whose the thing of that id or name is."""
        match thing:
            case Thing.REQUEST | Thing.INSTRUCTION:
                asked = self._requests if thing is Thing.REQUEST else self._instructions
                owner, _ = asked.get(name, ("", ""))
                return Standing.UNKNOWN if not owner else Standing.OURS if owner == cluster else Standing.FOREIGN
            case Thing.MACHINE:
                return self._of_machine(cluster, self._state.supply.find(name))
            case Thing.NODE:
                return self._of_machine(cluster, self._state.supply.by_node(name))

    def stands(self, instruction: str, node: str) -> bool:
        """Whether the instruction lives and still wants that node emptied."""
        _, machine_id = self._instructions.get(instruction, ("", ""))
        machine = self._state.supply.find(machine_id)
        return machine is not None and node_name(machine) == node

    def _of_machine(self, cluster: str, machine: Machine | None) -> Standing:
        if machine is None:
            return Standing.UNKNOWN
        holdings = self._state.holdings
        clusters = holdings.clusters(machine.id)
        if cluster in clusters:
            return Standing.OURS
        return Standing.UNKNOWN if not clusters or holdings.has_left(machine.id, cluster) else Standing.FOREIGN

    # For actions and recovery.

    def machine(self, machine_id: str) -> Machine | None:
        """The machine as last seen."""
        return self._state.supply.find(machine_id)

    def provider(self, machine_id: str) -> str:
        """Whose it is."""
        return self._state.supply.provider_of(machine_id) or ""

    def holds(self, commitment: Commitment, machine: Machine) -> bool:
        """Whether the machine is bound as the commitment wants it."""
        verdict = from_metadata(machine.shard_metadata)
        if not isinstance(verdict, Binding) or verdict.shard_id != self._state.settings.shard_id:
            return False
        return verdict.stamp == commitment.stamp and machine.cluster == commitment.cluster

    def has_session(self, cluster_id: str) -> bool:
        """Whether the cluster's operator is connected."""
        return self._state.demand.has_session(cluster_id)

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        """Whether the operator has been away so long that its machines are drained without it."""
        return self._state.demand.away_seconds(cluster_id, now) >= AWAY_SECONDS

    def reports_drained(self, cluster_id: str) -> bool:
        """Whether that operator says when a node is empty."""
        return self._state.talk.has_feature(cluster_id, NODE_DRAINED)

    def node_ready(self, machine_id: str) -> bool:
        """Whether the machine's Node was seen Ready in this binding; where nobody tells, it may be."""
        machine = self._state.supply.find(machine_id)
        if machine is not None and machine.cluster and not self._state.talk.has_feature(machine.cluster, NODE_READY):
            return True
        return self._state.readiness.seen_ready(machine_id)

    def committed(self, machine_id: str) -> bool:
        """Whether an action on the machine is under way."""
        return self._state.execute.get(machine_id) is not None

    def usable(self, machine_id: str) -> bool:
        """Whether it may be acted on."""
        return self._state.supply.usable(machine_id)

    def may_act(self) -> bool:
        """Whether the local file can be written and nobody else is this shard."""
        return self._state.durable and not self._state.stood_down

    def new_id(self) -> str:
        """A fresh id for a request or an instruction."""
        return uuid.uuid4().hex
