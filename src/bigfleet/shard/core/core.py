"""The shard without I/O. `Core` is the only door by which its parts change: every public method is an event.

What an event wants done outside waits in the orders for the shell. The engine is not here: the shell takes an update to
it and brings its decision back, so that events go on while the engine decides.
"""

from collections.abc import Iterable, Mapping

import msgspec
import structlog

from bigfleet.engine.available import Available
from bigfleet.engine.records import Action, Kind
from bigfleet.model.machine import Machine, MachineState
from bigfleet.provider.records import Ack, Answer, Listing
from bigfleet.shard.core.parts import Clocks, Parts, Settings
from bigfleet.shard.core.reactions import Reactions
from bigfleet.shard.decision.engine_input import EngineUpdate
from bigfleet.shard.decision.shortfalls import ShortfallReport, ShortNeed
from bigfleet.shard.demand.table import LIVE_SECONDS
from bigfleet.shard.execution.commitment import resumed
from bigfleet.shard.execution.effects import Ended, Held, Problem, ProviderCall
from bigfleet.shard.execution.steps import AT_PROVIDER, CALLING
from bigfleet.shard.orders import EndStream, GetMachine, Order
from bigfleet.shard.persistence.kept import Batch, Kept, Values
from bigfleet.shard.sessions import outputs
from bigfleet.shard.sessions.session import Session
from bigfleet.shard.supply.stamps import Binding
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.transport.identity import Identity
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_log = structlog.get_logger("bigfleet.shard")

_POLL_SECONDS = 60.0
"""How often machines are looked at that have been under way for so long."""

_SILENCE_SECONDS = 1800.0
"""How often the file is told how long clusters have been without a session."""

_NAMED_CLUSTERS = 10
"""How many clusters a line about lost machines names."""

_SHOWN_NAME = 100
"""How many characters of a name in an operator's frame a log line holds."""


