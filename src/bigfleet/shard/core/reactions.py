"""How the parts react to each other: the effects of one part become events of others, or orders to the shell.

Only `Core` uses this. It holds no rule of a part, and nothing of its own but lines for the audit log.
"""

from collections.abc import Iterable

import structlog

from bigfleet.engine.records import Kind
from bigfleet.model.demand.need import Rollup
from bigfleet.model.machine import Call, Machine, MachineState
from bigfleet.model.resources import Resources
from bigfleet.shard.core.parts import Clocks, Parts
from bigfleet.shard.decision.holdouts import shape_of
from bigfleet.shard.demand import effects as demand_effects
from bigfleet.shard.demand.rollup_guard import total_bound
from bigfleet.shard.execution import effects as execution_effects
from bigfleet.shard.execution import recovery as recovery_effects
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.execution.effects import Ended, Held, Outcome, ProviderCall
from bigfleet.shard.execution.steps import UNSENT
from bigfleet.shard.orders import DecideSoon, GetMachine, MakeCall, StandDown
from bigfleet.shard.sessions import messages
from bigfleet.shard.sessions import node_readiness as readiness_effects
from bigfleet.shard.supply import known as supply_effects
from bigfleet.shard.supply.stamps import Binding, from_metadata, number_of
from bigfleet.shard.supply.table import node_name
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.wire.hello import NODE_READY

_log = structlog.get_logger("bigfleet.shard")

_S = MachineState

_REFUSED_IDLE_SECONDS = 60.0
"""How long a machine is not given back after its provider refused a Delete."""

_UNDELETABLE_SECONDS = 3600.0
"""How long a machine is not given back whose provider has no Delete."""

_NOT_AT_ONCE = frozenset({Outcome.REFUSED, Outcome.MISMATCH, Outcome.FENCED})
"""Outcomes after which the same action would end the same way, if the same machine were chosen at once."""

_SHOWN_ERROR, _SHOWN_DETAIL = 200, 300
"""How many characters of a provider's words a log line holds."""

_SEEN_BY_CLUSTERS = ("state", "cluster", "host", "labels", "resources", "allocatable", "last_error")
"""The fields of a machine that its cluster is told."""


