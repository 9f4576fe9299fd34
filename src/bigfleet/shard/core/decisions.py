"""From a decision to commitments: gates, pause and dry-run, what is counted, and what the audit log says."""

import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from bigfleet.engine.engine import Decision
from bigfleet.engine.records import MAX_TIME, Action, Kind, Policy, Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import Resources, quantity
from bigfleet.provider.epoch import MAX_EPOCH
from bigfleet.shard.core.core import Core
from bigfleet.shard.decision.shortfalls import Ledger, Short
from bigfleet.shard.execution.effects import Ask, Ended
from bigfleet.shard.persistence.audit_log import Record
from bigfleet.shard.supply.stamps import Binding, StampTooLongError, to_metadata

_log = structlog.get_logger("bigfleet.shard")

UNREADY_GRACE_SECONDS = 600

_NAMED = 10
# A cycle that comes after so much of the interval is no early one.
_ON_TIME = 0.9
_ACQUIRES = frozenset({Kind.BOOTSTRAP, Kind.PROVISION, Kind.PREEMPT})


class Deciding:
    """One shard's decisions, one after the other."""

    def __init__(self, core: Core, policy: Policy, *, dry_run: bool, interval: float = 10.0) -> None:
        self._core, self._policy, self.dry_run = core, policy, dry_run
        self._interval, self._aged = interval, -math.inf
        self.cycle = 0
        self.decided_at_unix_nanos = 0
        self.ledger = Ledger()
        self._intents: frozenset[tuple[Kind, str, str]] = frozenset()
        self._silent: list[str] = []

    def policy(self) -> Policy:
        """What the engine goes by now."""
        held = self._core.holdouts.held_out_shapes(self._core.clocks.now())
        return msgspec.structs.replace(self._policy, held_out_shapes=held)

    def decided(self, decision: Decision, began: float) -> tuple[list[str], list[Record]]:
        """Commit to what the cycle that began then decided.

        Returns the machines whose commitments are to be made durable and then begun, and what the audit log is to say.
        """
        core, now = self._core, self._core.clocks.now()
        self.cycle += 1
        self.decided_at_unix_nanos = int(core.clocks.wall() * 1e9)
        for cluster in core.rails.excess(decision.excess, core.demand.live, now):
            core.picture.touch_cluster(cluster)
        core.metrics.reclaims_capped.inc(len(decision.capped))
        core.released(decision.dropped)
        short = self._account(decision, began)
        self._watch_silence(now)
        records: list[Record] = []
        begun: list[str] = []
        intents: set[tuple[Kind, str, str]] = set()
        actions = [*decision.actions, *self._unready()]
        cost = core.cost
        for action in actions:
            event = self._fate(action)
            if event in ("suppressed", "dryrun"):
                intent = action.kind, action.machine, action.cluster
                intents.add(intent)
                if intent in self._intents:
                    continue
                family = core.metrics.actions_suppressed if event == "suppressed" else core.metrics.actions_dryrun
                family.of(action.kind.value).inc()
            elif event != "decided" or not core.commit(action, began):
                (core.metrics.actions_deferred if event == "deferred" else core.metrics.actions_deduped).inc()
                continue
            else:
                begun.append(action.machine)
                core.unready.pop(action.machine, None)
                core.metrics.actions.of(action.kind.value).inc()
            record = self._record(action, event, short, cost)
            cost = record.cost_after
            records.append(record)
        self._intents = frozenset(intents)
        return begun, records

    def happened(self) -> list[Record]:
        """What the audit log says of commitments that are over, and of calls that get machines out of Failed."""
        core = self._core
        asks, core.recoveries = core.recoveries, []
        return [*map(self._end, core.take_ended()), *map(self._recovery, asks)]

    def _recovery(self, ask: Ask) -> Record:
        machine = self._core.supply.find(ask.machine)
        return self._line(
            "decided",
            ask.call.value,
            ask.machine,
            leaves="" if machine is None else machine.cluster,
            reason="to get it out of Failed" + ("" if machine is None else f": {machine.last_error}"),
            grace_seconds=ask.grace_seconds,
        )

    def _unready(self) -> list[Action]:
        """Drain empty machines whose node was not Ready in time, once each: until that is begun, it is decided anew."""
        core, reason = self._core, "its node was not Ready in time"
        return [
            Action(Kind.RECLAIM, machine_id, cluster, reason, UNREADY_GRACE_SECONDS)
            for machine_id, cluster in core.unready.items()
            if core.rails.hold_until(machine_id) <= core.clocks.now()
        ]

    def _fate(self, action: Action) -> str:
        core = self._core
        if core.stood_down:
            return "deferred"
        if self.dry_run:
            return "dryrun"
        if core.paused:
            return "suppressed"
        if action.kind in _ACQUIRES and not core.may_acquire():
            return "deferred"
        if action.kind is Kind.PREEMPT and not core.may_preempt():
            return "deferred"
        if not core.supply.usable(action.machine) or core.recovery.busy(action.machine):
            return "deferred"
        return "decided" if self._fits(action) else "deferred"

    def _fits(self, action: Action) -> bool:
        """Whether the stamp can be written; a stranger's group name may be too long for that."""
        if action.stamp is None:
            return True
        core = self._core
        try:
            to_metadata(Binding(action.stamp, core.settings.shard_id, MAX_EPOCH, MAX_TIME))
        except StampTooLongError as error:
            _log.warning("stamp_too_long", cluster=action.cluster, error=str(error))
            core.holdouts.need_failed(action.cluster, action.stamp.key.fingerprint, core.clocks.now())
            core.picture.touch_cluster(action.cluster)
            return False
        return True

    def _account(self, decision: Decision, began: float) -> dict[tuple[str, NeedKey], str]:
        """Age and report the needs that were left short; what to say of each."""
        core, metrics, verdicts = self._core, self._core.metrics, decision.verdicts
        short = [Short(*verdicts.lacking(row)) for row in verdicts.short()]
        early = began - self._aged < self._interval * _ON_TIME
        if not early:
            self._aged = began
        report = self.ledger.cycle(short, early=early)
        by_cluster: dict[str, list[NeedKey]] = {}
        for need in short:
            by_cluster.setdefault(need.cluster, []).append(need.key)
        core.short = by_cluster
        metrics.shortfalls.set(report.count)
        for name, count in report.by_priority.items():
            metrics.shortfalls_by_priority.of(name).set(count)
        for name, count in report.by_age.items():
            metrics.shortfalls_aged.of(name).set(count)
        if report.count:
            _log.warning(
                "shortfalls detected",
                count=report.count,
                oldest=report.oldest,
                escalated=sum(entry.escalated for entry in report.entries),
            )
        return {(need.cluster, need.key): f"short of {_words(need.deficit)}" for need in short}

    def _watch_silence(self, now: float) -> None:
        """Say which clusters have not been heard of for a day, once for each time that they are others."""
        silent = self._core.demand.silent(now)
        self._core.metrics.clusters_silent.set(len(silent))
        if silent and silent != self._silent:
            advice = "bigfleetctl clusters forget, for those that are gone for good"
            _log.warning("clusters_silent", count=len(silent), clusters=silent[:_NAMED], advice=advice)
        self._silent = silent

    def _record(self, action: Action, event: str, short: dict[tuple[str, NeedKey], str], before: float) -> Record:
        core, stamp = self._core, action.stamp
        machine, commitment = core.supply.find(action.machine), core.execute.get(action.machine)
        price = 0.0 if machine is None else machine.price_per_hour
        change = 0.0
        if action.kind is Kind.PROVISION and machine is not None and machine.state is MachineState.SPECULATIVE:
            change = price
        elif action.kind is Kind.DELETE:
            change = -price
        verdict = "" if stamp is None else short.get((action.cluster, stamp.key), "satisfied")
        return self._line(
            event,
            action.kind.value,
            action.machine,
            stamp,
            cluster="" if action.kind is Kind.RECLAIM else action.cluster,
            leaves="" if machine is None or action.kind in (Kind.PROVISION, Kind.DELETE) else machine.cluster,
            reason=action.reason,
            verdict=verdict,
            cost_before=round(before, 6),
            cost_after=round(before + change, 6),
            grace_seconds=action.grace_seconds,
            id="" if commitment is None or event != "decided" else commitment.id,
        )

    def _end(self, end: Ended) -> Record:
        commitment = end.commitment
        return self._line(
            "ended",
            commitment.kind.value,
            commitment.machine,
            commitment.stamp,
            cluster=commitment.cluster,
            leaves=commitment.leaves,
            reason=commitment.reason,
            grace_seconds=commitment.grace_seconds,
            outcome=end.outcome.value,
            detail=end.detail[:1000],
            id=commitment.id,
        )

    def _line(self, event: str, kind: str, machine_id: str, stamp: Stamp | None = None, **said: Any) -> Record:
        """A record with what all of them have; where nothing else is said, the cost is as it is."""
        core, machine = self._core, self._core.supply.find(machine_id)
        cost = round(core.cost, 6)
        return Record(
            at=_at(core.clocks.wall()),
            cycle=self.cycle,
            shard=core.settings.shard_id,
            epoch=core.epoch,
            event=event,
            kind=kind,
            machine=machine_id,
            provider=core.supply.provider_of(machine_id) or "",
            priority=0 if stamp is None else stamp.priority,
            fingerprint="" if stamp is None else stamp.key.fingerprint,
            group="" if stamp is None else stamp.key.group,
            price_per_hour=0.0 if machine is None else machine.price_per_hour,
            **{"cost_before": cost, "cost_after": cost, **said},
        )


def _words(deficit: Resources) -> str:
    return ", ".join(f"{quantity(name, amount)} {name}" for name, amount in deficit)


def _at(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
