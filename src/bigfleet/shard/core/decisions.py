"""From a decision to commitments: which actions may begin, what is counted, and what the audit log says."""

import math
from collections import Counter
from datetime import UTC, datetime
from functools import partial
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
from bigfleet.shard.decision.shortfalls import ShortNeed
from bigfleet.shard.execution.effects import Ended, ProviderCall
from bigfleet.shard.persistence.audit_log import Record
from bigfleet.shard.supply.stamps import Binding, StampTooLongError, to_metadata

_log = structlog.get_logger("bigfleet.shard")

UNREADY_GRACE_SECONDS = 600
"""The grace of a drain of a machine whose Node was not Ready in time."""

_NAMED = 10
"""How many silent clusters a log line names."""

_ON_TIME = 0.9
"""A cycle that begins after so much of the interval is not an early one."""

_MOST_CAUSES = 100
"""For how many short needs, first served first, a cycle looks for the cause: some ten milliseconds of work."""

_NOT_LOOKED_FOR = "not_looked_for"
"""What the metric says of short needs beyond those."""

_MOST_DETAIL = 1000
"""How many characters of an outcome's detail the audit log holds."""

_DECIMALS = 6
"""How many decimals of a cost the audit log holds."""

_ACQUIRES = frozenset({Kind.BOOTSTRAP, Kind.PROVISION, Kind.PREEMPT})


