"""The one cause for which the pods of a need wait. docs/why-is-my-need-unmet.md has the order of causes as a table.

A cause is asked for, it decides nothing. Causes hold for the decision whose verdict they are told of.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bigfleet.engine.candidates import Candidates, HeldShape
from bigfleet.engine.records import UnmetReason, Verdict
from bigfleet.model.demand.need import Need
from bigfleet.model.machine import MachineState
from bigfleet.shard.decision import cause_words as words
from bigfleet.shard.decision.holdouts import HeldOut, HoldOuts, Shape, shape_of
from bigfleet.shard.demand.table import Demand
from bigfleet.shard.execution.actuation import Actuation
from bigfleet.shard.supply.table import Supply


class CauseKind(enum.IntEnum):
    """What keeps a need waiting. Values are the numbers on the wire; names in lower case are the metric's labels."""

    NONE = 0
    OPERATOR_AWAY = 1
    FALL_DOUBTED = 2
    BOOTSTRAP_FAILED = 3
    NO_MATCH = 4
    TOO_LARGE = 5
    TOO_FEW = 6
    DOMAIN_TOO_SMALL = 7
    SKEW = 8
    PAUSED = 9
    FILE_UNWRITABLE = 10
    PROVIDER_UNREACHABLE = 11
    OUT_OF_STOCK = 12
    MACHINES_FAILED = 13
    MACHINES_ON_THEIR_WAY = 14
    PREEMPTION_EXHAUSTED = 15
    OUTRANKED = 16


class Cause(NamedTuple):
    """Why the pods of a need wait."""

    kind: CauseKind
    #: The cause in a sentence.
    text: str = ""
    #: Since when it has held; None where nobody knows.
    since: float | None = None


NO_CAUSE = Cause(CauseKind.NONE)
"""The cause of a need whose machines all serve."""


class _Blocked(NamedTuple):
    """What keeps free machines that would serve from being had."""

    cause: Cause
    machines: int
    #: Units that the machines would hold; 0 of a need that may be cut anywhere.
    units: int


