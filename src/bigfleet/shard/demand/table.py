"""What every cluster asks for, and how far that counts. Events in, effects out; no I/O and no clock of its own.

Demand is the last roll-up that was accepted. Which one that is, when it stops being live (protocol.md 11), how long its
cluster has been away (12), which nodes must be left alone (13) and since when each row has been known (19) stand here.

*Late roll-ups.* A stream keeps its order, so what comes last is newest. Only a roll-up that is stamped earlier than one
heard before in the same session, and comes within `LATE_SECONDS` of it, is taken for a frame that was overtaken, and
set aside. Past that it is the cluster's clock that went back, and the roll-up counts. Equal stamps count in the order
they come in, so an operator that fills in none is served too. Sessions are never compared: frames of a replaced one do
not get here.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from bigfleet.engine.records import ClusterRecord, Stakes
from bigfleet.model.demand.need import Daemon, Need, NeedKey, Rollup
from bigfleet.model.resources import Resources
from bigfleet.shard.demand.rollup_guard import Guard, total_asked

LIVE_SECONDS = 60.0
"""For how long demand is live after its session ended."""

AWAY_SECONDS = 300.0
"""For how long after a session the cluster's machines are no victims and are not drained."""

SILENT_SECONDS = 24 * 3600.0
"""After how long without a session a cluster is counted as silent."""

LATE_SECONDS = 30.0
"""How far apart two roll-ups of a session may come and still have overtaken each other."""


class Replace(msgspec.Struct, frozen=True):
    """Give the engine these rows for all that the cluster had; `arrivals` holds every row's."""

    cluster: str
    needs: tuple[Need, ...]
    arrivals: Mapping[NeedKey, int]


class Acknowledge(msgspec.Struct, frozen=True):
    """Tell the operator what became of its roll-up: `echo` is set if it is the demand now, `reason` if not."""

    cluster: str
    echo: str
    reason: str = ""


class ClusterChanged(msgspec.Struct, frozen=True):
    """Set the engine's record of the cluster anew."""

    cluster: str


class NodesChanged(msgspec.Struct, frozen=True):
    """These nodes became empty or not, or run other pods without a request: set their machines' records anew."""

    cluster: str
    nodes: frozenset[str]


class MachinesChanged(msgspec.Struct, frozen=True):
    """What `protects` the cluster's machines is another: set the records of all of them anew."""

    cluster: str


class QuarantineChanged(msgspec.Struct, frozen=True):
    """A roll-up of the cluster waits (or no longer waits) for confirmation."""

    cluster: str
    quarantined: bool


class EarlyCycle(msgspec.Struct, frozen=True):
    """Demand has changed: decide before the next cycle is due, if the rate allows."""


Effect = Replace | Acknowledge | ClusterChanged | NodesChanged | MachinesChanged | QuarantineChanged | EarlyCycle


class KeptCluster(msgspec.Struct, frozen=True):
    """What the local file holds of one cluster."""

    id: str
    silent_seconds: float
    partial: bool
    forgotten: bool
    arrivals: tuple[tuple[NeedKey, int], ...]


class KeptDemand(msgspec.Struct, frozen=True):
    """What the local file holds of demand; the demand itself comes again with each cluster's next roll-up."""

    next_arrival: int = 0
    clusters: tuple[KeptCluster, ...] = ()


class ForgetError(ValueError):
    """A cluster that cannot be forgotten; names it and says why."""

    def __init__(self, cluster: str, problem: str) -> None:
        self.cluster = cluster
        super().__init__(f"cluster {cluster!r}: {problem}")


