"""What the operator of one cluster decides: frames and time in, frames out (protocol rules 13-22). No I/O, no clock.

What must survive the operator is kept in the world: nodes and their cordons. The operator's own memory is kept here,
and most of it is said anew in each session. The operator reports only on machines that the shard has named since the
connect, because any other machine may belong to another cluster by now.
"""

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from bigfleet.model.demand.need import Rollup
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import supply
from bigfleet.sim.clusters.drains import Drains, Frames
from bigfleet.sim.clusters.events import EventKind, Log
from bigfleet.sim.clusters.habits import Habits
from bigfleet.sim.clusters.timers import Timers
from bigfleet.sim.clusters.world import World
from bigfleet.wire.hello import NODE_DRAINED, NODE_READY, PROTOCOL_VERSION
from bigfleet.wire.needs import rollup_to_wire
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_S = MachineState
_STATES = {state.value: state for state in _S}
_BOUND = frozenset({_S.CONFIGURING, _S.CONFIGURED, _S.DRAINING, _S.FAILED})
_GONE = frozenset({_S.IDLE, _S.DELETING, _S.SPECULATIVE})
_ABSENT, _NOT_READY, _READY = (
    pb.NodeReadyReport.STATE_ABSENT,
    pb.NodeReadyReport.STATE_NOT_READY,
    pb.NodeReadyReport.STATE_READY,
)
# How many unanswered roll-ups are remembered; a shard that acknowledges none must not fill the memory.
_MOST_SENT = 1000


class ClusterMachine:
    """A machine as the shard last described it.

    `session` is the last session that named it, `told` the readiness that was last reported there, and `joining` says
    that the next step of its Node is on a timer.
    """

    __slots__ = ("id", "joining", "labels", "node", "provider_id", "resources", "session", "state", "told")

    def __init__(self, machine_id: str) -> None:
        self.id, self.state, self.node, self.provider_id = machine_id, _S.SPECULATIVE, machine_id, ""
        self.labels: dict[str, str] = {}
        self.resources: dict[str, str] = {}
        self.session = 0
        self.told = pb.NodeReadyReport.STATE_UNSPECIFIED
        self.joining = False