class Decisions:
    """One shard's decisions, one after the other."""

    def __init__(self, core: Core, policy: Policy, *, interval: float = 10.0) -> None:
        self._core, self._policy = core, policy
        self._interval, self._aged = interval, -math.inf
        #: How many decisions were made since the shard's start.
        self.cycle = 0
        #: When the last decision was made.
        self.decided_at_unix_nanos = 0
        # Actions that the last decision would have begun, had the shard not been paused or in a dry run.
        self._suppressed: frozenset[tuple[Kind, str, str]] = frozenset()
        self._silent: list[str] = []
        #: The clusters and causes of which the metric has a series.
        self._caused: frozenset[tuple[str, str]] = frozenset()

    def policy(self) -> Policy:
        """The policy for the next decision."""
        held = self._core.parts.holdouts.held_out_shapes(self._core.clocks.now())
        return msgspec.structs.replace(self._policy, held_out_shapes=held)

    def decided(self, decision: Decision, began: float) -> tuple[list[str], list[Record]]:
        """Commit to what the cycle that began then decided.

        Returns the machines whose commitments are to be made durable and then begun, and what the audit log is to say.
        """
        core, now = self._core, self._core.clocks.now()
        self.cycle += 1
        self.decided_at_unix_nanos = int(core.clocks.wall() * 1e9)
        core.metrics.reclaims_capped.inc(len(decision.capped))
        core.decided(decision.excess, decision.dropped)
        short = self._account(decision, began)
        self._watch_silence(now)
        records: list[Record] = []
        begun: list[str] = []
        suppressed: set[tuple[Kind, str, str]] = set()
        actions = [*decision.actions, *self._drains_of_unready()]
        cost = core.parts.supply.cost_per_hour
        for action in actions:
            event = self._fate(action)
            if event in ("suppressed", "dryrun"):
                intent = action.kind, action.machine, action.cluster
                suppressed.add(intent)
                if intent in self._suppressed:
                    # The audit log has the same intention of the decision before.
                    continue
                family = core.metrics.actions_suppressed if event == "suppressed" else core.metrics.actions_dryrun
                family.of(action.kind.value).inc()
            elif event != "decided" or not core.commit(action, began):
                (core.metrics.actions_deferred if event == "deferred" else core.metrics.actions_deduped).inc()
                continue
            else:
                begun.append(action.machine)
                core.metrics.actions.of(action.kind.value).inc()
            record = self._record(action, event, short, cost)
            cost = record.cost_after
            records.append(record)
        self._suppressed = frozenset(suppressed)
        return begun, records

    def happened(self) -> list[Record]:
        """What the audit log says of commitments that have ended, and of calls out of Failed."""
        core = self._core
        return [*map(self._end, core.take_ended()), *map(self._recovery, core.take_recovery_calls())]

    def _recovery(self, call: ProviderCall) -> Record:
        machine = self._core.parts.supply.find(call.machine)
        return self._line(
            "decided",
            call.call.value,
            call.machine,
            leaves="" if machine is None else machine.cluster,
            reason="to get it out of Failed" + ("" if machine is None else f": {machine.last_error}"),
            grace_seconds=call.grace_seconds,
        )

    def _drains_of_unready(self) -> list[Action]:
        """Drains of empty machines whose Node was not Ready in time. Each is decided anew until it begins."""
        parts, now, reason = self._core.parts, self._core.clocks.now(), "its node was not Ready in time"
        return [
            Action(Kind.RECLAIM, machine_id, cluster, reason, UNREADY_GRACE_SECONDS)
            for machine_id, cluster in parts.readiness.to_drain()
            if parts.rails.hold_until(machine_id) <= now
        ]

    def _fate(self, action: Action) -> str:
        """What is done with an action, as the audit log and metrics call it."""
        parts = self._core.parts
        if parts.actuation.stood_down:
            return "deferred"
        if parts.actuation.dry_run:
            return "dryrun"
        if parts.actuation.paused:
            return "suppressed"
        if action.kind in _ACQUIRES and not parts.startup.may_acquire():
            return "deferred"
        if action.kind is Kind.PREEMPT and not parts.startup.may_preempt(self._core.clocks.now()):
            return "deferred"
        if not parts.supply.usable(action.machine) or parts.recovery.busy(action.machine):
            return "deferred"
        return "decided" if self._fits(action) else "deferred"

    def _fits(self, action: Action) -> bool:
        """Whether the stamp can be read back. A group, which an operator names, may be too long for that."""
        if action.stamp is None:
            return True
        core = self._core
        try:
            to_metadata(Binding(action.stamp, core.settings.shard_id, MAX_EPOCH, MAX_TIME))
        except StampTooLongError as error:
            _log.warning("stamp_too_long", cluster=action.cluster, error=str(error))
            core.unstampable(action.cluster, action.stamp.key.fingerprint, str(error))
            return False
        return True

    def _show_causes(self, decision: Decision, now: float) -> None:
        """Count short needs by cluster and cause. Series that count nothing any more are dropped."""
        family, verdicts, causes = self._core.metrics.shortfalls_by_cluster, decision.verdicts, self._core.parts.causes
        counts: Counter[tuple[str, str]] = Counter()
        for number, row in enumerate(verdicts.short()):
            if number >= _MOST_CAUSES:
                counts[verdicts.lacking(row)[0], _NOT_LOOKED_FOR] += 1
                continue
            verdict = verdicts[row]
            cause = causes.of_short(verdicts.need(row), verdict, partial(verdicts.candidates, row), now)
            counts[verdict.cluster, cause.kind.name.lower()] += 1
        for series in self._caused - counts.keys():
            family.forget(*series)
        for series, count in counts.items():
            family.of(*series).set(count)
        self._caused = frozenset(counts)

    def _account(self, decision: Decision, began: float) -> dict[tuple[str, NeedKey], str]:
        """Count and log the needs that were left short. Returns what the audit log says of each."""
        core, metrics, verdicts = self._core, self._core.metrics, decision.verdicts
        now = core.clocks.now()
        short = [ShortNeed(*verdicts.lacking(row)) for row in verdicts.short()]
        early = began - self._aged < self._interval * _ON_TIME
        if not early:
            self._aged = began
        report = core.left_short(short, early=early)
        metrics.shortfalls.set(report.count)
        for name, count in report.by_priority.items():
            metrics.shortfalls_by_priority.of(name).set(count)
        for name, count in report.by_age.items():
            metrics.shortfalls_aged.of(name).set(count)
        self._show_causes(decision, now)
        if report.count:
            _log.warning(
                "shortfalls detected",
                count=report.count,
                oldest=report.oldest,
                escalated=sum(entry.escalated for entry in report.entries),
            )
        return {(need.cluster, need.key): f"short of {_words(need.deficit)}" for need in short}

    def _watch_silence(self, now: float) -> None:
        """Log which clusters have had no session for a day, each time that these are other clusters than before."""
        silent = self._core.parts.demand.silent(now)
        self._core.metrics.clusters_silent.set(len(silent))
        if silent and silent != self._silent:
            advice = "bigfleetctl clusters forget, for those that are gone for good"
            _log.warning("clusters_silent", count=len(silent), clusters=silent[:_NAMED], advice=advice)
        self._silent = silent

    def _record(self, action: Action, event: str, short: dict[tuple[str, NeedKey], str], before: float) -> Record:
        parts, stamp = self._core.parts, action.stamp
        machine, commitment = parts.supply.find(action.machine), parts.commitments.get(action.machine)
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
            cost_before=round(before, _DECIMALS),
            cost_after=round(before + change, _DECIMALS),
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
            detail=end.detail[:_MOST_DETAIL],
            id=commitment.id,
        )

    def _line(self, event: str, kind: str, machine_id: str, stamp: Stamp | None = None, **said: Any) -> Record:
        """A record with the fields that every record has. The cost is the present cost unless `said` has another."""
        core, supply = self._core, self._core.parts.supply
        machine, cost = supply.find(machine_id), round(supply.cost_per_hour, _DECIMALS)
        return Record(
            at=_at(core.clocks.wall()),
            cycle=self.cycle,
            shard=core.settings.shard_id,
            epoch=core.parts.actuation.epoch,
            event=event,
            kind=kind,
            machine=machine_id,
            provider=supply.provider_of(machine_id) or "",
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
