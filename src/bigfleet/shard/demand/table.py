"""What every cluster asks for, and how far that counts. Events in, effects out; no I/O and no clock of its own.

A cluster's demand is the last roll-up that was accepted. This table decides which roll-up that is, when demand stops
being live, how long a cluster has been away and which nodes must be left alone (protocol rules 11, 12 and 13). It is
the one owner of when and in which order rows were first seen (protocol rule 19).

*Late roll-ups.* A stream keeps its order, so the roll-up that comes last is the newest. A roll-up is set aside as
overtaken only if it is stamped earlier than one that came before it in the same session, and came within `LATE_SECONDS`
of that one. After that time the cluster's clock went back, and the roll-up counts. Roll-ups with equal stamps count in
the order in which they come, so an operator that fills in no stamp is served too. Stamps of two sessions are never
compared: frames of a replaced session do not get here.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from bigfleet.engine.records import ClusterRecord, Stakes
from bigfleet.model.demand.need import Daemon, Need, NeedKey, Rollup
from bigfleet.model.resources import Resources
from bigfleet.shard.demand.effects import (
    Acknowledge,
    ClusterChanged,
    EarlyCycle,
    Effect,
    MachinesChanged,
    NodesChanged,
    QuarantineChanged,
    Replace,
)
from bigfleet.shard.demand.rollup_guard import Doubted, RollupGuard, total_asked

LIVE_SECONDS = 60.0
"""For how long demand is live after its session ended."""

AWAY_SECONDS = 300.0
"""For how long after a session the cluster's machines are no victims and are not drained."""

SILENT_SECONDS = 24 * 3600.0
"""After how long without a session a cluster is counted as silent."""

LATE_SECONDS = 30.0
"""How far apart two roll-ups of a session may come and still have overtaken each other."""


class KeptCluster(msgspec.Struct, frozen=True):
    """What the local file holds of one cluster."""

    id: str
    #: For how long the cluster has been without a session.
    silent_seconds: float
    #: Whether the last roll-up said that it does not name all pods.
    partial: bool
    #: Whether an admin withdrew the demand for good.
    forgotten: bool
    #: In which order rows were first seen.
    arrivals: tuple[tuple[NeedKey, int], ...]


class KeptDemand(msgspec.Struct, frozen=True):
    """What the local file holds of demand. The roll-ups themselves come again from the operators."""

    next_arrival: int = 0
    clusters: tuple[KeptCluster, ...] = ()


class ForgetError(ValueError):
    """A cluster that cannot be forgotten, and why."""

    def __init__(self, cluster: str, problem: str) -> None:
        self.cluster = cluster
        super().__init__(f"cluster {cluster!r}: {problem}")


class _Cluster:
    """One cluster."""

    def __init__(self, since: float) -> None:
        #: The demand: the last roll-up that was accepted since the shard's start.
        self.rollup: Rollup | None = None
        #: The sum of what its rows ask for.
        self.asked: Resources = ()
        #: In which order rows were first seen: the engine serves older rows of a priority first.
        self.arrivals: dict[NeedKey, int] = {}
        #: When rows were first seen since the shard's start, in nanoseconds of the wall clock.
        self.first_seen: dict[NeedKey, int] = {}
        #: Some of those who ask for each row.
        self.owners: dict[NeedKey, tuple[str, ...]] = {}
        #: The nodes that run no pod.
        self.empty: frozenset[str] = frozenset()
        #: What is at stake on nodes in pods that no request speaks for.
        self.unrequested: dict[str, Stakes] = {}
        self.guard = RollupGuard()
        #: Whether the operator has a session.
        self.connected = False
        #: Whether the demand may acquire and give back.
        self.live = False
        #: Whether the machines are no victims and are not drained.
        self.spared = True
        #: Whether the last roll-up said that it does not name all pods.
        self.partial = False
        #: Whether an admin withdrew the demand for good.
        self.forgotten = False
        #: When the last session ended, or the shard's start.
        self.since = since
        #: For how long the cluster had been without a session before `since`, in earlier lives of the shard.
        self.silent_before = 0.0
        #: The timestamp of the last roll-up in this session.
        self.newest: int | None = None
        #: When that roll-up came.
        self.heard = 0.0
        #: Whether an older roll-up came after a newer one in this session.
        self.was_late = False

    def take_nodes(self, rollup: Rollup) -> frozenset[str]:
        """Take what a roll-up says of nodes. Returns the nodes of which it says something new."""
        before = self.rollup
        said = rollup.empty_nodes, rollup.unrequested_nodes
        if before is not None and said == (before.empty_nodes, before.unrequested_nodes):
            return frozenset()
        empty, stakes = frozenset(rollup.empty_nodes), dict[str, Stakes]()
        for node in rollup.unrequested_nodes:
            other = stakes.get(node.node, Stakes(node.priority, node.interruption, node.reclamation))
            stakes[node.node] = Stakes(
                max(node.priority, other.priority),
                max(node.interruption, other.interruption),
                max(node.reclamation, other.reclamation),
            )
        changed = {name for name, _ in stakes.items() ^ self.unrequested.items()}
        changed |= empty ^ self.empty
        self.empty, self.unrequested = empty, stakes
        return frozenset(changed)