class Cluster:
    """The decisions of one operator. Its owner tells it what happens, sends the frames returned, and ticks when `due`.

    `habits` may be replaced at any time, the features in them only between sessions.
    """

    def __init__(
        self, cluster_id: str, world: World, habits: Habits | None = None, stamp: Callable[[], int] = time.time_ns
    ) -> None:
        self.id, self.world, self.habits = cluster_id, world, habits or Habits()
        self.log = Log()
        self.machines: dict[str, ClusterMachine] = {}
        self.available: dict[str, pb.AvailableCapacityUpdate] = {}
        self.connected = False
        self.acknowledged = -1
        """The version of the world's demand that the shard last took."""
        self.refusal = ""
        """Why the shard did not take the last roll-up that it answered; empty if it took it."""
        self.short = self.epoch = 0
        """How many rows the shard's last decision left short, and the epoch of the shard that said so."""
        self._timers: Timers[Frames] = Timers()
        self._drains = Drains(world, self.log, self._timers)
        self._stamp, self._stamped = stamp, 0
        self._session = 0
        self._sent: dict[str, int] = {}
        """The unanswered roll-ups of this session: which version of the demand each holds, by its timestamp."""
        self._said = -1
        """The version of the demand in the last roll-up."""
        self._next_rollup = 0.0
        self._answering: set[str] = set()
        """The bootstrap requests that are to be answered later."""

    def states(self) -> Counter[MachineState]:
        """How many machines are in each state."""
        return Counter(machine.state for machine in self.machines.values())

    # The session.

    def opened(self, now: float) -> Frames:
        """A stream has opened. Returns its first frames."""
        self.connected = True
        self._session += 1
        self._sent.clear()
        self._drains.reports = NODE_DRAINED in self.habits.features
        self.log.note(now, EventKind.CONNECTED, self.id)
        self._timers.at(now + self.habits.forget_seconds, self._sweep, self._session)
        hello = pb.Hello(cluster_id=self.id, protocol_version=PROTOCOL_VERSION, features=self.habits.features)
        frames = [pb.OperatorMessage(hello=hello)]
        cordoned = self._drains.resumed(now)
        if cordoned and self._is_ours:
            frames.append(pb.OperatorMessage(cordoned_nodes=pb.CordonedNodes(nodes=cordoned)))
        return [*frames, self._roll_up(now)]

    def closed(self, reason: str, now: float) -> None:
        """The stream has ended."""
        self.connected = False
        self.log.note(now, EventKind.DISCONNECTED, self.id, reason)

    def received(self, frame: pb.ShardMessage, now: float) -> Frames:
        """A frame has arrived. Returns the answers; a frame of a kind that this operator does not know is ignored."""
        match frame.WhichOneof("payload"):
            case "ack":
                self._acknowledged(frame.ack, now)
            case "bootstrap_request":
                return self._asked(frame.bootstrap_request, now)
            case "reclaim_instruction":
                if not self._is_ours:
                    frame.reclaim_instruction.ClearField("kind")
                return self._drains.instructed(frame.reclaim_instruction, now)
            case "node_state_update":
                return self._heard(frame.node_state_update, now)
            case "available_capacity":
                self.available[frame.available_capacity.supersedes_key] = frame.available_capacity
            case "reclaim_withdrawn" if self._is_ours:
                self._drains.withdrawn(frame.reclaim_withdrawn, now)
            case "bootstrap_withdrawn" if self._is_ours:
                self.log.note(now, EventKind.BLOB_WITHDRAWN, frame.bootstrap_withdrawn.request_id)
                self._answering.discard(frame.bootstrap_withdrawn.request_id)
        return []

    # Time.

    def due(self) -> float | None:
        """When the next tick is due; None while there is nothing to wait for."""
        first = self._timers.next()
        if not self.connected:
            return first
        rollup = self._next_rollup if self._said == self.world.version else 0.0
        return rollup if first is None else min(first, rollup)

    def tick(self, now: float) -> Frames:
        """Time has passed, or the world has changed. Returns what to send.

        Without a session nothing is sent, since the next session is told everything anew.
        """
        frames = [frame for said in self._timers.run(now) for frame in said]
        if not self.connected:
            return []
        if now >= self._next_rollup or self._said != self.world.version:
            frames.append(self._roll_up(now))
        return frames

    # Roll-ups.

    @property
    def _is_ours(self) -> bool:
        return bool(self.habits.features)

    def _roll_up(self, now: float) -> pb.OperatorMessage:
        world = self.world
        self._stamped = max(self._stamp(), self._stamped + 1)
        self._said, self._next_rollup = world.version, now + self.habits.rollup_seconds
        if len(self._sent) >= _MOST_SENT:
            del self._sent[next(iter(self._sent))]
        self._sent[str(self._stamped)] = world.version
        rollup = Rollup(cluster_id=self.id, timestamp_unix_nanos=self._stamped, needs=world.needs())
        if self._is_ours:
            rollup = msgspec.structs.replace(
                rollup,
                daemons=world.daemons,
                empty_nodes=world.empty_nodes(),
                unrequested_nodes=world.unrequested_nodes(),
                owners=world.owners(),
            )
        message = rollup_to_wire(rollup)
        if not self._is_ours:
            for need in message.needs:
                need.ClearField("max_per_machine")
        self.log.note(now, EventKind.ROLLED_UP)
        return pb.OperatorMessage(rollup=message)

    def _acknowledged(self, ack: pb.Acknowledgement, now: float) -> None:
        version = self._sent.pop(ack.echo, None)
        self.epoch, self.short = ack.shard_epoch, len(ack.short_needs)
        self.refusal = "" if ack.echo else ack.rejection_reason or "no reason was given"
        if version is not None:
            self.acknowledged = max(self.acknowledged, version)
            self.log.note(now, EventKind.ACKNOWLEDGED)
        elif self.refusal:
            self.log.note(now, EventKind.REFUSED, self.id, self.refusal)
        else:
            self.log.note(now, EventKind.STRAY, ack.echo, "acknowledges what was not sent, or twice")

    # Machines.

    def _heard(self, update: pb.NodeStateUpdate, now: float) -> Frames:
        state = _STATES.get(update.state)
        if update.cluster_id != self.id or state is None:
            self.log.note(now, EventKind.STRAY, update.machine_id, f"state {update.state} for {update.cluster_id!r}")
            return []
        self.log.note(now, EventKind.MACHINE_SEEN)
        machine = self.machines.setdefault(update.machine_id, ClusterMachine(update.machine_id))
        before, machine.state = machine.state, state
        machine.node, machine.provider_id = update.node_name or update.machine_id, update.provider_id
        machine.labels, machine.resources = dict(update.labels), dict(update.resources.resources)
        if machine.session != self._session:
            machine.session, machine.told = self._session, pb.NodeReadyReport.STATE_UNSPECIFIED
        has_node = machine.node in self.world.nodes
        if state is _S.FAILED:
            self.log.note(now, EventKind.MACHINE_FAILED, machine.id, update.last_error)
        if (state in _GONE and (has_node or before in _BOUND)) or (
            state is _S.FAILED and not has_node and before not in _BOUND
        ):
            self._forget(machine, now)
            return []
        if has_node:
            self.world.leave(machine.node, state in (_S.DRAINING, _S.FAILED))
        if state not in _BOUND:
            return []
        return [*self._report(machine), *self._join(machine, now)]

    def _join(self, machine: ClusterMachine, now: float) -> Frames:
        """Begin the next step of its Node (registered, then Ready), unless that step is on a timer already."""
        readiness = self._readiness(machine)
        if machine.joining or machine.state is not _S.CONFIGURED or readiness == _READY:
            return []
        absent = readiness == _ABSENT
        wait = self.habits.register_seconds if absent else self.habits.ready_seconds
        if wait is None:
            return []
        machine.joining = True
        step = self._registered if absent else self._became_ready
        if wait:
            self._timers.at(now + wait, step, machine)
            return []
        return step(now, machine)

    def _registered(self, now: float, machine: ClusterMachine) -> Frames:
        machine.joining = False
        if self.machines.get(machine.id) is not machine or machine.state is not _S.CONFIGURED:
            return []
        self.world.register(machine.node, machine.provider_id, machine.labels, supply(machine.resources))
        self.log.note(now, EventKind.NODE_JOINED, machine.node)
        return [*self._report(machine), *self._join(machine, now)]

    def _became_ready(self, now: float, machine: ClusterMachine) -> Frames:
        machine.joining = False
        if self.machines.get(machine.id) is not machine or self._readiness(machine) == _ABSENT:
            return []
        self.world.become_ready(machine.node)
        self.log.note(now, EventKind.NODE_READY, machine.node)
        return self._report(machine)

    def _readiness(self, machine: ClusterMachine) -> pb.NodeReadyReport.State.ValueType:
        node = self.world.nodes.get(machine.node)
        if node is None or node.provider_id != machine.provider_id:
            return _ABSENT
        return _READY if node.ready else _NOT_READY

    def _report(self, machine: ClusterMachine) -> Frames:
        """Report how far its Node has come, unless this session was told already."""
        state = self._readiness(machine)
        if NODE_READY not in self.habits.features or machine.session != self._session or machine.told == state:
            return []
        machine.told = state
        provider_id = "" if state == _ABSENT else machine.provider_id
        report = pb.NodeReadyReport(machine_id=machine.id, node_name=machine.node, provider_id=provider_id, state=state)
        return [pb.OperatorMessage(node_ready=report)]

    def _forget(self, machine: ClusterMachine, now: float) -> None:
        del self.machines[machine.id]
        self._remove(machine.node, now)

    def _remove(self, node: str, now: float) -> None:
        if node in self.world.nodes:
            self.world.remove(node)
            self.log.note(now, EventKind.NODE_GONE, node)

    def _sweep(self, now: float, session: int) -> Frames:
        if session == self._session and self.connected:
            for machine in [each for each in self.machines.values() if each.session != session]:
                self._forget(machine, now)
            for node in self.world.nodes.keys() - {machine.node for machine in self.machines.values()}:
                self._remove(node, now)
        return []

    # Bootstrap.

    def _asked(self, request: pb.BootstrapRequest, now: float) -> Frames:
        if request.cluster_id != self.id:
            self.log.note(now, EventKind.STRAY, request.request_id, f"a bootstrap request for {request.cluster_id!r}")
            return []
        self.log.note(now, EventKind.BLOB_ASKED, request.request_id)
        # The machine is Idle, so a Node of that name is left from an earlier binding (protocol rule 22).
        self._remove(request.node_name, now)
        blob = self.habits.blob
        if not blob.answers:
            return []
        self._answering.add(request.request_id)
        if blob.delay_seconds:
            self._timers.at(now + blob.delay_seconds, self._answer, request.request_id)
            return []
        return self._answer(now, request.request_id)

    def _answer(self, now: float, request_id: str) -> Frames:
        if request_id not in self._answering:
            return []
        self._answering.discard(request_id)
        blob = self.habits.blob
        answer = pb.BootstrapBlobResponse(request_id=request_id, ttl_seconds=blob.ttl_seconds, error=blob.error)
        if not blob.error:
            answer.user_data = f"#!/bin/sh\n# joins {self.id} for {request_id}\n".encode()
        self.log.note(now, EventKind.BLOB_SENT, request_id)
        return [pb.OperatorMessage(bootstrap_response=answer)] * blob.answers
