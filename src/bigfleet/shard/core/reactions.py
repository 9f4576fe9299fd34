"""What the parts say to each other: each one's effects are another's events, or an order to the shell."""

from collections.abc import Iterable

import structlog

from bigfleet.engine.records import Kind
from bigfleet.model.demand.need import Rollup
from bigfleet.model.machine import Call, Machine, MachineState
from bigfleet.shard.core.parts import State
from bigfleet.shard.decision.holdouts import shape_of
from bigfleet.shard.demand import table as wants
from bigfleet.shard.demand.rollup_guard import total_bound
from bigfleet.shard.execution import effects as does
from bigfleet.shard.execution import recovery as cures
from bigfleet.shard.execution.commitment import CALLING, Commitment, Step
from bigfleet.shard.orders import DecideSoon, Look, MakeCall, StandDown
from bigfleet.shard.sessions import messages
from bigfleet.shard.sessions import node_readiness as nodes
from bigfleet.shard.supply import known
from bigfleet.shard.supply.stamps import Binding, from_metadata, number_of
from bigfleet.shard.supply.table import node_name
from bigfleet.wire.hello import NODE_READY

_log = structlog.get_logger("bigfleet.shard")

_S = MachineState
_REFUSED_IDLE_SECONDS, _UNDELETABLE_SECONDS = 60.0, 3600.0
# Outcomes after which choosing the same machine at once again would end the same way.
_NOT_AT_ONCE = frozenset({does.Outcome.REFUSED, does.Outcome.MISMATCH, does.Outcome.FENCED})


