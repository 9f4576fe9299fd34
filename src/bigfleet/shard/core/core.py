"""The shard without I/O: what the parts say to each other, whatever happens outside.

Every public method is an event; what it wants done waits in `orders` for the shell. The engine is not here: the shell
takes a `brief` to it and brings its decision back, so that events go on while it decides.
"""

from collections.abc import Iterable, Mapping

import msgspec
import structlog

from bigfleet.engine.available import Available
from bigfleet.engine.records import Action, Kind
from bigfleet.model.machine import Machine, MachineState
from bigfleet.provider.records import Ack, Answer, Listing
from bigfleet.shard.core.parts import Clocks, Settings
from bigfleet.shard.core.reactions import Reactions
from bigfleet.shard.demand.table import LIVE_SECONDS
from bigfleet.shard.execution import effects as does
from bigfleet.shard.execution.commitment import AWAITING, resumed
from bigfleet.shard.execution.lifecycle import Problem
from bigfleet.shard.orders import EndStream, Look
from bigfleet.shard.persistence.journal import Batch, Kept, Values
from bigfleet.shard.sessions import session as says
from bigfleet.shard.supply.stamps import Binding
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.transport.identity import Identity
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_log = structlog.get_logger("bigfleet.shard")

_S = MachineState
_PREEMPT_WAIT_SECONDS = 15 * 60.0
_POLL_SECONDS = 60.0
_SILENCE_SECONDS = 1800.0
_AWAITED = frozenset(AWAITING.values())