class Demand:
    """The demand of all clusters that the shard has met. Flags are as of the last event or tick."""

    def __init__(self, start: float, kept: KeptDemand | None = None) -> None:
        self._start = start
        self._clusters: dict[str, _Cluster] = {}
        # Clusters without a session whose flags change as time goes by.
        self._away: dict[str, _Cluster] = {}
        kept = kept or KeptDemand()
        self._next_arrival = kept.next_arrival
        for each in kept.clusters:
            cluster = self._meet(each.id)
            cluster.silent_before, cluster.arrivals = each.silent_seconds, dict(each.arrivals)
            cluster.partial = each.partial
            if each.forgotten:
                self._mark_forgotten(each.id, cluster)
            self._next_arrival = max(self._next_arrival, 1 + max(cluster.arrivals.values(), default=-1))

    def __iter__(self) -> Iterator[str]:
        """Every cluster."""
        return iter(list(self._clusters))

    def rows(self) -> int:
        """How many rows all clusters ask for."""
        return sum(len(each.rollup.needs) for each in self._clusters.values() if each.rollup is not None)

    # Events.

    def met(self, cluster_id: str) -> list[Effect]:
        """A machine is bound to the cluster, which may not have been heard of before."""
        if cluster_id in self._clusters:
            return []
        self._meet(cluster_id)
        return [ClusterChanged(cluster_id), MachinesChanged(cluster_id)]

    def session_opened(self, cluster_id: str) -> list[Effect]:
        """The cluster's operator has connected, or connected anew before the old session ended."""
        effects: list[Effect] = []
        cluster = self._clusters.get(cluster_id)
        if cluster is None or not cluster.live or cluster.forgotten:
            effects.append(ClusterChanged(cluster_id))
        cluster = cluster or self._meet(cluster_id)
        effects += self._doubts_end(cluster_id, cluster)
        if cluster.spared:
            effects.append(MachinesChanged(cluster_id))
        cluster.connected = cluster.live = True
        cluster.spared = cluster.forgotten = False
        cluster.silent_before, cluster.newest, cluster.was_late = 0.0, None, False
        self._away.pop(cluster_id, None)
        return effects

    def session_closed(self, cluster_id: str, now: float) -> list[Effect]:
        """The cluster's live session has ended, and no newer one has taken its place."""
        cluster = self._clusters[cluster_id]
        cluster.connected, cluster.since, cluster.spared = False, now, True
        self._away[cluster_id] = cluster
        return [*self._doubts_end(cluster_id, cluster), MachinesChanged(cluster_id)]

    def rolled_up(
        self, cluster_id: str, rollup: Rollup, bound: Resources, now: float, wall: float = 0.0
    ) -> list[Effect]:
        """A well-formed roll-up of the cluster's live session. `bound` counts only while none was `reported` yet.

        Rows that are new were first seen at `wall`, in seconds of the wall clock.
        """
        cluster, said_at = self._clusters[cluster_id], rollup.timestamp_unix_nanos
        if cluster.newest is not None and said_at < cluster.newest and now - cluster.heard < LATE_SECONDS:
            reason = f"roll-up {said_at} is older than {cluster.newest}, which came before it"
            is_news, cluster.was_late = not cluster.was_late, True
            return [Acknowledge(cluster_id, "", reason, is_news=is_news)]
        cluster.newest, cluster.heard = said_at, now
        before = cluster.rollup
        if before is not None and rollup.needs == before.needs:
            return [
                *self._doubts_end(cluster_id, cluster),
                *self._accept(cluster_id, cluster, rollup),
                Acknowledge(cluster_id, str(said_at)),
            ]
        asked, doubted = total_asked(rollup.needs), cluster.guard.quarantined
        standard = (bound, "is bound") if before is None else (cluster.asked, "was last accepted")
        reason = cluster.guard.judge(asked, *standard, said_at, now)
        effects: list[Effect] = []
        if doubted != cluster.guard.quarantined:
            effects.append(QuarantineChanged(cluster_id, not doubted))
        if reason:
            return [*effects, Acknowledge(cluster_id, "", reason, is_news=not doubted)]
        effects += self._accept(cluster_id, cluster, rollup)
        cluster.asked = asked
        cluster.arrivals = self._arrivals(cluster.arrivals, rollup.needs)
        first_seen, nanos = cluster.first_seen, int(wall * 1e9)
        cluster.first_seen = {key: first_seen.get(key, nanos) for key in cluster.arrivals}
        return [
            *effects,
            Replace(cluster_id, rollup.needs, cluster.arrivals),
            Acknowledge(cluster_id, str(said_at)),
            EarlyCycle(),
        ]

    def forget(self, cluster_id: str) -> list[Effect]:
        """Withdraw a cluster's demand for good, so that its machines are given back; ForgetError if it is connected.

        Until its last machine is `unbound`, the cluster counts as one that asks for nothing.
        """
        cluster = self._clusters.get(cluster_id)
        if cluster is None:
            raise ForgetError(cluster_id, "is not known here; `bigfleetctl clusters` lists those that are")
        if cluster.connected:
            raise ForgetError(cluster_id, "has a session and would be back with its next roll-up; stop its operator")
        self._clusters[cluster_id] = fresh = _Cluster(cluster.since)
        self._mark_forgotten(cluster_id, fresh)
        return [ClusterChanged(cluster_id), MachinesChanged(cluster_id), Replace(cluster_id, (), {}), EarlyCycle()]

    def unbound(self, cluster_id: str) -> None:
        """The last machine has left the cluster. A cluster that was forgotten is then no longer known."""
        cluster = self._clusters.get(cluster_id)
        if cluster is not None and cluster.forgotten:
            del self._clusters[cluster_id]

    def tick(self, now: float) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        for cluster_id, cluster in list(self._away.items()):
            away = now - cluster.since
            if cluster.live and away >= LIVE_SECONDS:
                cluster.live = False
                effects.append(ClusterChanged(cluster_id))
            if away >= AWAY_SECONDS:
                cluster.spared = False
                del self._away[cluster_id]
                effects.append(MachinesChanged(cluster_id))
        return effects

    # Questions.

    def record(
        self,
        cluster_id: str,
        held_out: Mapping[str, int],
        excess_since: int | None = None,
        reclaimed_in_window: int = 0,
    ) -> ClusterRecord:
        """The cluster as the engine takes it. The arguments are what other parts of the shard know of the cluster."""
        cluster = self._clusters[cluster_id]
        rollup = cluster.rollup
        daemons: tuple[Daemon, ...] = () if rollup is None else rollup.daemons
        return ClusterRecord(
            id=cluster_id,
            reported=rollup is not None or cluster.forgotten,
            live=cluster.live,
            partial=cluster.partial,
            excess_since=excess_since,
            reclaimed_in_window=reclaimed_in_window,
            daemons=daemons,
            held_out=held_out,
        )

    def rollup(self, cluster_id: str) -> Rollup | None:
        """The demand; None where no roll-up was accepted since the shard's start."""
        cluster = self._clusters.get(cluster_id)
        return None if cluster is None else cluster.rollup

    def reported(self, cluster_id: str) -> bool:
        """Whether a roll-up was accepted since the shard's start; until then `rolled_up` must know what is bound."""
        return self.rollup(cluster_id) is not None

    def first_seen_unix_nanos(self, cluster_id: str, key: NeedKey) -> int:
        """When a row was first seen since the shard's start; 0 for a row that is not in the demand."""
        cluster = self._clusters.get(cluster_id)
        return 0 if cluster is None else cluster.first_seen.get(key, 0)

    def owners(self, cluster_id: str, key: NeedKey) -> tuple[str, ...]:
        """Some of those who ask for a row; empty where they are not known."""
        cluster = self._clusters.get(cluster_id)
        return () if cluster is None else cluster.owners.get(key, ())

    def node(self, cluster_id: str, name: str) -> tuple[bool, Stakes | None]:
        """Whether the node runs no pod; what is at stake in its pods without a request (protocol rule 13)."""
        cluster = self._clusters.get(cluster_id)
        return (False, None) if cluster is None else (name in cluster.empty, cluster.unrequested.get(name))

    def quarantined(self, cluster_id: str) -> bool:
        """Whether a roll-up of the cluster waits for confirmation."""
        cluster = self._clusters.get(cluster_id)
        return cluster is not None and cluster.guard.quarantined

    def doubted(self, cluster_id: str) -> Doubted | None:
        """The roll-up of the cluster that waits for confirmation, if there is one."""
        cluster = self._clusters.get(cluster_id)
        return None if cluster is None else cluster.guard.doubted

    def live(self, cluster_id: str) -> bool:
        """Whether the cluster's demand may acquire and give back."""
        cluster = self._clusters.get(cluster_id)
        return cluster is not None and cluster.live

    def is_decided_about(self, cluster_id: str) -> bool:
        """Whether a decision says what the cluster has in excess: its demand is live, and it has reported."""
        return self.live(cluster_id) and self.reported(cluster_id)

    def awaits_first_report(self, cluster_id: str, now: float) -> bool:
        """Whether the shard has just started and the cluster has not reported yet: its operator needs a moment."""
        return now - self._start < LIVE_SECONDS and not self.reported(cluster_id)

    def has_session(self, cluster_id: str) -> bool:
        """Whether the cluster's operator is connected."""
        cluster = self._clusters.get(cluster_id)
        return cluster is not None and cluster.connected

    def protects(self, cluster_id: str, node: str) -> bool:
        """Whether the node's machine is nobody's victim: its cluster is spared, or is partial and has not named it."""
        cluster = self._clusters.get(cluster_id)
        if cluster is None or cluster.spared:
            return True
        return cluster.partial and node not in cluster.empty and node not in cluster.unrequested

    def away_seconds(self, cluster_id: str, now: float) -> float:
        """For how long the cluster has had no session: 0 while it has one; since the shard's start if it had none."""
        cluster = self._clusters.get(cluster_id)
        if cluster is None:
            return now - self._start
        return 0.0 if cluster.connected else now - cluster.since

    def silent(self, now: float) -> list[str]:
        """The clusters without a session for a day, earlier lives of the shard included, and not forgotten."""
        return [
            cluster_id
            for cluster_id, cluster in self._clusters.items()
            if not cluster.forgotten and self._silent_seconds(cluster, now) >= SILENT_SECONDS
        ]

    @property
    def next_arrival(self) -> int:
        """The arrival of the next new row. The next life of the shard must not go below it."""
        return self._next_arrival

    def kept(self, cluster_id: str, now: float) -> KeptCluster | None:
        """What the next life of the shard must know of a cluster; None where the cluster is no longer known."""
        cluster = self._clusters.get(cluster_id)
        if cluster is None:
            return None
        silent, arrivals = self._silent_seconds(cluster, now), tuple(cluster.arrivals.items())
        return KeptCluster(cluster_id, silent, cluster.partial, cluster.forgotten, arrivals)

    # Steps.

    def _meet(self, cluster_id: str) -> _Cluster:
        cluster = self._clusters[cluster_id] = self._away[cluster_id] = _Cluster(self._start)
        return cluster

    def _mark_forgotten(self, cluster_id: str, cluster: _Cluster) -> None:
        # The cluster is live and asks for nothing, so the engine gives its machines back, no faster than others'.
        cluster.forgotten = cluster.live = True
        cluster.spared = False
        self._away.pop(cluster_id, None)

    def _doubts_end(self, cluster_id: str, cluster: _Cluster) -> list[Effect]:
        doubted = cluster.guard.quarantined
        cluster.guard.reset()
        return [QuarantineChanged(cluster_id, False)] if doubted else []

    def _accept(self, cluster_id: str, cluster: _Cluster, rollup: Rollup) -> list[Effect]:
        """Make the roll-up the demand, all but its rows."""
        effects: list[Effect] = []
        before, nodes = cluster.rollup, cluster.take_nodes(rollup)
        flipped = cluster.partial != rollup.partial_demand
        if before is None or flipped or before.daemons != rollup.daemons:
            effects.append(ClusterChanged(cluster_id))
        if flipped:
            effects.append(MachinesChanged(cluster_id))
        elif nodes:
            effects.append(NodesChanged(cluster_id, nodes))
        if before is None or before.owners is not rollup.owners or before.needs is not rollup.needs:
            named = zip(rollup.needs, rollup.owners, strict=False)
            cluster.owners = {need.key: owners for need, owners in named if owners}
        cluster.rollup, cluster.partial = rollup, rollup.partial_demand
        return effects

    def _arrivals(self, before: Mapping[NeedKey, int], needs: Iterable[Need]) -> dict[NeedKey, int]:
        """Rows that stay keep their arrival; those first seen in this roll-up share a new one."""
        arrivals = {key: before.get(key, self._next_arrival) for key in (need.key for need in needs)}
        if self._next_arrival in arrivals.values():
            self._next_arrival += 1
        return arrivals

    @staticmethod
    def _silent_seconds(cluster: _Cluster, now: float) -> float:
        return 0.0 if cluster.connected else cluster.silent_before + now - cluster.since