class _Cluster:
    """One cluster. `since` is when its last session ended, or the shard's start."""

    def __init__(self, since: float) -> None:
        self.rollup: Rollup | None = None
        self.asked: Resources = ()
        self.arrivals: dict[NeedKey, int] = {}
        self.empty: frozenset[str] = frozenset()
        self.unrequested: dict[str, Stakes] = {}
        self.guard = Guard()
        self.connected = self.live = False
        self.spared = True
        self.partial = self.forgotten = False
        self.since = since
        self.silent_before = 0.0
        self.newest: int | None = None
        self.heard = 0.0

    def take_nodes(self, rollup: Rollup) -> frozenset[str]:
        """Take what a roll-up says of nodes; returns those of which it says something else than the one before."""
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
        # Those away whose flags may still change as time goes by.
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
        """Every cluster; after a restart the engine needs the `record` of each that the file told of."""
        return iter(list(self._clusters))

    # Events.

    def met(self, cluster_id: str) -> list[Effect]:
        """A machine is bound to the cluster, whether or not it was ever heard of."""
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
        cluster.silent_before, cluster.newest = 0.0, None
        self._away.pop(cluster_id, None)
        return effects

    def session_closed(self, cluster_id: str, now: float) -> list[Effect]:
        """The cluster's live session has ended, and no newer one has taken its place."""
        cluster = self._clusters[cluster_id]
        cluster.connected, cluster.since, cluster.spared = False, now, True
        self._away[cluster_id] = cluster
        return [*self._doubts_end(cluster_id, cluster), MachinesChanged(cluster_id)]

    def rolled_up(self, cluster_id: str, rollup: Rollup, bound: Resources, now: float) -> list[Effect]:
        """A well-formed roll-up of the cluster's live session. `bound` counts only while none was `reported` yet."""
        cluster, said_at = self._clusters[cluster_id], rollup.timestamp_unix_nanos
        if cluster.newest is not None and said_at < cluster.newest and now - cluster.heard < LATE_SECONDS:
            reason = f"roll-up {said_at} is older than {cluster.newest}, which came before it"
            return [Acknowledge(cluster_id, "", reason)]
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
            return [*effects, Acknowledge(cluster_id, "", reason)]
        effects += self._accept(cluster_id, cluster, rollup)
        cluster.asked = asked
        cluster.arrivals = self._arrivals(cluster.arrivals, rollup.needs)
        return [
            *effects,
            Replace(cluster_id, rollup.needs, cluster.arrivals),
            Acknowledge(cluster_id, str(said_at)),
            EarlyCycle(),
        ]

    def forget(self, cluster_id: str) -> list[Effect]:
        """Withdraw a cluster's demand for good, so that its machines are given back; ForgetError where it is connected.

        Until the last of them is `unbound` the cluster counts as one that asks for nothing.
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
        """The last machine of the cluster is gone from it; one that was forgotten is then known no more."""
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
        """The cluster as the engine takes it, with what the rest of the shard knows of it."""
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
        """The demand itself, where there is any since the shard's start."""
        cluster = self._clusters.get(cluster_id)
        return None if cluster is None else cluster.rollup

    def reported(self, cluster_id: str) -> bool:
        """Whether a roll-up was accepted since the shard's start; until then `rolled_up` must know what is bound."""
        return self.rollup(cluster_id) is not None

    def node(self, cluster_id: str, name: str) -> tuple[bool, Stakes | None]:
        """Whether the node is empty, and what is at stake on it in pods that no request speaks for (protocol.md 13)."""
        cluster = self._clusters.get(cluster_id)
        return (False, None) if cluster is None else (name in cluster.empty, cluster.unrequested.get(name))

    def quarantined(self, cluster_id: str) -> bool:
        """Whether a roll-up of the cluster waits for confirmation."""
        cluster = self._clusters.get(cluster_id)
        return cluster is not None and cluster.guard.quarantined

    def live(self, cluster_id: str) -> bool:
        """Whether the cluster's demand may acquire and give back."""
        cluster = self._clusters.get(cluster_id)
        return cluster is not None and cluster.live

    def has_session(self, cluster_id: str) -> bool:
        """Whether the cluster's operator is connected."""
        cluster = self._clusters.get(cluster_id)
        return cluster is not None and cluster.connected

    def spares(self, cluster_id: str) -> bool:
        """Whether the cluster's machines are no victims and not drained, because it has not been away long enough."""
        cluster = self._clusters.get(cluster_id)
        return cluster is None or cluster.spared

    def protects(self, cluster_id: str, node: str) -> bool:
        """Whether the node's machine is no victim whoever asks: spared, or perhaps full in a cluster marked partial."""
        cluster = self._clusters.get(cluster_id)
        if cluster is None or cluster.spared:
            return True
        return cluster.partial and node not in cluster.empty and node not in cluster.unrequested

    def away_seconds(self, cluster_id: str, now: float) -> float:
        """For how long the cluster has had no session: 0 with one, from the shard's start if it never had one."""
        cluster = self._clusters.get(cluster_id)
        if cluster is None:
            return now - self._start
        return 0.0 if cluster.connected else now - cluster.since

    def silent(self, now: float) -> list[str]:
        """The clusters that have had no session for a day, restarts of the shard included, and are not forgotten."""
        return [
            cluster_id
            for cluster_id, cluster in self._clusters.items()
            if not cluster.forgotten and self._silent_seconds(cluster, now) >= SILENT_SECONDS
        ]

    @property
    def next_arrival(self) -> int:
        """What the next row that is new will have; the next life of the shard must not go below it."""
        return self._next_arrival

    def kept(self, cluster_id: str, now: float) -> KeptCluster | None:
        """What the next life of the shard must know of a cluster; nothing, where it is known no more."""
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
        # Live and asking for nothing: the engine gives its machines back on the rails that hold for everybody.
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
