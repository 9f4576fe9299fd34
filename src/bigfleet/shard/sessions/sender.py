"""What goes out to operators: frames into outboxes. On a connect, everything that still stands goes out again."""

from collections.abc import Callable, Iterable

from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.profile import Requirement
from bigfleet.model.machine import Machine, MachineState
from bigfleet.shard.demand.table import Demand
from bigfleet.shard.execution.effects import Instruct, RequestBlob
from bigfleet.shard.sessions import messages
from bigfleet.shard.sessions.available_capacity import AvailableCapacity
from bigfleet.shard.sessions.outbox import Outbox
from bigfleet.shard.supply.machine_index import MachineIndex
from bigfleet.shard.supply.table import Supply
from bigfleet.wire.parting import GONE, NO_LONGER_MEANT
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_UNBOUND = frozenset({MachineState.IDLE, MachineState.DELETING, MachineState.SPECULATIVE})


class Sender:
    """The outboxes of all clusters, and what each operator can do."""

    def __init__(
        self,
        supply: Supply,
        demand: Demand,
        machine_index: MachineIndex,
        available: AvailableCapacity,
        wake: Callable[[str], None],
    ) -> None:
        """`wake` is told the cluster whose outbox has something to send."""
        self._supply, self._demand, self._machine_index, self._available = supply, demand, machine_index, available
        self._wake = wake
        self._features: dict[str, frozenset[str]] = {}
        self.outboxes: dict[str, Outbox] = {}

    def has_feature(self, cluster: str, feature: str) -> bool:
        """Whether the cluster's operator named the feature in its Hello."""
        return feature in self._features.get(cluster, frozenset())

    def connected(
        self, cluster: str, features: frozenset[str], asked: Iterable[RequestBlob | Instruct], now: float
    ) -> None:
        """An operator has connected: send it again what it was asked, and the states of its machines."""
        self._features[cluster] = features
        instructions: list[pb.ReclaimInstruction] = []
        requests: list[pb.BootstrapRequest] = []
        for each in asked:
            machine = self._supply.find(each.machine)
            if machine is None:
                continue
            if isinstance(each, Instruct):
                instructions.append(messages.reclaim_instruction(each, machine))
            else:
                requests.append(self._request(each, machine))
        self._outbox(cluster).connected(instructions, requests, self.states(cluster), now)
        self._wake(cluster)

    def disconnected(self, cluster: str) -> None:
        """The cluster's session is over."""
        self.outboxes[cluster].disconnected()

    def forget(self, cluster: str) -> None:
        """The cluster is no longer known."""
        self._features.pop(cluster, None)
        self.outboxes.pop(cluster, None)

    def states(self, cluster: str) -> list[pb.ShardMessage]:
        """The state of every machine of a cluster, and what the cluster could still have."""
        machines = (self._supply.find(machine_id) for machine_id in sorted(self._machine_index.of(cluster)))
        return [
            *(messages.node_state(each, cluster, _state_for(each, cluster)) for each in machines if each is not None),
            *(pb.ShardMessage(available_capacity=update) for update in self._available.replay(cluster)),
        ]

    def show(self, machine: Machine, cluster: str, now: float) -> None:
        """Tell the cluster the state of one of its machines."""
        if self._demand.has_session(cluster):
            self.send(cluster, messages.node_state(machine, cluster, _state_for(machine, cluster)), now)

    def take_leave(self, last: Machine, cluster: str, *, drained: bool, there: bool, now: float) -> None:
        """Tell the cluster that a machine no longer concerns it: drained, not bound to it after all, or gone."""
        if not self._demand.has_session(cluster):
            return
        if drained:
            # The machine may serve another cluster by now. This one hears only that the drain has ended.
            state = last.state if last.state in _UNBOUND else MachineState.IDLE
            self.send(cluster, messages.node_state(last, cluster, state), now)
        else:
            text = NO_LONGER_MEANT if there else GONE
            self.send(cluster, messages.node_state(last, cluster, MachineState.FAILED, text), now)

    def request(self, asked: RequestBlob, now: float) -> None:
        """Ask for user data."""
        machine = self._supply.find(asked.machine)
        if machine is not None:
            self.send(asked.cluster, pb.ShardMessage(bootstrap_request=self._request(asked, machine)), now)

    def instruct(self, told: Instruct, now: float) -> None:
        """Tell an operator to empty a node."""
        machine = self._supply.find(told.machine)
        if machine is not None:
            frame = pb.ShardMessage(reclaim_instruction=messages.reclaim_instruction(told, machine))
            self.send(told.cluster, frame, now)

    def send(self, cluster: str, frame: pb.ShardMessage, now: float) -> None:
        """Queue a frame for the cluster."""
        self._outbox(cluster).put(frame, now)
        self._wake(cluster)

    def _outbox(self, cluster: str) -> Outbox:
        outbox = self.outboxes.get(cluster)
        if outbox is None:
            outbox = self.outboxes[cluster] = Outbox()
        return outbox

    def _request(self, asked: RequestBlob, machine: Machine) -> pb.BootstrapRequest:
        return messages.bootstrap_request(asked, machine, self._requirements(asked.cluster, asked.stamp.key))

    def _requirements(self, cluster: str, key: NeedKey) -> tuple[Requirement, ...]:
        rollup = self._demand.rollup(cluster)
        needs = () if rollup is None else rollup.needs
        profiles = (need.profile for need in needs if need.profile.fingerprint == key.fingerprint)
        return next((profile.requirements for profile in profiles), ())


def _state_for(machine: Machine, cluster: str) -> MachineState:
    """The machine's state as the cluster sees it: Creating while the machine still serves another cluster."""
    return machine.state if machine.cluster in ("", cluster) else MachineState.CREATING