class Causes:
    """Finds causes in what the parts know. It knows nothing of its own."""

    def __init__(
        self, supply: Supply, demand: Demand, holdouts: HoldOuts, actuation: Actuation, providers: tuple[str, ...]
    ) -> None:
        self._supply, self._demand, self._holdouts = supply, demand, holdouts
        self._actuation, self._providers = actuation, providers

    def of_short(self, need: Need, verdict: Verdict, candidates: Callable[[], Candidates], now: float) -> Cause:
        """Why a decision left the need short."""
        told = self._away(verdict.cluster, now) or self._doubted(verdict.cluster) or self._held_out(verdict, now)
        if told is not None:
            return told
        found = candidates()
        return (
            self._impossible(need, verdict, found, now)
            or self._held_still()
            or self._blocked(verdict, found, now)
            or _outranked(need, verdict, found)
        )

    def of_covered(self, verdict: Verdict, on_their_way: Counter[MachineState], now: float) -> Cause:
        """Why the pods of a need that a decision covered still wait; NO_CAUSE where all of its machines serve."""
        if not on_their_way:
            return NO_CAUSE
        waits = Cause(CauseKind.MACHINES_ON_THEIR_WAY, words.on_their_way(on_their_way))
        return self._away(verdict.cluster, now) or self._held_still() or waits

    # What holds for all needs of a cluster or a profile.

    def _away(self, cluster: str, now: float) -> Cause | None:
        if self._demand.live(cluster):
            return None
        return Cause(CauseKind.OPERATOR_AWAY, words.away(cluster), now - self._demand.away_seconds(cluster, now))

    def _doubted(self, cluster: str) -> Cause | None:
        doubted = self._demand.doubted(cluster)
        if doubted is None:
            return None
        return Cause(CauseKind.FALL_DOUBTED, words.fall_doubted(cluster, doubted.reason), doubted.since)

    def _held_out(self, verdict: Verdict, now: float) -> Cause | None:
        hold = self._holdouts.held_need(verdict.cluster, verdict.key.fingerprint, now)
        if hold is None:
            return None
        return Cause(CauseKind.BOOTSTRAP_FAILED, words.bootstrap_failed(hold.said, hold.until - now), hold.since)

    # What no free machine would mend.

    def _impossible(self, need: Need, verdict: Verdict, found: Candidates, now: float) -> Cause | None:
        """Why the whole fleet, empty and all the need's own, would not hold the need."""
        match verdict.unmet_reason:
            case UnmetReason.NO_MATCHING_SUPPLY:
                # Machines that are Failed, or that no provider has listed yet, may be all that is missing.
                return self._failed(need, found, now) or self._unlisted() or _too_little(need, found)
            case UnmetReason.TOPOLOGY_UNSATISFIABLE if need.profile.same:
                return Cause(CauseKind.DOMAIN_TOO_SMALL, words.domain_too_small(need))
            case UnmetReason.TOPOLOGY_UNSATISFIABLE:
                return Cause(CauseKind.SKEW, words.skew(need, found.fitting))
        return None

    def _failed(self, need: Need, found: Candidates, now: float) -> Cause | None:
        enough = found.failed_machines > 0 and (not need.unit or found.units + found.failed_units >= need.units)
        if not enough:
            return None
        failed, dry, silent = self._sorted(found.failed, now)
        if silent:
            return self._unreachable(silent.most_common(1)[0][0], 0)
        if sum(dry.values()) > len(failed):
            return self._out_of_stock([HeldShape(*shape, number, 0) for shape, number in dry.items()], now).cause
        return self._failures(failed or found.failed, found.failed_machines, now)

    def _unlisted(self) -> Cause | None:
        unlisted = [name for name in self._providers if not self._supply.has_listed(name)]
        return self._unreachable(unlisted[0], 0) if unlisted else None

    # What keeps the shard from acting.

    def _held_still(self) -> Cause | None:
        actuation = self._actuation
        if not actuation.acts:
            if actuation.stood_down:
                text = words.stood_down(actuation.stood_down)
            elif actuation.paused:
                text = words.paused(actuation.pause_reason)
            else:
                text = words.DRY_RUN
            return Cause(CauseKind.PAUSED, text, actuation.held_since)
        if not actuation.durable:
            text = words.file_unwritable(actuation.file_problem)
            return Cause(CauseKind.FILE_UNWRITABLE, text, actuation.file_lost_since)
        return None

    # What keeps free machines from being had.

    def _blocked(self, verdict: Verdict, found: Candidates, now: float) -> Cause | None:
        """What holds back most of the free machines that would serve, if those would cover half of what is missing."""
        each_holds = found.not_yet_units / len(found.not_yet) if found.not_yet else 0.0
        blocked: list[_Blocked] = []
        failed, dry, silent = self._sorted(found.not_yet, now)
        # The machines that are named stand for all.
        scale = found.not_yet_machines / len(found.not_yet) if found.not_yet else 0.0
        for provider, number in silent.items():
            cause = self._unreachable(provider, round(number * scale))
            blocked.append(_Blocked(cause, round(number * scale), round(number * each_holds)))
        shapes = [HeldShape(*shape, round(n * scale), round(n * each_holds)) for shape, n in dry.items()]
        if shapes or found.held_shapes:
            blocked.append(self._out_of_stock([*found.held_shapes, *shapes], now))
        if failed:
            number = round(len(failed) * scale)
            blocked.append(_Blocked(self._failures(failed, number, now), number, round(len(failed) * each_holds)))
        if not blocked:
            return None
        # Of equals the first is told: providers come before stock, and stock before failures.
        most = max(blocked, key=lambda each: (each.units, each.machines))
        return most.cause if 2 * most.units >= verdict.missing_units else None

    def _sorted(self, machine_ids: Iterable[str], now: float) -> tuple[list[str], Counter[Shape], Counter[str]]:
        """Machines that may not be used yet, by why: they failed, have no stock, or their provider is away."""
        failed, dry, silent = list[str](), Counter[Shape](), Counter[str]()
        for machine_id in machine_ids:
            machine, provider = self._supply.find(machine_id), self._supply.provider_of(machine_id)
            if machine is None or provider is None:
                continue
            if not self._supply.is_reachable(provider):
                silent[provider] += 1
            elif self._holdouts.held_shape(shape_of(machine), now) is not None:
                # A Create that failed for want of stock holds its machine out too.
                dry[shape_of(machine)] += 1
            elif self._holdouts.held_machine(machine_id, now) is not None or machine.state is MachineState.FAILED:
                failed.append(machine_id)
        return failed, dry, silent

    def _out_of_stock(self, shapes: Sequence[HeldShape], now: float) -> _Blocked:
        """Free machines of shapes that are held out, told of the shape that holds most."""
        first = max(shapes, key=lambda each: (each.units, each.machines))
        # A hold-out that has ended since the decision is the cause until the next one.
        hold = self._holdouts.held_shape(first[:3], now)
        text = words.out_of_stock(
            first,
            "" if hold is None else hold.said,
            0.0 if hold is None else hold.until - now,
            more=len({each[:3] for each in shapes}) - 1,
        )
        cause = Cause(CauseKind.OUT_OF_STOCK, text, None if hold is None else hold.since)
        return _Blocked(cause, sum(each.machines for each in shapes), sum(each.units for each in shapes))

    def _unreachable(self, provider: str, machines: int) -> Cause:
        answered, problem = self._supply.silence(provider)
        return Cause(CauseKind.PROVIDER_UNREACHABLE, words.unreachable(provider, machines, problem), answered)

    def _failures(self, machine_ids: Sequence[str], machines: int, now: float) -> Cause:
        """The cause for machines that failed, told of the one that is held out longest."""
        holds = [(self._holdouts.held_machine(machine_id, now), machine_id) for machine_id in machine_ids]
        held = [(hold, machine_id) for hold, machine_id in holds if hold is not None]
        hold, example = max(held, key=lambda pair: pair[0].until, default=(None, machine_ids[0]))
        machine = self._supply.find(example)
        hold = hold or HeldOut(now, now, "" if machine is None else machine.last_error)
        text = words.machines_failed(machines, example, hold.said, hold.until - now)
        return Cause(CauseKind.MACHINES_FAILED, text, hold.since if held else None)


def _too_little(need: Need, found: Candidates) -> Cause:
    if not found.matching or found.largest is None:
        return Cause(CauseKind.NO_MATCH, words.no_match(need))
    if not found.fitting:
        return Cause(CauseKind.TOO_LARGE, words.too_large(need, found.largest))
    return Cause(CauseKind.TOO_FEW, words.too_few(need, found.fitting, found.units))


def _outranked(need: Need, verdict: Verdict, found: Candidates) -> Cause:
    if verdict.unmet_reason is UnmetReason.PREEMPTION_EXHAUSTED:
        return Cause(CauseKind.PREEMPTION_EXHAUSTED, words.preemption_exhausted(verdict.preempts))
    if found.open and not need.profile.same and words.hard_spreads(need):
        return Cause(CauseKind.SKEW, words.free_and_uneven(need, found.open))
    return Cause(CauseKind.OUTRANKED, words.outranked(need, found.fitting))
