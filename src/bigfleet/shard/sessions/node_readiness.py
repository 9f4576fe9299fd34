"""Whether the Node of each Configured machine has come up in its binding (protocol rule 16). Events in, effects out.

A Node that was seen Ready is latched for the rest of its binding, whatever its kubelet says later. Only the absence of
the Node, as after a person has deleted it, ends that. For every other machine a clock counts how long its operator has
said that there is no Node, or that the Node was never Ready. The clock stands still while there is no session, and
until the operator has spoken again after a connect. Then the clock goes on, since a session that drops every few
minutes must not hide a machine that never came up. Half a million machines are held. A machine that is latched, or of
which nothing was said, costs one entry, and a tick looks only at clocks that run.
"""

import heapq
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from bigfleet.shard.sessions.outputs import NodeProgress

DEADLINE_SECONDS = 600.0
"""How long a Node may be known not to be Ready before its machine is flagged."""

FLAGGED_PERCENT = 5
"""The most of a cluster's Configured machines that are flagged at a time; one machine may always be."""


class Flagged(msgspec.Struct, frozen=True, gc=False):
    """The machine is no supply from now on: set `not_ready` of its record anew, and hold it out (protocol rule 8)."""

    machine_id: str


class Cleared(msgspec.Struct, frozen=True, gc=False):
    """The machine is no longer flagged: set `not_ready` of its record anew."""

    machine_id: str


class DrainFlagged(msgspec.Struct, frozen=True, gc=False):
    """The flagged machine is empty and is to be drained. Said once each time that the machine is flagged."""

    machine_id: str
    cluster: str


class Latched(msgspec.Struct, frozen=True, gc=False):
    """The Node was seen Ready in the binding of that number: write it down."""

    machine_id: str
    number: int


Effect = Flagged | Cleared | DrainFlagged | Latched


class _Early(msgspec.Struct, frozen=True, gc=False):
    """What an operator said of a machine that was not known to be Configured yet."""

    state: NodeProgress
    #: How many connects there had been, of all clusters.
    connects: int


class _Clock(msgspec.Struct, gc=False):
    """A clock that runs."""

    #: What the clock had counted before it last began to run.
    before: float
    #: When the clock last began to run.
    since: float
    #: Whether there is no Node at all, so that no pod runs on it either.
    absent: bool

    def counted(self, now: float) -> float:
        return self.before + now - self.since


class _Cluster:
    """One cluster."""

    def __init__(self) -> None:
        #: The number of the connect with which the session began; 0 without a session that reports readiness.
        self.session = 0
        self.running: dict[str, _Clock] = {}
        #: What clocks that stand still have counted.
        self.stopped: dict[str, float] = {}
        #: Flagged machines in the order in which they were flagged, and whether a drain was asked for.
        self.flagged: dict[str, bool] = {}
        #: The flagged machines whose drain was asked for and has not begun.
        self.to_drain: dict[str, None] = {}

    def stop(self, now: float) -> None:
        """No clock goes on with what was said so far."""
        self.session = 0
        self.stopped |= {machine_id: clock.counted(now) for machine_id, clock in self.running.items()}
        self.running.clear()

    def forget(self, machine_id: str) -> list[Effect]:
        """Nothing is counted or held against the machine any more."""
        self.running.pop(machine_id, None)
        self.stopped.pop(machine_id, None)
        self.to_drain.pop(machine_id, None)
        return [] if self.flagged.pop(machine_id, None) is None else [Cleared(machine_id)]


