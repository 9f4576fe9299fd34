"""EventKind happens to a simulated cluster, in plain lines: its session, its demand, its machines, its pods."""

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from bigfleet.cli.ctl.need_words import asks
from bigfleet.cli.wording import conditions, count, plain
from bigfleet.model.demand.need import Need
from bigfleet.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from bigfleet.model.machine import MachineState
from bigfleet.sim.clusters.cluster import ClusterMachine
from bigfleet.sim.clusters.events import Event, EventKind
from bigfleet.sim.clusters.operator import SimOperator
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

T = TypeVar("T")

_NAMED = 4

_STEPS = {
    MachineState.CREATING: "on the way: {} being created",
    MachineState.IDLE: "on the way: {} created",
    MachineState.CONFIGURING: "on the way: {} joining",
}
_NOBODY_NEEDS_IT = "nobody here needs it any more"
_WHY_LEAVING: dict[int, str] = {
    pb.ReclaimInstruction.KIND_RECLAIM: _NOBODY_NEEDS_IT,
    pb.ReclaimInstruction.KIND_PREEMPT: "more important work takes it",
    pb.ReclaimInstruction.KIND_PROVIDER_TAKES_BACK: "the provider takes it back",
}


def row_line(need: Need) -> str:
    """One row of demand."""
    return plain(f"{asks(need)} at priority {need.profile.priority}; machines must have: {conditions(need)}")


class DemandLines:
    """Turns what has happened since the last look into lines.

    Reading takes events and endings away from the operator's logs, so there is one reader of an operator.
    """

    def __init__(self, operator: SimOperator) -> None:
        self._operator, self._cluster = operator, operator.cluster
        self._ending = ""
        """How the last stream ended, as it was told; empty since the last connect."""
        self._is_refused = False
        self._acknowledged = -1
        self._pods = ""
        self._seen: dict[str, tuple[MachineState, str]] = {}
        """Every machine of the last look: its state, and what kind of machine it is."""

    def look(self) -> list[str]:
        """EventKind is new, one line each."""
        events = _drained(self._cluster.log.recent)
        return [
            *self._session(events),
            *self._demand(),
            *self._on_their_way(events),
            *self._nodes(events),
            *self._placed(),
        ]

    def _session(self, events: list[Event]) -> Iterator[str]:
        for ending in _drained(self._operator.endings):
            said = "another operator speaks for this cluster now" if ending.replaced else plain(str(ending))
            if said != self._ending:
                self._ending = said
                yield f"no session with the shard: {said}; trying again"
        if any(event.kind is EventKind.CONNECTED for event in events) and self._cluster.connected:
            self._ending = ""
            yield "connected to the shard"

    def _demand(self) -> Iterator[str]:
        cluster = self._cluster
        if bool(cluster.refusal) != self._is_refused:
            self._is_refused = bool(cluster.refusal)
            if cluster.refusal:
                yield f"the shard does not take the demand yet: {plain(cluster.refusal)}"
        if cluster.acknowledged != self._acknowledged and cluster.acknowledged == cluster.world.version:
            self._acknowledged = cluster.acknowledged
            yield f"the shard has taken the demand: {count(len(cluster.world.needs()), 'row')}"

    def _on_their_way(self, events: list[Event]) -> Iterator[str]:
        now = {machine.id: (machine.state, _kind(machine)) for machine in self._cluster.machines.values()}
        groups: dict[tuple[MachineState, str], list[str]] = {}
        for name, (state, kind) in now.items():
            if self._seen.get(name, (None, ""))[0] is not state:
                groups.setdefault((state, kind), []).append(name)
        for (state, kind), names in groups.items():
            if state in _STEPS:
                yield _STEPS[state].format(_machines(names, kind))
        gone: dict[str, list[str]] = {}
        failed = {event.name for event in events if event.kind is EventKind.MACHINE_FAILED}
        for name, (_, kind) in self._seen.items():
            if name not in now and name not in failed:
                gone.setdefault(kind, []).append(name)
        for kind, names in gone.items():
            yield f"given back: {_machines(names, kind)}"
        self._seen = now

    def _nodes(self, events: list[Event]) -> Iterator[str]:
        groups: dict[tuple[EventKind, str], list[str]] = {}
        for event in events:
            detail = self._why_leaving(event.name) if event.kind is EventKind.CORDONED else event.detail
            groups.setdefault((event.kind, detail), []).append(event.name)
        for (what, detail), names in groups.items():
            named = _names(names)
            match what:
                case EventKind.NODE_READY:
                    yield f"Ready: {count(len(names), 'node')}: {named}"
                case EventKind.CORDONED:
                    yield f"leaving: {count(len(names), 'node')}, because {detail}: {named}"
                case EventKind.UNCORDONED:
                    yield f"stays after all: {count(len(names), 'node')}: {named}"
                case EventKind.DRAIN_FAILED:
                    yield f"not emptied: {named}: {plain(detail)}"
                case EventKind.MACHINE_FAILED:
                    yield f"failed: {count(len(names), 'machine')}: {named}: {plain(detail) or 'no reason was given'}"

    def _why_leaving(self, node: str) -> str:
        found = self._cluster.world.nodes.get(node)
        kind = pb.ReclaimInstruction.KIND_RECLAIM if found is None or found.cordon is None else found.cordon.kind
        return _WHY_LEAVING.get(kind, _NOBODY_NEEDS_IT)

    def _placed(self) -> Iterator[str]:
        pods = self._cluster.world.pods()
        said = f"pods: {pods.running} of {pods.pending + pods.running} run"
        if said != self._pods:
            self._pods = said
            yield said


def _drained(queue: deque[T]) -> list[T]:
    taken = list(queue)
    queue.clear()
    return taken


def _kind(machine: ClusterMachine) -> str:
    words = [machine.labels.get(key, "") for key in (INSTANCE_TYPE, CAPACITY_TYPE)]
    zone = machine.labels.get(ZONE, "")
    return plain(" ".join(word for word in words if word) + (f" in {zone}" if zone else ""))


def _machines(names: list[str], kind: str) -> str:
    return f"{len(names)} {kind or 'machine'} ({_names(names)})"


def _names(names: list[str]) -> str:
    shown = ", ".join(plain(name) for name in sorted(names)[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