class Reactions(State):
    """Carries effects from part to part until none is left."""

    def supplied(self, effects: Iterable[known.Effect]) -> None:
        """Supply has changed."""
        for effect in effects:
            match effect:
                case known.Changed():
                    self._changed(effect)
                case known.Doubt(machine_id=machine_id, provider=provider):
                    self.orders.append(Look(machine_id, provider))
                case known.UnaskedDrain(machine_id=machine_id):
                    _log.warning("machine_taken_back", machine=machine_id)
                    # Whoever loses it must not choose it as its own replacement (ADR 9.1).
                    self.taken_back.add(machine_id)
                    self.executed(self.execute.taken_back(machine_id, self.clocks.now()))
                case known.Incident(kind=kind, machine_id=machine_id, text=text):
                    _log.warning("supply_incident", kind=kind, machine=machine_id, text=text)
                    if kind is known.IncidentKind.HIGHER_EPOCH:
                        self.stand_down(f"machine {machine_id!r}: {text}")

    def _changed(self, changed: known.Changed) -> None:
        now, before, after = self.clocks.now(), changed.before, changed.after
        machine_id = changed.machine_id
        self.picture.touch(machine_id)
        self.cost += _paid(after) - _paid(before)
        moved = before is None or after is None or before.state is not after.state
        if after is not None and after.cluster and (before is None or before.cluster != after.cluster):
            self.wanted(self.demand.met(after.cluster))
        self._watch_node(changed, now)
        if moved:
            self._moved(changed, now)
        self._file(machine_id, after, changed.provider)
        self._concern(machine_id, before, quiet=not moved and _looks_alike(before, after))
        if self.execute.get(machine_id) is not None:
            self.executed(self.execute.moved(machine_id, now))

    def _watch_node(self, changed: known.Changed, now: float) -> None:
        """Follow the machine from binding to binding; that its Node was seen Ready counts to the end of this one."""
        machine_id, before, after = changed.machine_id, changed.before, changed.after
        if before is not None and before.cluster:
            left = after is None or after.cluster != before.cluster
            if after is not None and before.state is _S.CONFIGURED and after.state in (_S.DRAINING, _S.FAILED):
                left = left or not self.readiness.seen_ready(machine_id)
            if left:
                self.filing.ready(machine_id, None)
                self.readied(self.readiness.unbound(machine_id))
        if after is not None and after.state is _S.CONFIGURED:
            self.readied(self.readiness.bound(machine_id, after.cluster, number_of(after.shard_metadata), now))

    def _moved(self, changed: known.Changed, now: float) -> None:
        """The machine is in another state."""
        machine_id, before, after = changed.machine_id, changed.before, changed.after
        was = None if before is None else before.state
        self.timings.moved(machine_id, after, now)
        self.unsettled_at_start.discard(machine_id)
        if after is None or after.state is not _S.DRAINING:
            self.taken_back.discard(machine_id)
        if was is _S.IDLE:
            self.filing.idle(machine_id, None)
        if was is _S.FAILED:
            self.cured(self.recovery.left(machine_id))
        if after is None:
            return
        match after.state:
            case _S.IDLE:
                self.filing.idle(machine_id, float(self.supply.idle_since(machine_id)))
                if was is _S.CREATING:
                    self.holdouts.create_succeeded(shape_of(after))
            case _S.FAILED:
                _log.warning("machine_failed", machine=machine_id, error=after.last_error[:200], cluster=after.cluster)
                self.holdouts.machine_failed(machine_id, now)
                self.cured(self.recovery.failed(after, changed.provider, now))

    def _file(self, machine_id: str, machine: Machine | None, provider: str) -> None:
        """Keep bound and committed machines on file as last known."""
        bound = machine is not None and (machine.cluster or self.execute.get(machine_id) is not None)
        self.filing.machine(machine_id, machine if bound else None, provider)

    def _concern(self, machine_id: str, before: Machine | None = None, *, quiet: bool = False) -> None:
        """Whom the machine concerns now hears how it stands, and whom it no longer does hears that."""
        now, machine, commitment = self.clocks.now(), self.supply.find(machine_id), self.execute.get(machine_id)
        clusters: set[str] = set()
        if machine is not None:
            clusters = {machine.cluster, "" if commitment is None else commitment.cluster} - {""}
        known = self.holdings.clusters(machine_id)
        left = self.holdings.concern(machine_id, clusters, now)
        for cluster in sorted(clusters):
            if machine is not None and not (quiet and cluster in known):
                self.talk.show(machine, cluster, now)
        for cluster in sorted(left):
            last = machine or before
            if last is not None:
                drained = machine is not None and before is not None and before.cluster == cluster
                self.talk.take_leave(last, cluster, drained=drained, there=machine is not None, now=now)
            if not self.holdings.of(cluster):
                self._unbound(cluster, now)

    def _unbound(self, cluster: str, now: float) -> None:
        """The last machine has left the cluster; one that was forgotten is then known no more."""
        self.demand.unbound(cluster)
        kept = self.demand.kept(cluster, now)
        self.filing.cluster(cluster, kept)
        if kept is None:
            self.first_seen.pop(cluster, None)
            self.available.forget(cluster)
            self.talk.forget(cluster)
            for family in (self.metrics.rollup_quarantined, self.metrics.rollups_rejected):
                family.forget(cluster)

    # Demand and sessions.

    def wanted(self, effects: Iterable[wants.Effect]) -> None:
        """Demand has changed."""
        for effect in effects:
            match effect:
                case wants.Replace(cluster=cluster, needs=needs, arrivals=arrivals):
                    self.picture.replace(cluster, needs, arrivals)
                    known, wall = self.first_seen.get(cluster, {}), int(self.clocks.wall() * 1e9)
                    self.first_seen[cluster] = {key: known.get(key, wall) for key in arrivals}
                    self.filing.cluster(cluster, self.demand.kept(cluster, self.clocks.now()))
                case wants.Acknowledge(cluster=cluster, echo=echo, reason=reason):
                    if reason:
                        _log.warning("rollup_not_taken", cluster=cluster, reason=reason)
                    self._acknowledge(cluster, echo, reason)
                case wants.ClusterChanged(cluster=cluster):
                    self.picture.touch_cluster(cluster)
                    self.filing.cluster(cluster, self.demand.kept(cluster, self.clocks.now()))
                case wants.NodesChanged(nodes=names):
                    machines = (self.supply.by_node(name) for name in names)
                    self.picture.touch_all(machine.id for machine in machines if machine is not None)
                case wants.MachinesChanged(cluster=cluster):
                    self.picture.touch_all(self.holdings.of(cluster))
                case wants.QuarantineChanged(cluster=cluster, quarantined=quarantined):
                    self.metrics.rollup_quarantined.of(cluster).set(quarantined)
                case wants.EarlyCycle():
                    self.orders.append(DecideSoon())

    def _rolled_up(self, cluster: str, rollup: Rollup, now: float) -> None:
        bound = () if self.demand.reported(cluster) else total_bound(self._bound(cluster))
        self.wanted(self.demand.rolled_up(cluster, rollup, bound, now))
        if self.demand.rollup(cluster) is rollup:
            self.available.rolled_up(cluster, (need.profile for need in rollup.needs), now)

    def _bound(self, cluster: str) -> Iterable[tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]]:
        for machine_id in self.holdings.of(cluster):
            machine = self.supply.find(machine_id)
            if machine is not None and machine.cluster == cluster:
                verdict = from_metadata(machine.shard_metadata)
                yield machine.usable, verdict.stamp.key.unit if isinstance(verdict, Binding) else ()

    def _opened(self, cluster: str, features: frozenset[str], replaced: bool, now: float) -> None:
        _log.info("session_opened", cluster=cluster, features=sorted(features), replaced=replaced)
        self.metrics.session_lifecycle.of("replaced" if replaced else "installed").inc()
        self.metrics.active_sessions.set(len(self.sessions))
        self.wanted(self.demand.session_opened(cluster))
        self.readied(self.readiness.session_opened(cluster, NODE_READY in features, now))
        asked = [*self.execute.unanswered(cluster, now), *self.recovery.unanswered(cluster, now)]
        self.talk.connected(cluster, features, asked, now)
        self.executed(self.execute.session_opened(now))

    def _closed(self, cluster: str, now: float) -> None:
        if self.sessions.of(cluster) is not None:
            # The end of one that is over was heard after the next had begun.
            return
        _log.info("session_closed", cluster=cluster)
        self.metrics.session_lifecycle.of("removed").inc()
        self.metrics.active_sessions.set(len(self.sessions))
        self.wanted(self.demand.session_closed(cluster, now))
        self.readiness.session_closed(cluster, now)
        self.talk.disconnected(cluster)

    def _acknowledge(self, cluster: str, echo: str, reason: str) -> None:
        frame = messages.acknowledgement(echo, reason, self.epoch, self.short.get(cluster, ()))
        self.talk.send(cluster, frame, self.clocks.now())

    def _answered(self, request_id: str, now: float) -> None:
        commitment = self.books.behind_request(request_id)
        if commitment is not None:
            self.metrics.request_bootstrap.observe(now - commitment.began)

    # Execution.

    def executed(self, effects: Iterable[does.Effect]) -> None:
        """Actions have moved on."""
        for effect in effects:
            match effect:
                case does.Keep(commitment=commitment):
                    self._kept(commitment)
                case does.Ended():
                    self._ended(effect)
                case does.HoldOut(held=held, commitment=commitment):
                    self._held_out(held, commitment)
                case does.Incident(machine=machine, text=text, stop=stop):
                    _log.error("fenced", machine=machine, text=text)
                    if stop:
                        self.stand_down(f"machine {machine!r}: fenced twice with fresh sequences: {text}")
                case _:
                    self._asked(effect)

    def _asked(self, effect: does.Effect) -> None:
        """What somebody outside is to hear."""
        now = self.clocks.now()
        match effect:
            case does.Ask():
                self._call(effect)
            case does.Settle(machine=machine_id, provider=provider):
                self.orders.append(Look(machine_id, provider))
            case does.RequestBlob():
                self.talk.request(effect, now)
            case does.WithdrawBlob(cluster=cluster, request_id=request_id):
                self.talk.send(cluster, messages.bootstrap_withdrawn(request_id), now)
            case does.Instruct():
                self.books.instructed(effect)
                self.talk.instruct(effect, now)
            case does.WithdrawInstruction(cluster=cluster, instruction_id=instruction_id, reason=reason):
                self.books.withdrawn(instruction_id)
                self.talk.send(cluster, messages.reclaim_withdrawn(instruction_id, reason), now)

    def _call(self, ask: does.Ask) -> None:
        if ask.call is Call.DRAIN:
            machine = self.supply.find(ask.machine)
            if machine is not None and machine.cluster and not self.demand.has_session(machine.cluster):
                _log.warning("reclaim fallback", machine=ask.machine, cluster=machine.cluster, grace=ask.grace_seconds)
        self.supply.called(ask.machine)
        self.orders.append(MakeCall(ask))

    def _kept(self, commitment: Commitment) -> None:
        machine_id = commitment.machine
        self.books.kept(commitment)
        self.supply.in_flight(machine_id, True)
        self.filing.commitment(machine_id, commitment)
        self._refile(machine_id)

    def _ended(self, end: does.Ended) -> None:
        commitment, outcome, now = end.commitment, end.outcome, self.clocks.now()
        machine_id = commitment.machine
        self.books.ended(commitment)
        self.supply.in_flight(machine_id, False)
        self.filing.commitment(machine_id, None)
        self._refile(machine_id)
        self.ends.append(end)
        self.metrics.action_execute_outcomes.of(commitment.kind.value, outcome.value).inc()
        if outcome is does.Outcome.DROPPED and commitment.step in (Step.DECIDED, Step.WAITING):
            self.metrics.actions_dropped.inc()
        if outcome is does.Outcome.SUCCESS and commitment.cluster:
            self.holdouts.machine_succeeded(machine_id)
            if commitment.stamp is not None:
                self.holdouts.need_succeeded(commitment.cluster, commitment.stamp.key.fingerprint)
                self.picture.touch_cluster(commitment.cluster)
            if commitment.kind is Kind.PROVISION:
                self.metrics.provisioning_latency.observe(now - commitment.decided)
        elif outcome is does.Outcome.SUCCESS and commitment.kind is Kind.DELETE:
            self.metrics.idle_releases.inc()
        elif outcome is not does.Outcome.SUCCESS and outcome is not does.Outcome.DROPPED:
            _log.warning(
                "action_ended",
                kind=commitment.kind.value,
                machine=machine_id,
                cluster=commitment.cluster or commitment.leaves,
                outcome=outcome.value,
                detail=end.detail[:300],
            )
            if commitment.kind is Kind.DELETE:
                undeletable = outcome is does.Outcome.UNSUPPORTED
                self.picture.keep_idle(
                    machine_id, now + (_UNDELETABLE_SECONDS if undeletable else _REFUSED_IDLE_SECONDS)
                )
            elif outcome in _NOT_AT_ONCE:
                self.holdouts.machine_failed(machine_id, now)
        if outcome is not does.Outcome.SUCCESS and self.readiness.flagged(machine_id):
            # The engine leaves it alone, so nobody else would think of it again.
            self.unready[machine_id] = commitment.leaves
        machine = self.supply.find(machine_id)
        provider = self.supply.provider_of(machine_id)
        if machine is not None and provider is not None and machine.state is _S.FAILED:
            self.cured(self.recovery.failed(machine, provider, now))

    def _refile(self, machine_id: str) -> None:
        machine, provider = self.supply.find(machine_id), self.supply.provider_of(machine_id)
        self._file(machine_id, machine, provider or "")
        self.picture.touch(machine_id)
        self._concern(machine_id, machine, quiet=True)

    def _held_out(self, held: does.Held, commitment: Commitment) -> None:
        now, machine = self.clocks.now(), self.supply.find(commitment.machine)
        match held:
            case does.Held.MACHINE:
                self.holdouts.machine_failed(commitment.machine, now)
            case does.Held.SHAPE if machine is not None:
                self.holdouts.out_of_stock(shape_of(machine), now)
            case does.Held.CREATE if machine is not None:
                self.holdouts.create_failed(shape_of(machine), now)
            case does.Held.NEED if commitment.stamp is not None:
                self.holdouts.need_failed(commitment.cluster, commitment.stamp.key.fingerprint, now)
                self.picture.touch_cluster(commitment.cluster)
            case does.Held.RECLAIM:
                self.rails.hold(commitment.machine, now)
        self.picture.touch(commitment.machine)

    def cured(self, effects: Iterable[cures.Effect]) -> None:
        """Recovery of Failed machines has moved on."""
        for effect in effects:
            match effect:
                case cures.Alert(machine_id=machine_id, since=since):
                    _log.error("machine_stays_failed", machine=machine_id, seconds=round(self.clocks.now() - since))
                case cures.Recovered(machine_id=machine_id):
                    _log.info("machine_recovered", machine=machine_id)
                case _:
                    if isinstance(effect, does.Ask):
                        self.recoveries.append(effect)
                    self.executed([effect])

    def readied(self, effects: Iterable[nodes.Effect]) -> None:
        """What is known of nodes has changed."""
        now = self.clocks.now()
        for effect in effects:
            self.picture.touch(effect.machine_id)
            match effect:
                case nodes.Flagged(machine_id=machine_id):
                    _log.warning("node_not_ready_in_time", machine=machine_id)
                    self.holdouts.machine_failed(machine_id, now)
                case nodes.Cleared(machine_id=machine_id):
                    self.unready.pop(machine_id, None)
                case nodes.Latched(machine_id=machine_id, number=number):
                    self.filing.ready(machine_id, number)
                case nodes.DrainFlagged(machine_id=machine_id, cluster=cluster):
                    self.unready[machine_id] = cluster

    def stand_down(self, reason: str) -> None:
        """Another process is this shard (protocol.md 10)."""
        if not self.stood_down:
            _log.error("shard_fenced", reason=reason, advice="end one of the two processes, then restart this one")
            self.stood_down = reason
            self.orders.append(StandDown(reason))

    def _is_executing(self, ask: does.Ask) -> bool:
        commitment = self.execute.get(ask.machine)
        return commitment is not None and CALLING.get(commitment.step) is ask.call

    def _configured(self, cluster: str) -> int:
        machines = (self.supply.find(machine_id) for machine_id in self.holdings.of(cluster))
        return sum(machine is not None and machine.state is _S.CONFIGURED for machine in machines)

    def _is_empty(self, machine_id: str) -> bool:
        machine = self.supply.find(machine_id)
        return machine is not None and self.demand.node(machine.cluster, node_name(machine))[0]


def _paid(machine: Machine | None) -> float:
    return 0.0 if machine is None or machine.state is _S.SPECULATIVE else machine.price_per_hour


def _looks_alike(before: Machine | None, after: Machine | None) -> bool:
    """Whether a cluster sees no difference between two records of a machine."""
    if before is None or after is None:
        return False
    fields = ("state", "cluster", "host", "labels", "resources", "allocatable", "last_error")
    return all(getattr(before, field) == getattr(after, field) for field in fields)
