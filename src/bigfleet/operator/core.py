"""The heart of the operator: it takes what the watches show and the shard says, and passes it to the parts.

Roll-ups are made here. None is made before every watch has listed everything (protocol rule 24), and none without a
session.
"""

import math
import time
from collections.abc import Callable
from datetime import datetime

import msgspec
import structlog

from bigfleet.kube.objects.kinds import ObjectReference
from bigfleet.kube.objects.names import MACHINE
from bigfleet.kube.recorder import Occurrence
from bigfleet.model.crd import API_VERSION, CapacityRequest
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.request import RequestError
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import ResourceError, demand
from bigfleet.operator.bootstrap.answers import BootstrapAnswers
from bigfleet.operator.mirrors.available_capacity import AvailableCapacities
from bigfleet.operator.mirrors.upcoming_nodes import UpcomingNodes
from bigfleet.operator.node_life.drain_work import DrainWork
from bigfleet.operator.node_life.left_nodes import LeftNodes
from bigfleet.operator.node_life.machines import KnownMachine, KnownMachines, find_node
from bigfleet.operator.node_life.ready_reports import NodeReadyReports, is_ready
from bigfleet.operator.rollup.acknowledge import Acknowledger
from bigfleet.operator.rollup.daemons import Daemons
from bigfleet.operator.rollup.nodes import Nodes
from bigfleet.operator.rollup.pods import Pods
from bigfleet.operator.rollup.requests import Requests, UnacknowledgedRequest
from bigfleet.operator.rollup.rollup import Rollups
from bigfleet.telemetry.metrics import OperatorMetrics
from bigfleet.wire.hello import OPERATOR_FEATURES, PROTOCOL_VERSION
from bigfleet.wire.needs import rollup_to_wire
from bigfleet.wire.parting import GONE
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

EARLY_SECONDS = 1.0
"""Seconds between two roll-ups at least, however urgent the second is."""

# Roll-ups that may wait for an answer; an older one that has none by then will get none.
_MOST_SENT = 8
# A Node that has not been Ready for so long is not expected to become Ready.
_UNREADY_SECONDS = 600.0
# Pods that get an Event when raising their row does not help.
_MOST_TOLD_PODS = 10
_S = MachineState
_IN_FLIGHT = frozenset({_S.CREATING, _S.CONFIGURING, _S.DRAINING})

_log = structlog.get_logger("bigfleet.operator")


class Clocks(msgspec.Struct, frozen=True):
    """The clocks that the operator goes by."""

    #: Monotonic seconds, by which everything is timed.
    now: Callable[[], float]
    #: The time of day, as it is written on objects.
    wall: Callable[[], datetime]
    #: The time of day in nanoseconds, as roll-ups carry it.
    stamp: Callable[[], int]


class _Sent(msgspec.Struct, frozen=True):
    """A roll-up that was sent and not answered yet."""

    #: The requests in it that are to be marked Acknowledged.
    waiting: list[UnacknowledgedRequest]
    #: Its rows.
    keys: frozenset[NeedKey]


class ClusterView:
    """What the watches show, in four sinks. Pods learn from requests which of them have one."""

    def __init__(
        self,
        urgent: Callable[[], None],
        node_changed: Callable[[str], None],
        pods_changed: Callable[[str], None],
        complain: Callable[[CapacityRequest, RequestError], None],
    ) -> None:
        self.requests = Requests(urgent, self._pod_changed, complain)
        self.pods = Pods(self.requests.has_request, pods_changed)
        self.nodes = Nodes(node_changed)
        self.daemons = Daemons()

    def _pod_changed(self, pod_uid: str) -> None:
        self.pods.request_changed(pod_uid)


class Parts(msgspec.Struct, frozen=True):
    """The parts of the operator that act on what the shard says."""

    machines: KnownMachines
    ready_reports: NodeReadyReports
    left_nodes: LeftNodes
    bootstrap: BootstrapAnswers
    drains: DrainWork
    upcoming: UpcomingNodes
    available: AvailableCapacities
    acknowledger: Acknowledger