class Reactions:
    """Carries effects from part to part until none is left."""

    def __init__(self, parts: Parts, clocks: Clocks, metrics: ShardMetrics) -> None:
        self._parts, self._clocks, self._metrics = parts, clocks, metrics
        #: Commitments that have ended since the audit log was last written.
        self.ended: list[Ended] = []
        #: Calls out of Failed that were made since the audit log was last written.
        self.recovery_calls: list[ProviderCall] = []

    # Supply.

    def after_supply(self, effects: Iterable[supply_effects.Effect]) -> None:
        """Carry out what supply wants done."""
        for effect in effects:
            match effect:
                case supply_effects.Changed():
                    self._changed(effect)
                case supply_effects.Doubt(machine_id=machine_id, provider=provider):
                    self._parts.orders.append(GetMachine(machine_id, provider))
                case supply_effects.UnaskedDrain(machine_id=machine_id):
                    _log.warning("machine_taken_back", machine=machine_id)
                    self.after_lifecycle(self._parts.lifecycle.taken_back(machine_id, self._clocks.now()))
                case supply_effects.Incident(kind=kind, machine_id=machine_id, text=text):
                    _log.warning("supply_incident", kind=kind, machine=machine_id, text=text)
                    if kind is supply_effects.IncidentKind.HIGHER_EPOCH:
                        self._stand_down(f"machine {machine_id!r}: {text}")

    def _changed(self, changed: supply_effects.Changed) -> None:
        parts, now = self._parts, self._clocks.now()
        machine_id, before, after = changed.machine_id, changed.before, changed.after
        parts.engine_input.touch(machine_id)
        moved = before is None or after is None or before.state is not after.state
        if after is not None and after.cluster and (before is None or before.cluster != after.cluster):
            self.after_demand(parts.demand.met(after.cluster))
        self._watch_node(changed, now)
        if _has_vanished(before, after) and parts.commitments.get(machine_id) is None:
            self._metrics.machines_vanished.of(changed.provider).inc()
            parts.vanished.lost(changed.provider, "" if before is None else before.cluster, now)
        if moved:
            self._moved(changed, now)
        self._write_machine(machine_id, after, changed.provider)
        self._concern(machine_id, before, quiet=not moved and _looks_alike(before, after))
        if parts.commitments.get(machine_id) is not None:
            self.after_lifecycle(parts.lifecycle.moved(machine_id, now))

    def _watch_node(self, changed: supply_effects.Changed, now: float) -> None:
        """Tell readiness when a binding begins and ends. That a Node was Ready counts until its binding ends."""
        readiness, machine_id = self._parts.readiness, changed.machine_id
        before, after = changed.before, changed.after
        if before is not None and before.cluster:
            left = after is None or after.cluster != before.cluster
            if after is not None and before.state is _S.CONFIGURED and after.state in (_S.DRAINING, _S.FAILED):
                left = left or not readiness.seen_ready(machine_id)
            if left:
                self._parts.pending_writes.ready(machine_id, None)
                self.after_readiness(readiness.unbound(machine_id))
        if after is not None and after.state is _S.CONFIGURED:
            number = number_of(after.shard_metadata)
            self.after_readiness(readiness.bound(machine_id, after.cluster, number, now))

    def _moved(self, changed: supply_effects.Changed, now: float) -> None:
        """The machine has changed its state."""
        parts, machine_id, before, after = self._parts, changed.machine_id, changed.before, changed.after
        was = None if before is None else before.state
        parts.durations.moved(machine_id, after, now)
        parts.startup.moved(machine_id)
        if was is _S.IDLE:
            parts.pending_writes.idle(machine_id, None)
        if was is _S.FAILED:
            self.after_recovery(parts.recovery.left(machine_id))
        if after is None:
            return
        match after.state:
            case _S.IDLE:
                parts.pending_writes.idle(machine_id, float(parts.supply.idle_since(machine_id)))
                if was is _S.CREATING:
                    parts.holdouts.create_succeeded(shape_of(after))
            case _S.FAILED:
                error = after.last_error[:_SHOWN_ERROR]
                _log.warning("machine_failed", machine=machine_id, error=error, cluster=after.cluster)
                parts.holdouts.machine_failed(machine_id, now, after.last_error)
                self.after_recovery(parts.recovery.failed(after, changed.provider, now))

    def _write_machine(self, machine_id: str, machine: Machine | None, provider: str) -> None:
        """Have bound and committed machines on file as they were last seen."""
        is_committed = self._parts.commitments.get(machine_id) is not None
        written = machine if machine is not None and (machine.cluster or is_committed) else None
        self._parts.pending_writes.machine(machine_id, written, provider)

    def _concern(self, machine_id: str, before: Machine | None = None, *, quiet: bool = False) -> None:
        """Tell the machine's clusters its state, and tell a cluster that it has left that it has left.

        `quiet` says that clusters which knew of the machine would see no difference.
        """
        parts, now = self._parts, self._clocks.now()
        machine, commitment = parts.supply.find(machine_id), parts.commitments.get(machine_id)
        clusters: set[str] = set()
        if machine is not None:
            clusters = {machine.cluster, "" if commitment is None else commitment.cluster} - {""}
        known = parts.machine_index.clusters(machine_id)
        left = parts.machine_index.concern(machine_id, clusters, now)
        for cluster in sorted(clusters):
            if machine is not None and not (quiet and cluster in known):
                parts.sender.show(machine, cluster, now)
        for cluster in sorted(left):
            last = machine or before
            if last is not None:
                drained = machine is not None and before is not None and before.cluster == cluster
                parts.sender.take_leave(last, cluster, drained=drained, there=machine is not None, now=now)
            if not parts.machine_index.of(cluster):
                self.unbound(cluster, now)

    def unbound(self, cluster: str, now: float) -> None:
        """The last machine has left the cluster. A cluster that was forgotten is then no longer known."""
        parts = self._parts
        parts.demand.unbound(cluster)
        kept = parts.demand.kept(cluster, now)
        parts.pending_writes.cluster(cluster, kept)
        if kept is None:
            parts.available.forget(cluster)
            parts.sender.forget(cluster)
            for family in (self._metrics.rollup_quarantined, self._metrics.rollups_rejected):
                family.forget(cluster)

    # Demand and sessions.

    def after_demand(self, effects: Iterable[demand_effects.Effect]) -> None:
        """Carry out what demand wants done."""
        parts = self._parts
        for effect in effects:
            match effect:
                case demand_effects.Replace(cluster=cluster, needs=needs, arrivals=arrivals):
                    parts.engine_input.replace(cluster, needs, arrivals)
                    parts.pending_writes.cluster(cluster, parts.demand.kept(cluster, self._clocks.now()))
                case demand_effects.Acknowledge(cluster=cluster, echo=echo, reason=reason):
                    if effect.is_news:
                        _log.warning("rollup_not_taken", cluster=cluster, reason=reason)
                    self.acknowledge(cluster, echo, reason)
                case demand_effects.ClusterChanged(cluster=cluster):
                    parts.engine_input.touch_cluster(cluster)
                    parts.pending_writes.cluster(cluster, parts.demand.kept(cluster, self._clocks.now()))
                case demand_effects.NodesChanged(nodes=names):
                    machines = (parts.supply.by_node(name) for name in names)
                    parts.engine_input.touch_all(machine.id for machine in machines if machine is not None)
                case demand_effects.MachinesChanged(cluster=cluster):
                    parts.engine_input.touch_all(parts.machine_index.of(cluster))
                case demand_effects.QuarantineChanged(cluster=cluster, quarantined=quarantined):
                    self._metrics.rollup_quarantined.of(cluster).set(quarantined)
                case demand_effects.EarlyCycle():
                    parts.orders.append(DecideSoon())

    def rolled_up(self, cluster: str, rollup: Rollup, now: float) -> None:
        """A well-formed roll-up has come."""
        parts = self._parts
        bound = () if parts.demand.reported(cluster) else total_bound(self._bound(cluster))
        self.after_demand(parts.demand.rolled_up(cluster, rollup, bound, now, self._clocks.wall()))
        if parts.demand.rollup(cluster) is rollup:
            parts.available.rolled_up(cluster, (need.profile for need in rollup.needs), now)

    def _bound(self, cluster: str) -> Iterable[tuple[Resources, Resources]]:
        """The usable resources of the cluster's machines, and the unit on each one's stamp."""
        for machine_id in self._parts.machine_index.of(cluster):
            machine = self._parts.supply.find(machine_id)
            if machine is not None and machine.cluster == cluster:
                reading = from_metadata(machine.shard_metadata)
                yield machine.usable, reading.stamp.key.unit if isinstance(reading, Binding) else ()

    def session_opened(self, cluster: str, features: frozenset[str], replaced: bool, now: float) -> None:
        """The cluster's operator has connected."""
        parts = self._parts
        _log.info("session_opened", cluster=cluster, features=sorted(features), replaced=replaced)
        self._metrics.session_lifecycle.of("replaced" if replaced else "installed").inc()
        self._metrics.active_sessions.set(len(parts.sessions))
        self.after_demand(parts.demand.session_opened(cluster))
        self.after_readiness(parts.readiness.session_opened(cluster, NODE_READY in features, now))
        asked = [*parts.lifecycle.unanswered(cluster, now), *parts.recovery.unanswered(cluster, now)]
        parts.sender.connected(cluster, features, asked, now)
        self.after_lifecycle(parts.lifecycle.session_opened(now))

    def session_closed(self, cluster: str, now: float) -> None:
        """The cluster's session has ended."""
        parts = self._parts
        if parts.sessions.of(cluster) is not None:
            # The end of a session was heard after the next session of the cluster had begun.
            return
        _log.info("session_closed", cluster=cluster)
        self._metrics.session_lifecycle.of("removed").inc()
        self._metrics.active_sessions.set(len(parts.sessions))
        self.after_demand(parts.demand.session_closed(cluster, now))
        parts.readiness.session_closed(cluster, now)
        parts.sender.disconnected(cluster)

    def acknowledge(self, cluster: str, echo: str, reason: str) -> None:
        """Tell an operator what became of its roll-up."""
        parts = self._parts
        frame = messages.acknowledgement(echo, reason, parts.actuation.epoch, parts.shortfalls.of(cluster))
        parts.sender.send(cluster, frame, self._clocks.now())

    # Execution.

    def after_lifecycle(self, effects: Iterable[execution_effects.Effect]) -> None:
        """Carry out what commitments want done."""
        for effect in effects:
            match effect:
                case execution_effects.Keep(commitment=commitment):
                    self._keep(commitment)
                case Ended():
                    self._end(effect)
                case execution_effects.HoldOut():
                    self._hold_out(effect)
                case execution_effects.Fenced(machine=machine, text=text, stop=stop):
                    _log.error("fenced", machine=machine, text=text)
                    if stop:
                        self._stand_down(f"machine {machine!r}: fenced twice with fresh sequences: {text}")
                case _:
                    self._send(effect)

    def _send(self, effect: execution_effects.Effect) -> None:
        """Send what a provider or an operator is to hear."""
        parts, now = self._parts, self._clocks.now()
        match effect:
            case ProviderCall():
                self._call(effect)
            case execution_effects.Settle(machine=machine_id, provider=provider):
                parts.orders.append(GetMachine(machine_id, provider))
            case execution_effects.RequestBlob():
                parts.sender.request(effect, now)
            case execution_effects.WithdrawBlob(cluster=cluster, request_id=request_id):
                parts.sender.send(cluster, messages.bootstrap_withdrawn(request_id), now)
            case execution_effects.Instruct():
                parts.sender.instruct(effect, now)
            case execution_effects.WithdrawInstruction(cluster=cluster, instruction_id=instruction_id, reason=reason):
                parts.sender.send(cluster, messages.reclaim_withdrawn(instruction_id, reason), now)

    def _call(self, call: ProviderCall) -> None:
        parts = self._parts
        if call.call is Call.DRAIN:
            machine = parts.supply.find(call.machine)
            if machine is not None and machine.cluster and not parts.demand.has_session(machine.cluster):
                _log.warning(
                    "reclaim fallback", machine=call.machine, cluster=machine.cluster, grace=call.grace_seconds
                )
        parts.supply.called(call.machine)
        parts.orders.append(MakeCall(call))

    def _keep(self, commitment: Commitment) -> None:
        machine_id = commitment.machine
        self._parts.supply.in_flight(machine_id, True)
        self._parts.pending_writes.commitment(machine_id, commitment)
        self._commitment_changed(machine_id)

    def _end(self, end: Ended) -> None:
        parts, now = self._parts, self._clocks.now()
        commitment, outcome = end.commitment, end.outcome
        machine_id = commitment.machine
        parts.supply.in_flight(machine_id, False)
        parts.pending_writes.commitment(machine_id, None)
        self._commitment_changed(machine_id)
        self.ended.append(end)
        self._count_end(end, now)
        if outcome is Outcome.SUCCESS and commitment.cluster:
            parts.holdouts.machine_succeeded(machine_id)
            if commitment.stamp is not None:
                parts.holdouts.need_succeeded(commitment.cluster, commitment.stamp.key.fingerprint)
                parts.engine_input.touch_cluster(commitment.cluster)
        elif outcome not in (Outcome.SUCCESS, Outcome.DROPPED):
            if commitment.kind is Kind.DELETE:
                undeletable = outcome is Outcome.UNSUPPORTED
                seconds = _UNDELETABLE_SECONDS if undeletable else _REFUSED_IDLE_SECONDS
                parts.engine_input.keep_idle(machine_id, now + seconds)
            elif outcome in _NOT_AT_ONCE:
                parts.holdouts.machine_failed(machine_id, now, end.detail)
        if outcome is not Outcome.SUCCESS:
            parts.readiness.drain_ended(machine_id)
        machine, provider = parts.supply.find(machine_id), parts.supply.provider_of(machine_id)
        if machine is not None and provider is not None and machine.state is _S.FAILED:
            self.after_recovery(parts.recovery.failed(machine, provider, now))

    def _count_end(self, end: Ended, now: float) -> None:
        commitment, outcome, metrics = end.commitment, end.outcome, self._metrics
        metrics.action_execute_outcomes.of(commitment.kind.value, outcome.value).inc()
        if outcome is Outcome.DROPPED and commitment.step in UNSENT:
            metrics.actions_dropped.inc()
        if outcome is Outcome.SUCCESS and commitment.cluster and commitment.kind is Kind.PROVISION:
            metrics.provisioning_latency.observe(now - commitment.decided)
        elif outcome is Outcome.SUCCESS and not commitment.cluster and commitment.kind is Kind.DELETE:
            metrics.idle_releases.inc()
        elif outcome not in (Outcome.SUCCESS, Outcome.DROPPED):
            _log.warning(
                "action_ended",
                kind=commitment.kind.value,
                machine=commitment.machine,
                cluster=commitment.cluster or commitment.leaves,
                outcome=outcome.value,
                detail=end.detail[:_SHOWN_DETAIL],
            )

    def _commitment_changed(self, machine_id: str) -> None:
        """The machine's commitment has changed: the file, the engine and the clusters see the machine anew."""
        parts = self._parts
        machine, provider = parts.supply.find(machine_id), parts.supply.provider_of(machine_id)
        self._write_machine(machine_id, machine, provider or "")
        parts.engine_input.touch(machine_id)
        self._concern(machine_id, machine, quiet=True)

    def _hold_out(self, effect: execution_effects.HoldOut) -> None:
        parts, now, commitment, said = self._parts, self._clocks.now(), effect.commitment, effect.said
        machine = parts.supply.find(commitment.machine)
        match effect.held:
            case Held.MACHINE:
                parts.holdouts.machine_failed(commitment.machine, now, said)
            case Held.SHAPE if machine is not None:
                parts.holdouts.out_of_stock(shape_of(machine), now, said)
            case Held.CREATE if machine is not None:
                parts.holdouts.create_failed(shape_of(machine), now, said)
            case Held.NEED if commitment.stamp is not None:
                parts.holdouts.need_failed(commitment.cluster, commitment.stamp.key.fingerprint, now, said)
                parts.engine_input.touch_cluster(commitment.cluster)
            case Held.RECLAIM:
                parts.rails.hold(commitment.machine, now)
        parts.engine_input.touch(commitment.machine)

    def after_recovery(self, effects: Iterable[recovery_effects.Effect]) -> None:
        """Carry out what the recovery of Failed machines wants done."""
        for effect in effects:
            match effect:
                case recovery_effects.Alert(machine_id=machine_id, since=since):
                    seconds = round(self._clocks.now() - since)
                    _log.error("machine_stays_failed", machine=machine_id, seconds=seconds)
                case recovery_effects.Recovered(machine_id=machine_id):
                    _log.info("machine_recovered", machine=machine_id)
                case _:
                    if isinstance(effect, ProviderCall):
                        self.recovery_calls.append(effect)
                    self.after_lifecycle([effect])

    def after_readiness(self, effects: Iterable[readiness_effects.Effect]) -> None:
        """Carry out what the readiness of Nodes wants done."""
        parts, now = self._parts, self._clocks.now()
        for effect in effects:
            parts.engine_input.touch(effect.machine_id)
            match effect:
                case readiness_effects.Flagged(machine_id=machine_id):
                    _log.warning("node_not_ready_in_time", machine=machine_id)
                    parts.holdouts.machine_failed(machine_id, now, "its Node was not Ready in time")
                case readiness_effects.Latched(machine_id=machine_id, number=number):
                    parts.pending_writes.ready(machine_id, number)

    def _stand_down(self, reason: str) -> None:
        """Another process is this shard (protocol rule 10)."""
        if self._parts.actuation.stand_down(reason):
            _log.error("shard_fenced", reason=reason, advice="end one of the two processes, then restart this one")
            self._parts.orders.append(StandDown(reason))

    # Questions of readiness.

    def configured(self, cluster: str) -> int:
        """How many machines of the cluster are Configured."""
        machines = (self._parts.supply.find(machine_id) for machine_id in self._parts.machine_index.of(cluster))
        return sum(machine is not None and machine.state is _S.CONFIGURED for machine in machines)

    def is_empty(self, machine_id: str) -> bool:
        """Whether the machine's node runs no pod."""
        machine = self._parts.supply.find(machine_id)
        return machine is not None and self._parts.demand.node(machine.cluster, node_name(machine))[0]


def _has_vanished(before: Machine | None, after: Machine | None) -> bool:
    """Whether a machine that a cluster used is gone, or is there as if it had never been used."""
    if before is None or not before.cluster or before.state not in (_S.CONFIGURING, _S.CONFIGURED):
        return False
    return after is None or (not after.cluster and after.state in (_S.SPECULATIVE, _S.IDLE))


def _looks_alike(before: Machine | None, after: Machine | None) -> bool:
    """Whether a cluster sees no difference between two records of a machine."""
    if before is None or after is None:
        return False
    return all(getattr(before, field) == getattr(after, field) for field in _SEEN_BY_CLUSTERS)
