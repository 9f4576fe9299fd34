"""Whether the Node of each Configured machine has come up in its binding (protocol.md 16). Events in, effects out.

A Node that was seen Ready is latched for the rest of its binding, whatever its kubelet says later; only a Node that is
there no more, as when a person has deleted it, ends that. Otherwise a clock counts for how long the operator's
word has stood that there is none, or that it was never Ready. The clock stands still while there is no session, and
until the operator has spoken again after a connect. Then it goes on: a session that drops every few minutes must not
hide a machine that never came up. Half a million machines are held: one that is latched, or of which nothing was said,
costs one entry, and only clocks that run are looked at.
"""

import heapq
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from bigfleet.shard.sessions.session import Readiness

DEADLINE_SECONDS = 600.0
"""For how long a Node may be known not to be Ready before its machine is flagged."""

FLAGGED_PERCENT = 5
"""Of a cluster's Configured machines, flagged at a time at most (at least one)."""


class Flagged(msgspec.Struct, frozen=True, gc=False):
    """The machine is no supply while this lasts: set its record's `not_ready` anew, and hold it out (protocol.md 8)."""

    machine_id: str


class Cleared(msgspec.Struct, frozen=True, gc=False):
    """The machine is flagged no more: set its record's `not_ready` anew."""

    machine_id: str


class DrainFlagged(msgspec.Struct, frozen=True, gc=False):
    """The flagged machine is empty and shall be drained. Said once for each time that it is flagged."""

    machine_id: str
    cluster: str


class Latched(msgspec.Struct, frozen=True, gc=False):
    """The Node was seen Ready in the binding of that number: write it down."""

    machine_id: str
    number: int


Effect = Flagged | Cleared | DrainFlagged | Latched


class _Early(msgspec.Struct, frozen=True, gc=False):
    """What was said of a machine that was not known to be Configured yet, and after how many connects."""

    state: Readiness
    connects: int


class _Clock(msgspec.Struct, gc=False):
    """A clock that runs. `absent` says that there is no Node at all, so no pod on it either."""

    before: float
    since: float
    absent: bool

    def counted(self, now: float) -> float:
        return self.before + now - self.since


class _Cluster:
    """One cluster. `session` is which connect its session began with, 0 without one that reports readiness."""

    def __init__(self) -> None:
        self.session = 0
        self.running: dict[str, _Clock] = {}
        # What clocks that stand still have counted.
        self.stopped: dict[str, float] = {}
        # In the order in which they were flagged, with whether the drain was asked for.
        self.flagged: dict[str, bool] = {}

    def stop(self, now: float) -> None:
        """No clock runs on what was said so far."""
        self.session = 0
        self.stopped |= {machine_id: clock.counted(now) for machine_id, clock in self.running.items()}
        self.running.clear()

    def forget(self, machine_id: str) -> list[Effect]:
        """Nothing is counted or held against the machine any more."""
        self.running.pop(machine_id, None)
        self.stopped.pop(machine_id, None)
        return [] if self.flagged.pop(machine_id, None) is None else [Cleared(machine_id)]


class NodeReadiness:
    """The readiness of every Configured machine. A binding's number tells it from all others of its machine."""

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._deadline = deadline_seconds
        self._clusters: dict[str, _Cluster] = {}
        # A Configured machine is in one of these two: with its cluster and number until it is latched.
        self._unseen: dict[str, tuple[str, int]] = {}
        self._latched: dict[str, int] = {}
        # Operators and providers are not heard in order, and an operator does not repeat itself within a session.
        self._early: dict[str, _Early] = {}
        self._connects = 0

    # Events

    def restored(self, latched: Mapping[str, int]) -> None:
        """After a restart, before the first list: what was written down. What is bound no more is to be `unbound`."""
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
        return cleared

    def session_closed(self, cluster: str, now: float) -> list[Effect]:
        """The cluster's live session has ended: flags stay, clocks stand still."""
        self._cluster(cluster).stop(now)
        return []

    def bound(self, machine_id: str, cluster: str, number: int, now: float) -> list[Effect]:
        """The machine is reported Configured in the binding of that number; another than before is a new binding."""
        if self._latched.get(machine_id) == number or self._unseen.get(machine_id) == (cluster, number):
            return []
        effects = self._forget(machine_id)
        self._unseen[machine_id] = cluster, number
        early = self._early.pop(machine_id, None)
        if early is not None and (early.state is Readiness.READY or early.connects >= self._cluster(cluster).session):
            effects += self.reported(machine_id, cluster, early.state, now)
        return effects

    def unbound(self, machine_id: str) -> list[Effect]:
        """The binding is over, or never came to be: nothing that was said in it counts for the next."""
        self._early.pop(machine_id, None)
        return self._forget(machine_id)

    def reported(self, machine_id: str, of: str, state: Readiness, now: float) -> list[Effect]:
        """The operator of the machine's cluster has said how far its Node has come."""
        if state is Readiness.ABSENT and machine_id in self._latched:
            # Nothing runs on a machine without a Node. The file may say otherwise: after a restart this is said again.
            self._unseen[machine_id] = of, self._latched.pop(machine_id)
        if machine_id not in self._unseen:
            if not self.seen_ready(machine_id):
                self._early[machine_id] = _Early(state, self._connects)
            return []
        name, number = self._unseen[machine_id]
        cluster = self._cluster(name)
        if state is Readiness.READY:
            del self._unseen[machine_id]
            self._latched[machine_id] = number
            return [Latched(machine_id, number), *cluster.forget(machine_id)]
        if cluster.session:
            clock = cluster.running.get(machine_id)
            if clock is None:
                clock = cluster.running[machine_id] = _Clock(cluster.stopped.pop(machine_id, 0.0), now, absent=False)
            clock.absent = state is Readiness.ABSENT
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

    # Questions

    def flagged(self, machine_id: str) -> bool:
        """For MachineRecord.not_ready."""
        cluster = self._clusters.get(self._unseen.get(machine_id, ("", 0))[0])
        return cluster is not None and machine_id in cluster.flagged

    def latched(self) -> Mapping[str, int]:
        """For the local file: the number of the binding in which each machine's Node was seen Ready."""
        return MappingProxyType(self._latched)

    def seen_ready(self, machine_id: str) -> bool:
        """Whether the Node was seen Ready in this binding, be the machine known to be Configured yet or not."""
        early = self._early.get(machine_id)
        return machine_id in self._latched or (early is not None and early.state is Readiness.READY)

    def _flag(self, cluster: _Cluster, most: int, now: float) -> list[Effect]:
        """Flag who has waited longest, as far as there are places; in a cluster that shrank, the newest lose theirs."""
        room = most - len(cluster.flagged)
        effects: list[Effect] = [Cleared(cluster.flagged.popitem()[0]) for _ in range(-room)]
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
    """Ask for the drain of what is flagged and empty, on a word of this session: an older one may no longer be true."""
    effects: list[Effect] = []
    for machine_id, asked in cluster.flagged.items():
        clock = cluster.running.get(machine_id)
        if not asked and clock is not None and (clock.absent or is_empty(machine_id)):
            cluster.flagged[machine_id] = True
            effects.append(DrainFlagged(machine_id, name))
    return effects