class Core:
    """One cluster's operator. The link calls it as a `SessionListener`; its owner calls `tick` when that is `due`."""

    def __init__(
        self,
        cluster_id: str,
        interval: float,
        clocks: Clocks,
        metrics: OperatorMetrics,
        say_event: Callable[[Occurrence], None],
        stirred: Callable[[], None],
    ) -> None:
        self._cluster_id, self._interval, self._clocks, self._metrics = cluster_id, interval, clocks, metrics
        self._say_event, self._stirred = say_event, stirred
        self.view = ClusterView(self._urgent, self._node_changed, self._pods_changed, self._complain)
        self.rollups = Rollups(
            cluster_id, self.view.requests, self.view.pods, self.view.nodes, self.view.daemons, clocks.stamp
        )
        self._parts: Parts | None = None
        self._say: Callable[[pb.OperatorMessage], None] | None = None
        #: Roll-ups without an answer yet, by their timestamp as a text, oldest first.
        self._sent: dict[str, _Sent] = {}
        #: Rows that the shard has taken and did not leave short; None while it has not answered.
        self._covered: frozenset[NeedKey] | None = None
        #: By machine, since when its Node has not been Ready.
        self._unready_since: dict[str, float] = {}
        #: When the next roll-up is due.
        self._next = math.inf
        #: When the last roll-up was made.
        self._last = -math.inf
        #: Whether every watch has listed everything.
        self._synced = False
        #: Whether the shard refused the last roll-up.
        self._refused = False

    def complete(self, parts: Parts) -> None:
        """Take the parts, which are made after the core because they send through it. Must come before all else."""
        self._parts = parts

    @property
    def parts(self) -> Parts:
        """The parts of the operator that act on what the shard says."""
        assert self._parts is not None, "complete() comes first"  # noqa: S101 - a mistake in the wiring
        return self._parts

    def send(self, frame: pb.OperatorMessage) -> None:
        """Send a frame to the shard. Without a session it is dropped; the next session repeats what matters."""
        if self._say is not None:
            self._say(frame)

    def synced(self) -> None:
        """Every watch has listed everything."""
        self._synced = True
        self.parts.drains.resumed()
        if self._say is not None:
            self._next = self._clocks.now()
            self._stirred()

    # The session.

    def opened(self, say: Callable[[pb.OperatorMessage], None]) -> None:
        """A stream to the shard has been opened. `say` sends a frame on it."""
        now, parts = self._clocks.now(), self.parts
        self._say = say
        self._sent.clear()
        self._covered = None
        self._last = -math.inf
        say(pb.OperatorMessage(hello=_hello(self._cluster_id)))
        parts.machines.opened()
        parts.ready_reports.opened()
        parts.upcoming.opened(now)
        parts.available.opened(now)
        parts.drains.opened()
        parts.left_nodes.opened()
        self._next = now if self._synced else math.inf
        self.tick()

    def closed(self, why: str) -> None:
        """The stream is over, for the reason given."""
        self._say = None
        self._next = math.inf
        parts = self.parts
        parts.bootstrap.closed()
        parts.drains.closed()
        parts.left_nodes.closed()
        parts.upcoming.closed()
        parts.available.closed()
        _log.debug("session_closed", reason=why)

    def received(self, frame: pb.ShardMessage) -> None:
        """A frame has arrived. Frames of an unknown kind are ignored."""
        parts = self.parts
        match frame.WhichOneof("payload"):
            case "ack":
                self._acknowledged(frame.ack)
            case "bootstrap_request":
                parts.bootstrap.asked(frame.bootstrap_request)
            case "bootstrap_withdrawn":
                parts.bootstrap.withdrawn(frame.bootstrap_withdrawn.request_id)
            case "reclaim_instruction":
                parts.drains.instructed(frame.reclaim_instruction)
            case "reclaim_withdrawn":
                parts.drains.withdrawn(frame.reclaim_withdrawn)
            case "node_state_update":
                self._heard(frame.node_state_update)
            case "available_capacity":
                parts.available.heard(frame.available_capacity)
        self._stirred()

    def _heard(self, update: pb.NodeStateUpdate) -> None:
        began, parts = time.perf_counter(), self.parts
        machine = parts.machines.heard(update)
        if machine is None:
            return
        for frame in parts.ready_reports.heard(machine):
            self.send(frame)
        parts.left_nodes.heard(machine)
        if machine.state is _S.FAILED and update.last_error == GONE:
            parts.left_nodes.left(machine.node_name, machine.provider_id)
        parts.drains.heard(machine)
        parts.upcoming.heard(update, self._clocks.now())
        self._metrics.node_state_update_duration.of(machine.state.label).observe(time.perf_counter() - began)

    # Time.

    def due(self) -> float:
        """When the next tick is due."""
        return min(self._next, self.parts.upcoming.due(), self.parts.available.due())

    def tick(self) -> None:
        """Do what is due by now."""
        now = self._clocks.now()
        for each in self.parts.upcoming.tick(now):
            machine_id = each.metadata.annotations.get(MACHINE, "")
            machine = self.parts.machines.get(machine_id)
            self.parts.machines.forget(machine_id)
            if each.status is not None:
                # An object without a reference may still have a Node: one that is not Ready.
                named = machine_id if machine is None else machine.node_name
                name = named if each.status.node_ref is None else each.status.node_ref.name
                self.parts.left_nodes.left(name, each.status.provider_id)
        self.parts.available.tick(now)
        if self._say is not None and now >= self._next:
            self._roll_up(now)

    # Roll-ups.

    def _roll_up(self, now: float) -> None:
        self._next, self._last = now + self._interval, now
        began = time.perf_counter()
        waiting = self.view.requests.waiting()
        for row in self.rollups.judge(self._covered, self._is_moving(now), now):
            self._complain_of_row(row)
        listed = time.perf_counter()
        try:
            needs = self.rollups.needs()
            message = rollup_to_wire(self.rollups.build(needs))
        except ResourceError as error:
            # Sums beyond what a roll-up can carry. The shard keeps the last roll-up that it took.
            _log.error("rollup_impossible", error=str(error))
            return
        built = time.perf_counter()
        if len(self._sent) >= _MOST_SENT:
            del self._sent[next(iter(self._sent))]
        self._sent[str(message.timestamp_unix_nanos)] = _Sent(waiting, frozenset(need.key for need in needs))
        self.send(pb.OperatorMessage(rollup=message))
        self.parts.acknowledger.settle(waiting)
        self._observe(began, listed, built, needs)

    def _observe(self, began: float, listed: float, built: float, needs: tuple[Need, ...]) -> None:
        ended = time.perf_counter()
        phases = self._metrics.rollup_phase_duration
        phases.of("list").observe(listed - began)
        phases.of("build").observe(built - listed)
        phases.of("enqueue").observe(ended - built)
        self._metrics.rollup_duration.observe(ended - began)
        _log.debug("rolled_up", needs=len(needs), requests=len(self.view.requests), seconds=round(ended - began, 4))

    def _acknowledged(self, ack: pb.Acknowledgement) -> None:
        sent = self._sent.pop(ack.echo, None)
        if sent is not None:
            self._covered = sent.keys - {_need_key(key) for key in ack.short_needs}
            self.parts.available.rolled_up({key.fingerprint for key in sent.keys})
            self.parts.acknowledger.acknowledge(sent.waiting)
        elif not ack.echo and not self._refused:
            # Logged once: a shard refuses every roll-up for a minute before it believes that demand has fallen.
            _log.warning("rollup_refused", reason=ack.rejection_reason or "none was given")
        self._refused = not ack.echo
        if self._refused:
            # The answer before this one was not about the present demand.
            self._covered = None

    def _urgent(self) -> None:
        """A request has come that should not wait for the next roll-up."""
        if self._say is not None and self._synced:
            self._next = min(self._next, max(self._clocks.now(), self._last + EARLY_SECONDS))
            self._stirred()

    def _is_moving(self, now: float) -> bool:
        """Whether a machine of the cluster is in flight, or its Node not Ready for less than ten minutes."""
        before, self._unready_since = self._unready_since, {}
        moving = False
        for machine in self.parts.machines:
            if not self.parts.machines.is_named(machine.id):
                # Only an earlier session named this machine; its present state is not known.
                continue
            if machine.state is _S.CONFIGURED and not self._is_ready(machine):
                since = self._unready_since[machine.id] = before.get(machine.id, now)
                moving |= now - since < _UNREADY_SECONDS
            else:
                moving |= machine.state in _IN_FLIGHT
        return moving

    # What the watches show.

    def is_ready(self, machine_id: str) -> bool:
        """Whether the machine's Node exists and is Ready now."""
        machine = self.parts.machines.get(machine_id)
        return machine is not None and self._is_ready(machine)

    def _is_ready(self, machine: KnownMachine) -> bool:
        node = find_node(self.view.nodes, machine.node_name, machine)
        return node is not None and is_ready(node)

    def _node_changed(self, name: str) -> None:
        parts = self.parts
        former = parts.ready_reports.machine_of(name) or parts.machines.by_node_name(name)
        for frame in parts.ready_reports.node_changed(name):
            self.send(frame)
        parts.left_nodes.node_changed(name)
        parts.drains.node_changed(name)
        node = self.view.nodes.get(name)
        machine = former if node is None else parts.machines.of(node)
        if machine is not None:
            parts.upcoming.node_changed(machine.id, self._clocks.now())

    def _pods_changed(self, node: str) -> None:
        self.parts.drains.pods_changed(node)

    # What people are told.

    def _complain(self, request: CapacityRequest, error: RequestError) -> None:
        metadata = request.metadata
        _log.warning("request_refused", request=f"{metadata.namespace}/{metadata.name}", error=str(error))
        about = ObjectReference(
            api_version=API_VERSION,
            kind="CapacityRequest",
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
        )
        note = f"left out of the roll-up: {error.field}: {error.problem}"
        self._say_event(Occurrence(about, "RequestRefused", "RollUp", note))

    def _complain_of_row(self, row: NeedKey) -> None:
        pods = [uid for uid in self.view.pods.unschedulable() if self.view.requests.row_of_pod(uid) == row]
        _log.warning("raising_does_not_help", profile=row.fingerprint, pods=len(pods))
        note = (
            "the fleet says that this pod's capacity is there, and two machines more gave it no place: look at its "
            "scheduling conditions (kubectl describe pod), which a CapacityRequest cannot express"
        )
        for uid in pods[:_MOST_TOLD_PODS]:
            namespace, name = self.view.pods.named(uid)
            about = ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=uid)
            self._say_event(Occurrence(about, "CapacityDoesNotHelp", "RollUp", note))


def _hello(cluster_id: str) -> pb.Hello:
    return pb.Hello(cluster_id=cluster_id, protocol_version=PROTOCOL_VERSION, features=OPERATOR_FEATURES)


def _need_key(key: pb.NeedKey) -> NeedKey:
    try:
        unit = demand(dict(key.min_unit))
    except ResourceError:
        unit = ()
    return NeedKey(key.profile_fingerprint, key.group, unit)