class Core(Reactions):
    """One shard."""

    def __init__(self, settings: Settings, epoch: int, kept: Kept, clocks: Clocks, metrics: ShardMetrics) -> None:
        super().__init__(settings, epoch, kept, clocks, metrics)
        self._polled = self._silence_filed = clocks.now()
        self._idle_on_file = frozenset(kept.idle)
        self._all_listed = False
        self._restore(kept, clocks.now())

    # The start.

    def _restore(self, kept: Kept, now: float) -> None:
        if not self.acts:
            # What an earlier life began waits, in a dry run for one that is none.
            self.execute.pause(now)
            self.recovery.pause(now)
        self.metrics.actuation_paused.set(self.paused)
        self.supply.resume_idle({machine_id: kept.written - since for machine_id, since in kept.idle.items()}, now)
        by_provider: dict[str, dict[str, Machine]] = {}
        for machine_id, (provider, machine) in kept.machines.items():
            by_provider.setdefault(provider, {})[machine_id] = machine
        away = self.clocks.wall() - kept.wall
        commitments = [resumed(each, kept.written, away, now) for each in kept.commitments.values()]
        if not self.acts:
            # A pause counts for no time-out, and how much of their time was its is not on file.
            commitments = [msgspec.structs.replace(each, began=now, doubted=None) for each in commitments]
        for commitment in commitments:
            self.supply.in_flight(commitment.machine, True)
            # On this life's clock, as all that it writes from now on.
            self.filing.commitment(commitment.machine, commitment)
        for machine_id, since in kept.idle.items():
            self.filing.idle(machine_id, since + now - kept.written)
        # Before the machines: those that are committed and not bound yet stay on file for the life after this one.
        self.executed(self.execute.restore(commitments, now))
        for commitment in self.execute:
            self.books.kept(commitment)
            if commitment.stamp is not None:
                self.next_binding = max(self.next_binding, commitment.stamp.number + 1)
        for provider, machines in by_provider.items():
            # Until the provider has listed, its machines count as the file last knew them, and none is acted on.
            self.supplied(self.supply.listed(provider, Listing(machines, (), b"", full=False, began=now), now))
            self.supply.provider_lost(provider)
        for cluster in self.demand:
            self.picture.touch_cluster(cluster)
        self.supply.epoch = self.epoch

    # What providers say.

    def listed(self, provider: str, listing: Listing) -> None:
        """A List has ended, or a slice of one has come (then it is not `full`)."""
        first = not self.supply.has_listed(provider)
        was_reachable = self.supply.is_reachable(provider)
        # A life before this one may have gone by an epoch that its file did not survive: those are a floor, no rival.
        self.supply.epoch = None if first else self.epoch
        self.supplied(self.supply.listed(provider, listing, self.clocks.now()))
        self.supply.epoch = self.epoch
        if listing.full and not self._all_listed and all(map(self.supply.has_listed, self.settings.providers)):
            self._all_listed = True
            self._drop_stale()
        if first and listing.full and not self.had_file:
            unsettled = (m.id for m in self.supply.machines_of(provider) if m.state in (_S.CREATING, _S.DRAINING))
            self.unsettled_at_start.update(unsettled)
        if not was_reachable:
            self.picture.touch_all(machine.id for machine in self.supply.machines_of(provider))
        self.next_binding = max(self.next_binding, self.supply.highest_number + 1)

    def _drop_stale(self) -> None:
        """Once everything is listed: forget what was so of machines in an earlier life and is no more."""
        for machine_id in self._idle_on_file:
            machine = self.supply.find(machine_id)
            if machine is None or machine.state is not _S.IDLE:
                self.filing.idle(machine_id, None)
        for machine_id in list(self.readiness.latched()):
            machine = self.supply.find(machine_id)
            if machine is None or not machine.cluster:
                self.filing.ready(machine_id, None)
                self.readied(self.readiness.unbound(machine_id))
        self._idle_on_file = frozenset()

    def provider_lost(self, provider: str) -> None:
        """The provider does not answer."""
        if self.supply.is_reachable(provider):
            self.supply.provider_lost(provider)
            self.picture.touch_all(machine.id for machine in self.supply.machines_of(provider))

    def got(self, provider: str, machine_id: str, answer: Answer | None, began: float) -> None:
        """A Get was answered; None says that there is no such machine."""
        now, late = self.clocks.now(), self.supply.is_late(provider, machine_id, began)
        self.supply.epoch = self.epoch if self.supply.has_listed(provider) else None
        self.supplied(self.supply.got(provider, machine_id, answer, began, now))
        self.supply.epoch = self.epoch
        if late:
            # It settles nothing: what somebody waits for may have been done since.
            self.orders.append(Look(machine_id, provider))
            return
        self.executed(self.execute.settled(machine_id, now))
        self.cured(self.recovery.settled(machine_id, now))

    def acknowledged(self, ask: does.Ask, ack: Ack) -> None:
        """A call was taken, and its ack fits."""
        now = self.clocks.now()
        self.supplied(self.supply.acknowledged(ask.machine, ack.machine, ack.refused, now))
        if self._is_executing(ask):
            self.executed(self.execute.acknowledged(ask.machine, now))
        else:
            self.cured(self.recovery.acknowledged(ask.machine, now))

    def call_failed(self, ask: does.Ask, problem: Problem, text: str, ack: Ack | None = None) -> None:
        """A call brought no ack that fits; one that does not fit is the truth about the machine all the same."""
        now = self.clocks.now()
        if ack is None:
            self.supply.unanswered(ask.machine, now)
        else:
            self.supplied(self.supply.acknowledged(ask.machine, ack.machine, ack.refused, now))
        if self._is_executing(ask):
            self.executed(self.execute.call_failed(ask.machine, problem, text))
        else:
            self.cured(self.recovery.call_failed(ask.machine, problem, now))

    def awaits(self, provider: str) -> bool:
        """Whether a machine of the provider is under way."""
        return any(commitment.provider == provider for commitment in self.execute) or self.recovery.awaits(provider)

    def is_wanted(self, ask: does.Ask) -> bool:
        """Whether a call that waited for its turn is still to be made."""
        if self.stood_down or self.clocks.now() > ask.until:
            return False
        return self._is_executing(ask) or self.recovery.wants(ask)

    def binding(self, ask: does.Ask) -> Binding:
        """What a Configure's machine is stamped with."""
        if ask.stamp is None:
            raise ValueError(f"machine {ask.machine!r}: a Configure without a stamp")
        return Binding(ask.stamp, self.settings.shard_id, self.epoch, int(self.clocks.wall()))

    # What operators say.

    def said(self, outputs: Iterable[says.Output]) -> None:
        """A stream brought this."""
        now = self.clocks.now()
        for output in outputs:
            match output:
                case says.Opened(cluster=cluster, features=features, replaced=replaced):
                    self._opened(cluster, features, replaced, now)
                case says.Ended(cluster=cluster):
                    self._closed(cluster, now)
                case says.RolledUp(cluster=cluster, rollup=rollup):
                    self._rolled_up(cluster, rollup, now)
                case says.RollupRefused(cluster=cluster, reason=reason):
                    _log.warning("rollup_refused", cluster=cluster, reason=reason)
                    self.metrics.rollups_rejected.of(cluster).inc()
                    self._acknowledge(cluster, "", reason)
                case says.BlobAnswered(request=request, user_data=blob, ttl_seconds=ttl):
                    self._answered(request, now)
                    self.executed(self.execute.blob_answered(request, blob, ttl, now))
                case says.BlobFailed(cluster=cluster, request=request, error=error, about_machine=about_machine):
                    self._answered(request, now)
                    _log.warning("bootstrap_refused", cluster=cluster, request=request, error=error)
                    held = does.Held.MACHINE if about_machine else does.Held.NEED
                    self.executed(self.execute.blob_failed(request, error, held))
                case says.ReclaimAcked(instruction=instruction):
                    self.executed(self.execute.reclaim_acked(instruction, now))
                    self.cured(self.recovery.reclaim_acked(instruction, now))
                case says.NodeReady(cluster=cluster, machine=machine, state=state):
                    self.readied(self.readiness.reported(machine, cluster, state, now))
                case says.NodeDrained(instruction=instruction, empty=True):
                    self.executed(self.execute.node_drained(instruction, now))
                    self.cured(self.recovery.node_drained(instruction, now))
                case says.NodeDrained(instruction=instruction, reason=reason):
                    self.executed(self.execute.node_not_drained(instruction, reason))
                    self.cured(self.recovery.node_not_drained(instruction, now))
                case says.IdentityRefused(cluster=cluster, reason=reason):
                    _log.warning("session_identity_refused", cluster=cluster, reason=reason)
                    self.metrics.session_identity_rejected.inc()
                case says.Strayed(cluster=cluster, thing=thing, name=name):
                    _log.info("frame_about_unknown_thing", cluster=cluster, thing=thing, name=name[:100])
                case says.Send(cluster=cluster, frame=frame):
                    self.talk.send(cluster, frame, now)
                case says.Close(stream=stream, code=code, reason=reason):
                    self.orders.append(EndStream(stream, code, reason))
                case says.Cordoned():
                    pass

    def stream(self, peer: Identity | None) -> says.Session:
        """A stream has begun."""
        return self.sessions.stream(peer, self.clocks.now())

    # Time and people.

    def tick(self) -> None:
        """Time has passed; before every decision."""
        now = self.clocks.now()
        self.wanted(self.demand.tick(now))
        self.executed(self.execute.tick(now))
        self.cured(self.recovery.tick(now))
        self.readied(self.readiness.tick(now, self._configured, self._is_empty))
        for cluster in sorted({commitment.cluster or commitment.leaves for commitment in self.execute} - {""}):
            # After a restart nothing is live before its session, and operators need a moment to come back.
            if not self.demand.live(cluster) and self.demand.away_seconds(cluster, now) >= LIVE_SECONDS:
                self.executed(self.execute.not_live(cluster))
        for cluster in self.rails.tick(now):
            self.picture.touch_cluster(cluster)
        self.picture.tick(now)
        self._file_silence(now)
        self.holdings.forget(now)
        self.orders += [Look(doubt.machine_id, doubt.provider) for doubt in self.supply.doubts()]
        self._poll(now)

    def _file_silence(self, now: float) -> None:
        """Keep on file for how long clusters have been away; a day of it is to be noticed across restarts."""
        if now - self._silence_filed < _SILENCE_SECONDS:
            return
        self._silence_filed = now
        for cluster in self.demand:
            if not self.demand.has_session(cluster):
                self.filing.cluster(cluster, self.demand.kept(cluster, now))

    def _poll(self, now: float) -> None:
        """Look at machines that have been under way for long: a list may have been lost on the way (protocol.md 6)."""
        if now - self._polled < _POLL_SECONDS:
            return
        self._polled = now
        waiting = (c for c in self.execute if c.step in _AWAITED and now - c.began >= _POLL_SECONDS)
        self.orders += [Look(commitment.machine, commitment.provider) for commitment in waiting]

    @property
    def acts(self) -> bool:
        """Whether anything is carried out at all."""
        return not (self.paused or self.stood_down or self.settings.dry_run)

    def pause(self, reason: str) -> bool:
        """Send nothing more to anybody until `resume`; whether it was so before."""
        before, self.paused, self.pause_reason = self.paused, True, reason
        self.executed(self.execute.pause(self.clocks.now()))
        self.cured(self.recovery.pause(self.clocks.now()))
        self.metrics.actuation_paused.set(1)
        return before

    def resume(self) -> bool:
        """Go on; whether it was paused."""
        before, self.paused, self.pause_reason = self.paused, False, ""
        if self.acts:
            self.executed(self.execute.resume(self.clocks.now()))
            self.cured(self.recovery.resume(self.clocks.now()))
        self.metrics.actuation_paused.set(0)
        return before

    def forget(self, cluster: str) -> int:
        """Withdraw a cluster's demand for good (protocol.md 11); how many machines will be given back."""
        self.wanted(self.demand.forget(cluster))
        machines = len(self.holdings.of(cluster))
        if not machines:
            self._unbound(cluster, self.clocks.now())
        return machines

    def may_acquire(self) -> bool:
        """Without its file a shard acquires nothing until every provider has listed (protocol.md 9)."""
        return self.had_file or all(map(self.supply.has_listed, self.settings.providers))

    def may_preempt(self) -> bool:
        """Nor preempts while what was on its way at the start still is, for a quarter of an hour."""
        waited = self.clocks.now() - self.started >= _PREEMPT_WAIT_SECONDS
        return self.may_acquire() and (waited or not self.unsettled_at_start)

    # Decisions.

    def commit(self, action: Action, began: float) -> bool:
        """Commit to an action of the cycle that began then; whether nothing stood in its way.

        It is begun once it is durable.
        """
        now = self.clocks.now()
        effects = self.execute.decided(action, now)
        self.executed(effects)
        if effects and action.stamp is not None:
            self.next_binding = max(self.next_binding, action.stamp.number + 1)
        if effects and action.kind is Kind.RECLAIM:
            self.rails.given_back(action.cluster, began)
            self.picture.touch_cluster(action.cluster)
        return bool(effects)

    def released(self, machine_ids: Iterable[str]) -> None:
        """No need takes these machines any more."""
        self.executed(self.execute.released(machine_ids))

    def offer(self, free: Mapping[str, Iterable[Available]]) -> None:
        """Tell clusters what they could still have, where that is news."""
        now = self.clocks.now()
        for cluster, answers in free.items():
            for update in self.available.worked_out(cluster, answers, self.timings.until_ready, now):
                self.talk.send(cluster, pb.ShardMessage(available_capacity=update), now)

    def take_ended(self) -> list[does.Ended]:
        """Commitments that ended since this was last asked."""
        ends, self.ends = self.ends, []
        return ends

    # What is to be made durable.

    def take_batch(self) -> Batch:
        """What the local file must hold next."""
        excess, holds = self.rails.kept()
        return self.filing.take(
            Values(
                next_arrival=self.demand.next_arrival,
                next_binding=max(1, self.next_binding) if self.may_preempt() else 0,
                pause_reason=self.pause_reason,
                holdouts=self.holdouts.kept(self.clocks.now()),
                drains=self.timings.drains.kept(),
                reclaim_holds=holds,
                excess_since=excess,
            )
        )

    def unwritten(self, batch: Batch, machine_ids: Iterable[str]) -> None:
        """The batch could not be written: what these machines were committed to ends unbegun."""
        self.filing.put_back(batch)
        self.executed(self.execute.released(machine_ids))

    def begin(self, machine_ids: Iterable[str]) -> None:
        """The commitments of these machines are durable."""
        if not self.stood_down:
            self.executed(self.execute.begin(machine_ids, self.clocks.now()))