class Core:
    """One shard. Whoever else needs a fact reads it from `parts`; nobody else changes one."""

    def __init__(self, settings: Settings, epoch: int, kept: Kept, clocks: Clocks, metrics: ShardMetrics) -> None:
        self.settings, self.clocks, self.metrics = settings, clocks, metrics
        self.parts = Parts.restored(settings, epoch, kept, clocks, metrics)
        self._reactions = Reactions(self.parts, clocks, metrics)
        self._polled = self._silence_written = clocks.now()
        self._idle_on_file = frozenset(kept.idle)
        # Clusters with excess of which the decision that is being made says nothing.
        self._undecided: frozenset[str] = frozenset()
        # Clusters that the decision knows commitments of, and whose first roll-up is still awaited.
        self._awaited: frozenset[str] = frozenset()
        self._restore(kept, clocks.now())

    def _restore(self, kept: Kept, now: float) -> None:
        parts = self.parts
        self.metrics.actuation_paused.set(parts.actuation.paused)
        self.metrics.local_file_writable.set(1)
        for provider in self.settings.providers:
            self.metrics.provider_reachable.of(provider).set(0)
        parts.supply.resume_idle({machine_id: kept.written - since for machine_id, since in kept.idle.items()}, now)
        by_provider: dict[str, dict[str, Machine]] = {}
        for machine_id, (provider, machine) in kept.machines.items():
            by_provider.setdefault(provider, {})[machine_id] = machine
        away = self.clocks.wall() - kept.wall
        commitments = [resumed(each, kept.written, away, now) for each in kept.commitments.values()]
        if parts.actuation.held:
            # A pause counts for no time-out. How much of a commitment's time was a pause is not on file.
            commitments = [msgspec.structs.replace(each, began=now, doubted=None) for each in commitments]
        for commitment in commitments:
            parts.supply.in_flight(commitment.machine, True)
            # The file gets the times on this life's clock, like everything else that this life writes.
            parts.pending_writes.commitment(commitment.machine, commitment)
        for machine_id, since in kept.idle.items():
            parts.pending_writes.idle(machine_id, since + now - kept.written)
        # Commitments come before machines, so that committed machines which are not bound yet stay on file.
        self._reactions.after_lifecycle(parts.lifecycle.restore(commitments, now))
        for commitment in parts.commitments:
            if commitment.stamp is not None:
                parts.supply.numbered(commitment.stamp.number)
        for provider, machines in by_provider.items():
            # Until the provider has listed, its machines count as the file last knew them, and none is acted on.
            listing = Listing(machines, (), b"", full=False, began=now)
            self._reactions.after_supply(parts.supply.listed(provider, listing, now))
            parts.supply.provider_lost(provider)
        for cluster in parts.demand:
            parts.engine_input.touch_cluster(cluster)

    # What providers say.

    def listed(self, provider: str, listing: Listing) -> None:
        """A List has ended, or a slice of one has come. A slice is not `full`."""
        parts = self.parts
        first, was_reachable = not parts.supply.has_listed(provider), parts.supply.is_reachable(provider)
        epoch = None if first else parts.actuation.epoch
        self.metrics.provider_reachable.of(provider).set(1)
        self._reactions.after_supply(parts.supply.listed(provider, listing, self.clocks.now(), epoch))
        if listing.full and parts.startup.has_listed_all():
            self._drop_stale()
        if first and listing.full:
            parts.startup.listed_first(parts.supply.machines_of(provider))
        if not was_reachable:
            parts.engine_input.touch_all(machine.id for machine in parts.supply.machines_of(provider))

    def _drop_stale(self) -> None:
        """Every provider has listed: erase what the file says of machines and is no longer so."""
        parts = self.parts
        for machine_id in self._idle_on_file:
            machine = parts.supply.find(machine_id)
            if machine is None or machine.state is not MachineState.IDLE:
                parts.pending_writes.idle(machine_id, None)
        for machine_id in list(parts.readiness.latched()):
            machine = parts.supply.find(machine_id)
            if machine is None or not machine.cluster:
                parts.pending_writes.ready(machine_id, None)
                self._reactions.after_readiness(parts.readiness.unbound(machine_id))
        self._idle_on_file = frozenset()

    def provider_lost(self, provider: str, problem: str = "") -> None:
        """The provider does not answer, for this reason."""
        supply = self.parts.supply
        self.metrics.provider_reachable.of(provider).set(0)
        was_reachable = supply.is_reachable(provider)
        supply.provider_lost(provider, problem)
        if was_reachable:
            self.parts.engine_input.touch_all(machine.id for machine in supply.machines_of(provider))

    def got(self, provider: str, machine_id: str, answer: Answer | None, began: float) -> None:
        """A Get was answered; None says that there is no such machine."""
        parts, now = self.parts, self.clocks.now()
        late = parts.supply.is_late(provider, machine_id, began)
        epoch = parts.actuation.epoch if parts.supply.has_listed(provider) else None
        self._reactions.after_supply(parts.supply.got(provider, machine_id, answer, began, now, epoch))
        if late:
            # The machine was heard of after the Get began, so the answer settles nothing.
            parts.orders.append(GetMachine(machine_id, provider))
            return
        self._reactions.after_lifecycle(parts.lifecycle.settled(machine_id, now))
        self._reactions.after_recovery(parts.recovery.settled(machine_id, now))

    def acknowledged(self, call: ProviderCall, ack: Ack) -> None:
        """A call was acknowledged, and its ack fits."""
        parts, now = self.parts, self.clocks.now()
        self._take_ack(call, ack, now)
        if self._is_committed(call):
            self._reactions.after_lifecycle(parts.lifecycle.acknowledged(call.machine, now))
        else:
            self._reactions.after_recovery(parts.recovery.acknowledged(call.machine, now))

    def call_failed(self, call: ProviderCall, problem: Problem, text: str, ack: Ack | None = None) -> None:
        """A call brought no ack that fits. An ack that does not fit still tells the truth about the machine."""
        parts, now = self.parts, self.clocks.now()
        if ack is None:
            parts.supply.unanswered(call.machine, now)
        else:
            self._take_ack(call, ack, now)
        if self._is_committed(call):
            self._reactions.after_lifecycle(parts.lifecycle.call_failed(call.machine, problem, text))
        else:
            self._reactions.after_recovery(parts.recovery.call_failed(call.machine, problem, now))

    def _take_ack(self, call: ProviderCall, ack: Ack, now: float) -> None:
        epoch = self.parts.actuation.epoch
        self._reactions.after_supply(self.parts.supply.acknowledged(call.machine, ack.machine, ack.refused, now, epoch))

    def epoch_raised(self, epoch: int) -> None:
        """A higher epoch was taken, is durable, and is carried by every later call."""
        self.parts.actuation.raise_epoch(epoch)

    def awaits(self, provider: str) -> bool:
        """Whether a machine of the provider is under way."""
        committed = any(commitment.provider == provider for commitment in self.parts.commitments)
        return committed or self.parts.recovery.awaits(provider)

    def is_wanted(self, call: ProviderCall) -> bool:
        """Whether a call that waited for its turn is still to be made."""
        if self.parts.actuation.stood_down or self.clocks.now() > call.until:
            return False
        return self._is_committed(call) or self.parts.recovery.wants(call)

    def _is_committed(self, call: ProviderCall) -> bool:
        """Whether the call is a commitment's; otherwise it is a recovery's."""
        commitment = self.parts.commitments.get(call.machine)
        return commitment is not None and CALLING.get(commitment.step) is call.call

    def binding(self, call: ProviderCall) -> Binding:
        """The binding that a Configure stamps on its machine."""
        if call.stamp is None:
            raise ValueError(f"machine {call.machine!r}: a Configure without a stamp")
        return Binding(call.stamp, self.settings.shard_id, self.parts.actuation.epoch, int(self.clocks.wall()))

    # What operators say.

    def stream(self, peer: Identity | None) -> Session:
        """A stream has begun."""
        return self.parts.sessions.stream(peer, self.clocks.now())

    def said(self, heard: Iterable[outputs.Output]) -> None:
        """A stream brought this."""
        now = self.clocks.now()
        for output in heard:
            match output:
                case outputs.Opened(cluster=cluster, features=features, replaced=replaced):
                    self._reactions.session_opened(cluster, features, replaced, now)
                case outputs.SessionEnded(cluster=cluster):
                    self._reactions.session_closed(cluster, now)
                case outputs.RolledUp(cluster=cluster, rollup=rollup):
                    self._reactions.rolled_up(cluster, rollup, now)
                case outputs.RollupRefused(cluster=cluster, reason=reason):
                    _log.warning("rollup_refused", cluster=cluster, reason=reason)
                    self.metrics.rollups_rejected.of(cluster).inc()
                    self._reactions.acknowledge(cluster, "", reason)
                case outputs.IdentityRefused(cluster=cluster, reason=reason):
                    _log.warning("session_identity_refused", cluster=cluster, reason=reason)
                    self.metrics.session_identity_rejected.inc()
                case outputs.Strayed(cluster=cluster, thing=thing, name=name):
                    _log.info("frame_about_unknown_thing", cluster=cluster, thing=thing, name=name[:_SHOWN_NAME])
                case outputs.Send(cluster=cluster, frame=frame):
                    self.parts.sender.send(cluster, frame, now)
                case outputs.Close(stream=stream, code=code, reason=reason):
                    self.parts.orders.append(EndStream(stream, code, reason))
                case outputs.NodeReady(cluster=cluster, machine=machine, state=state):
                    readiness = self.parts.readiness
                    self._reactions.after_readiness(readiness.reported(machine, cluster, state, now))
                case _:
                    self._answered(output, now)

    def _answered(self, output: outputs.Output, now: float) -> None:
        """An operator has answered a request or an instruction."""
        reactions, lifecycle, recovery = self._reactions, self.parts.lifecycle, self.parts.recovery
        match output:
            case outputs.BlobAnswered(request=request, user_data=blob, ttl_seconds=ttl):
                self._observe_answer(request, now)
                reactions.after_lifecycle(lifecycle.blob_answered(request, blob, ttl, now))
            case outputs.BlobFailed(cluster=cluster, request=request, error=error, about_machine=about_machine):
                self._observe_answer(request, now)
                _log.warning("bootstrap_refused", cluster=cluster, request=request, error=error)
                held = Held.MACHINE if about_machine else Held.NEED
                reactions.after_lifecycle(lifecycle.blob_failed(request, error, held))
            case outputs.ReclaimAcked(instruction=instruction):
                reactions.after_lifecycle(lifecycle.reclaim_acked(instruction, now))
                reactions.after_recovery(recovery.reclaim_acked(instruction, now))
            case outputs.NodeDrained(instruction=instruction, empty=True):
                reactions.after_lifecycle(lifecycle.node_drained(instruction, now))
                reactions.after_recovery(recovery.node_drained(instruction, now))
            case outputs.NodeDrained(instruction=instruction, reason=reason):
                reactions.after_lifecycle(lifecycle.node_not_drained(instruction, reason))
                reactions.after_recovery(recovery.node_not_drained(instruction, now))

    def _observe_answer(self, request_id: str, now: float) -> None:
        commitment = self.parts.commitments.behind_request(request_id)
        if commitment is not None:
            self.metrics.request_bootstrap.observe(now - commitment.began)

    # Time and people.

    def tick(self) -> None:
        """Time has passed. The shell says so before every decision."""
        parts, reactions, now = self.parts, self._reactions, self.clocks.now()
        reactions.after_demand(parts.demand.tick(now))
        reactions.after_lifecycle(parts.lifecycle.tick(now))
        reactions.after_recovery(parts.recovery.tick(now))
        reactions.after_readiness(parts.readiness.tick(now, reactions.configured, reactions.is_empty))
        for cluster in sorted({commitment.cluster or commitment.leaves for commitment in parts.commitments} - {""}):
            # After a restart no cluster is live before its session, and operators need a moment to come back.
            if not parts.demand.live(cluster) and parts.demand.away_seconds(cluster, now) >= LIVE_SECONDS:
                reactions.after_lifecycle(parts.lifecycle.not_live(cluster))
        for cluster in parts.rails.tick(now):
            parts.engine_input.touch_cluster(cluster)
        parts.engine_input.tick(now)
        self._write_silence(now)
        parts.machine_index.forget(now)
        self._tell_losses(now)
        parts.orders.extend(GetMachine(doubt.machine_id, doubt.provider) for doubt in parts.supply.doubts())
        self._poll(now)

    def _tell_losses(self, now: float) -> None:
        """Say aloud that machines in use are gone: what they served is bought again, and somebody should know why."""
        for loss in self.parts.vanished.told(self.parts.supply.misses_machines, now):
            named = dict(loss.clusters.most_common(_NAMED_CLUSTERS))
            _log.error(
                "machines_vanished",
                provider=loss.provider,
                machines=loss.machines,
                by_cluster=named,
                clusters=len(loss.clusters),
                advice="others are bought in their place; ask the provider what became of these",
            )

    def _write_silence(self, now: float) -> None:
        """Have on file how long clusters have been without a session, so that a day of it is noticed after restarts."""
        if now - self._silence_written < _SILENCE_SECONDS:
            return
        self._silence_written = now
        demand = self.parts.demand
        for cluster in demand:
            if not demand.has_session(cluster):
                self.parts.pending_writes.cluster(cluster, demand.kept(cluster, now))

    def _poll(self, now: float) -> None:
        """Look at machines that have been under way for long: a list that showed them may be lost (protocol rule 6)."""
        if now - self._polled < _POLL_SECONDS:
            return
        self._polled = now
        for commitment in self.parts.commitments:
            if commitment.step in AT_PROVIDER and now - commitment.began >= _POLL_SECONDS:
                self.parts.orders.append(GetMachine(commitment.machine, commitment.provider))

    def pause(self, reason: str) -> bool:
        """Send nothing more to anybody until `resume`. Returns whether the shard was paused before."""
        parts, now, before = self.parts, self.clocks.now(), self.parts.actuation.paused
        if parts.actuation.pause(reason, now):
            self._reactions.after_lifecycle(parts.lifecycle.held())
            self._reactions.after_recovery(parts.recovery.held(now))
        self.metrics.actuation_paused.set(1)
        return before

    def resume(self) -> bool:
        """Act again. Returns whether the shard was paused before."""
        parts, now, before = self.parts, self.clocks.now(), self.parts.actuation.paused
        held_since = parts.actuation.resume(now)
        if held_since is not None:
            self._reactions.after_lifecycle(parts.lifecycle.released_from_hold(held_since, now))
            self._reactions.after_recovery(parts.recovery.tick(now))
        self.metrics.actuation_paused.set(0)
        return before

    def forget(self, cluster: str) -> int:
        """Withdraw a cluster's demand for good (protocol rule 11). Returns how many machines will be given back."""
        self._reactions.after_demand(self.parts.demand.forget(cluster))
        machines = len(self.parts.machine_index.of(cluster))
        if not machines:
            self._reactions.unbound(cluster, self.clocks.now())
        return machines

    # Decisions.

    def begin_update(self, now: float) -> EngineUpdate:
        """Begin what the engine is told before its next decision."""
        parts = self.parts
        self._undecided = frozenset(
            cluster for cluster in parts.rails.with_excess() if not parts.demand.is_decided_about(cluster)
        )
        self._awaited = frozenset(
            each.cluster for each in parts.commitments if parts.demand.awaits_first_report(each.cluster, now)
        )
        return self.parts.engine_input.begin_update(now)

    def add_machines(self, update: EngineUpdate, most: int) -> bool:
        """Add at most so many machines that changed to the update. Returns whether there are more."""
        return self.parts.engine_input.add_machines(update, most)

    def size(self) -> int:
        """How many machines and rows a decision is about."""
        return len(self.parts.supply) + self.parts.demand.rows()

    def due_for_offers(self, now: float) -> list[str]:
        """The clusters for which the engine is to say what they could still have."""
        return self.parts.available.due(now)

    def decided(self, excess: Iterable[str], dropped: Iterable[str]) -> None:
        """The engine has decided: these clusters have excess, and no need takes these machines any more.

        A decision says nothing of a cluster that was not live, or had not reported since the shard's start, when the
        engine was told of it. Such a cluster keeps the excess that it had. What is committed to a cluster whose first
        roll-up is awaited is kept as well.
        """
        parts = self.parts
        for cluster in parts.rails.excess({*excess, *self._undecided}, self.clocks.now()):
            parts.engine_input.touch_cluster(cluster)
        committed = {commitment.machine: commitment.cluster for commitment in parts.commitments}
        unwanted = [machine for machine in dropped if committed.get(machine) not in self._awaited]
        self._reactions.after_lifecycle(parts.lifecycle.released(unwanted))

    def left_short(self, short: Iterable[ShortNeed], *, early: bool) -> ShortfallReport:
        """The decision left these needs short, first served first. In an early cycle no shortfall ages."""
        return self.parts.shortfalls.cycle(short, early=early)

    def commit(self, action: Action, began: float) -> bool:
        """Commit to an action of the cycle that began then. Returns False where something forbids it.

        The commitment begins once it is durable.
        """
        parts = self.parts
        effects = parts.lifecycle.decided(action, self.clocks.now())
        self._reactions.after_lifecycle(effects)
        if not effects:
            return False
        if action.stamp is not None:
            parts.supply.numbered(action.stamp.number)
        if action.kind is Kind.RECLAIM:
            parts.rails.given_back(action.cluster, began)
            parts.engine_input.touch_cluster(action.cluster)
        parts.readiness.drain_begun(action.machine)
        return True

    def unstampable(self, cluster: str, fingerprint: str, problem: str) -> None:
        """A machine for this need cannot be stamped: the need is not tried again at once."""
        self.parts.holdouts.need_failed(cluster, fingerprint, self.clocks.now(), problem)
        self.parts.engine_input.touch_cluster(cluster)

    def offer(self, free: Mapping[str, Iterable[Available]]) -> None:
        """Tell clusters what they could still have, where that is news."""
        parts, now = self.parts, self.clocks.now()
        for cluster, answers in free.items():
            for update in parts.available.worked_out(cluster, answers, parts.durations.until_ready, now):
                parts.sender.send(cluster, pb.ShardMessage(available_capacity=update), now)

    # What the shell takes.

    def take_orders(self) -> list[Order]:
        """Take what the shell is to do, in order."""
        taken = list(self.parts.orders)
        self.parts.orders.clear()
        return taken

    def take_ended(self) -> list[Ended]:
        """Take the commitments that have ended, for the audit log."""
        taken, self._reactions.ended = self._reactions.ended, []
        return taken

    def take_recovery_calls(self) -> list[ProviderCall]:
        """Take the calls out of Failed that were made, for the audit log."""
        taken, self._reactions.recovery_calls = self._reactions.recovery_calls, []
        return taken

    def take_batch(self) -> Batch:
        """Take what the local file must hold next."""
        parts, now = self.parts, self.clocks.now()
        excess, holds = parts.rails.kept()
        return parts.pending_writes.take(
            Values(
                next_arrival=parts.demand.next_arrival,
                next_binding=parts.supply.highest_number + 1 if parts.startup.may_preempt(now) else 0,
                pause_reason=parts.actuation.pause_reason,
                holdouts=parts.holdouts.kept(now),
                drains=parts.durations.drains.kept(),
                reclaim_holds=holds,
                excess_since=excess,
            )
        )

    def file_written(self) -> bool:
        """The local file was written. Returns whether it could not be at the last try."""
        self.metrics.local_file_writable.set(1)
        return self.parts.actuation.file_written()

    def file_unwritten(self, problem: str) -> bool:
        """The local file could not be written. Returns whether it could be at the last try."""
        self.metrics.local_file_writable.set(0)
        return self.parts.actuation.file_unwritten(problem, self.clocks.now())

    def begin(self, machine_ids: Iterable[str]) -> None:
        """The commitments of these machines are durable, and begin now."""
        if not self.parts.actuation.stood_down:
            self._reactions.after_lifecycle(self.parts.lifecycle.begin(machine_ids, self.clocks.now()))

    def unwritten(self, batch: Batch, machine_ids: Iterable[str]) -> None:
        """A batch could not be written. The commitments of these machines end before they began."""
        self.parts.pending_writes.put_back(batch)
        self._reactions.after_lifecycle(self.parts.lifecycle.released(machine_ids))