class NodeReadiness:
    """The readiness of every Configured machine. The number of a binding tells it from the machine's other bindings."""

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._deadline = deadline_seconds
        self._clusters: dict[str, _Cluster] = {}
        # Configured machines that are not latched, with their cluster and binding; and those that are.
        self._unseen: dict[str, tuple[str, int]] = {}
        self._latched: dict[str, int] = {}
        # What was said before a machine was known to be Configured. An operator says it once in a session.
        self._early: dict[str, _Early] = {}
        self._connects = 0

    # Events

    def restored(self, latched: Mapping[str, int]) -> None:
        """After a restart, before the first list: the latches on file. A machine no longer bound is to be `unbound`."""
        self._latched = dict(latched)

    def session_opened(self, cluster: str, reports: bool, now: float) -> list[Effect]:
        """The cluster's operator has connected, or connected anew before the old session ended.

        Where its Hello does not name `node_ready` the provider's word stands, and nothing is flagged.
        """
        self._connects += 1
        state = self._cluster(cluster)
        state.stop(now)
        if reports:
            state.session = self._connects
            return []
        state.stopped.clear()
        cleared: list[Effect] = [Cleared(machine_id) for machine_id in state.flagged]
        state.flagged.clear()
        state.to_drain.clear()
        return cleared

    def session_closed(self, cluster: str, now: float) -> list[Effect]:
        """The cluster's live session has ended: flags stay, clocks stand still."""
        self._cluster(cluster).stop(now)
        return []

    def bound(self, machine_id: str, cluster: str, number: int, now: float) -> list[Effect]:
        """The machine was seen Configured in the binding of that number."""
        if self._latched.get(machine_id) == number or self._unseen.get(machine_id) == (cluster, number):
            return []
        effects = self._forget(machine_id)
        self._unseen[machine_id] = cluster, number
        early = self._early.pop(machine_id, None)
        if early is not None and (
            early.state is NodeProgress.READY or early.connects >= self._cluster(cluster).session
        ):
            effects += self.reported(machine_id, cluster, early.state, now)
        return effects

    def unbound(self, machine_id: str) -> list[Effect]:
        """The binding is over, or never came to be: nothing that was said in it counts for the next."""
        self._early.pop(machine_id, None)
        return self._forget(machine_id)

    def reported(self, machine_id: str, of: str, state: NodeProgress, now: float) -> list[Effect]:
        """The operator of the machine's cluster has said how far its Node has come."""
        if state is NodeProgress.ABSENT and machine_id in self._latched:
            # Nothing runs on a machine without a Node. The latch stays on file, but the operator says it again.
            self._unseen[machine_id] = of, self._latched.pop(machine_id)
        if machine_id not in self._unseen:
            if not self.seen_ready(machine_id):
                self._early[machine_id] = _Early(state, self._connects)
            return []
        name, number = self._unseen[machine_id]
        cluster = self._cluster(name)
        if state is NodeProgress.READY:
            del self._unseen[machine_id]
            self._latched[machine_id] = number
            return [Latched(machine_id, number), *cluster.forget(machine_id)]
        if cluster.session:
            clock = cluster.running.get(machine_id)
            if clock is None:
                clock = cluster.running[machine_id] = _Clock(cluster.stopped.pop(machine_id, 0.0), now, absent=False)
            clock.absent = state is NodeProgress.ABSENT
        return []

    def tick(self, now: float, size: Callable[[str], int], is_empty: Callable[[str], bool]) -> list[Effect]:
        """Time has passed. `size` is how many machines a cluster has Configured; `is_empty` whether one runs no pod."""
        effects: list[Effect] = []
        for name, cluster in self._clusters.items():
            # Counting a cluster's machines may cost more than looking at all its clocks.
            if cluster.flagged or any(clock.counted(now) >= self._deadline for clock in cluster.running.values()):
                effects += self._flag(cluster, max(1, size(name) * FLAGGED_PERCENT // 100), now)
                effects += _drain(name, cluster, is_empty)
        return effects

    def drain_begun(self, machine_id: str) -> None:
        """A commitment drains the flagged machine."""
        cluster = self._flagging(machine_id)
        if cluster is not None:
            cluster.to_drain.pop(machine_id, None)

    def drain_ended(self, machine_id: str) -> None:
        """A commitment for the machine ended without success. The drain of a flagged machine is asked for again."""
        cluster = self._flagging(machine_id)
        if cluster is not None:
            # The engine leaves a flagged machine alone, so nobody else would think of it again.
            cluster.to_drain[machine_id] = None

    # Questions

    def to_drain(self) -> list[tuple[str, str]]:
        """The machines that are to be drained, with their clusters."""
        return [(machine_id, name) for name, cluster in self._clusters.items() for machine_id in cluster.to_drain]

    def flagged(self, machine_id: str) -> bool:
        """For MachineRecord.not_ready: whether the machine is flagged."""
        return self._flagging(machine_id) is not None

    def latched(self) -> Mapping[str, int]:
        """The number of the binding in which each machine's Node was seen Ready."""
        return MappingProxyType(self._latched)

    def seen_ready(self, machine_id: str) -> bool:
        """Whether the Node was seen Ready in this binding; the machine may not be known to be Configured yet."""
        early = self._early.get(machine_id)
        return machine_id in self._latched or (early is not None and early.state is NodeProgress.READY)

    def _flag(self, cluster: _Cluster, most: int, now: float) -> list[Effect]:
        """Flag those who have waited longest, `most` at a time; in a cluster that shrank, the newest are cleared."""
        room = most - len(cluster.flagged)
        effects: list[Effect] = []
        for _ in range(-room):
            machine_id, _ = cluster.flagged.popitem()
            cluster.to_drain.pop(machine_id, None)
            effects.append(Cleared(machine_id))
        if room > 0:
            late = (
                (-clock.counted(now), machine_id)
                for machine_id, clock in cluster.running.items()
                if clock.counted(now) >= self._deadline and machine_id not in cluster.flagged
            )
            for _, machine_id in heapq.nsmallest(room, late):
                cluster.flagged[machine_id] = False
                effects.append(Flagged(machine_id))
        return effects

    def _flagging(self, machine_id: str) -> _Cluster | None:
        cluster = self._clusters.get(self._unseen.get(machine_id, ("", 0))[0])
        return cluster if cluster is not None and machine_id in cluster.flagged else None

    def _forget(self, machine_id: str) -> list[Effect]:
        self._latched.pop(machine_id, None)
        binding = self._unseen.pop(machine_id, None)
        return [] if binding is None else self._cluster(binding[0]).forget(machine_id)

    def _cluster(self, name: str) -> _Cluster:
        cluster = self._clusters.get(name)
        if cluster is None:
            cluster = self._clusters[name] = _Cluster()
        return cluster


def _drain(name: str, cluster: _Cluster, is_empty: Callable[[str], bool]) -> list[Effect]:
    """Ask for the drain of flagged machines that are empty by what was said in this session."""
    effects: list[Effect] = []
    for machine_id, asked in cluster.flagged.items():
        clock = cluster.running.get(machine_id)
        if not asked and clock is not None and (clock.absent or is_empty(machine_id)):
            cluster.flagged[machine_id] = True
            cluster.to_drain[machine_id] = None
            effects.append(DrainFlagged(machine_id, name))
    return effects
