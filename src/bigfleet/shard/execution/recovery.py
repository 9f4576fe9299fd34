"""The way out of Failed (protocol rule 1), machine by machine and for ever. Events in, effects out; no I/O.

A round begins a while after the machine was seen Failed. Where the machine's Node was Ready, its operator empties the
node first. Then one call is made and, if the provider will not have that one, another. A round in which a call was made
doubles the wait for the next. Nothing of this is written down: after a restart the first list shows who is Failed.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from bigfleet.model.machine import ASKS, Call, Machine, MachineState, can
from bigfleet.shard.execution.actuation import Actuation
from bigfleet.shard.execution.effects import Fenced, Instruct, Problem, ProviderCall, Settle, WithdrawInstruction
from bigfleet.shard.execution.operator_requests import OperatorRequests
from bigfleet.shard.execution.steps import (
    EMPTY_GRACE_SECONDS,
    RECOVERY_AWAITS,
    RECOVERY_CALLS,
    TAKEN_BACK_GRACE_SECONDS,
    Awaited,
    RecoveryStep,
)

FIRST_SECONDS, LONGEST_SECONDS = 60.0, 3600.0
"""How long a machine is left alone before a round: doubling from the first to the longest."""

ALERT_SECONDS = 30 * 60.0
"""A machine that is Failed after so long needs a person."""

_S = MachineState
_AT_PROVIDER = (Awaited.ACK, Awaited.GET)
_UNDER_WAY = frozenset(ask.via for ask in ASKS if ask.source is _S.FAILED)


class RecoveryLookups(Protocol):
    """What a recovery must know of the rest of the shard at the moment it goes on."""

    def machine(self, machine_id: str) -> Machine | None:
        """The machine as last seen."""

    def node_ready(self, machine_id: str) -> bool:
        """Whether its Node was seen Ready in this binding, so that pods may run there."""

    def has_session(self, cluster_id: str) -> bool:
        """Whether the cluster's operator is connected."""

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        """Whether the operator has been away so long that its machines are drained without it (protocol rule 12)."""

    def reports_drained(self, cluster_id: str) -> bool:
        """Whether that operator says when a node is empty."""

    def committed(self, machine_id: str) -> bool:
        """Whether an action on the machine is under way, which then has to end first."""

    def usable(self, machine_id: str) -> bool:
        """Whether the machine may be acted on at all."""

    def may_act(self) -> bool:
        """Whether the local file can be written and nobody else is this shard (protocol rules 9, 10)."""

    def new_id(self) -> str:
        """A fresh id for an instruction."""


class Alert(msgspec.Struct, frozen=True):
    """The machine has been Failed since then, and a person must hear of it. Said once for each recovery."""

    machine_id: str
    since: float


class Recovered(msgspec.Struct, frozen=True):
    """The machine is out of Failed."""

    machine_id: str


Effect = ProviderCall | Settle | Instruct | WithdrawInstruction | Fenced | Alert | Recovered


class _Case(msgspec.Struct, kw_only=True):
    """One machine on its way out of Failed."""

    machine: str
    provider: str
    #: When the machine was first seen Failed.
    since: float
    #: When the next round may begin, on the clock that stands still while actuation is held.
    due: float
    #: The wait before the next round.
    seconds: float = FIRST_SECONDS
    #: Whether the machine is Failed now; otherwise it has left Failed and has not come to rest.
    failed: bool = True
    #: Whether a person was told that the machine stays Failed.
    alerted: bool = False
    step: RecoveryStep = RecoveryStep.RESTING
    #: The calls of this round.
    tried: tuple[Call, ...] = ()
    #: Why the last of the round's calls brought no ack.
    answer: Problem | None = None
    #: The cluster, id and end of grace of the instruction that stands.
    cluster: str = ""
    instruction_id: str = ""
    deadline: float = 0.0
    #: Whether the operator reported the node empty.
    empty: bool = False


class Recovery:
    """Every machine that is Failed, or was and has not come to rest since."""

    def __init__(
        self, lookups: RecoveryLookups, requests: OperatorRequests, actuation: Actuation, fenced: set[str]
    ) -> None:
        """`fenced` are the machines whose last call was fenced, whoever made the call (protocol rule 10)."""
        self._lookups, self._requests, self._actuation, self._fenced = lookups, requests, actuation, fenced
        self._cases: dict[str, _Case] = {}

    # What is seen of machines.

    def failed(self, machine: Machine, provider: str, now: float) -> list[Effect]:
        """The machine is Failed. To be told each time that it becomes so; telling it twice changes nothing."""
        case = self._cases.get(machine.id)
        if case is None:
            due = self._actuation.running(now) + FIRST_SECONDS
            self._cases[machine.id] = _Case(machine=machine.id, provider=provider, since=now, due=due)
            return []
        case.provider = provider
        if case.failed:
            return []
        # The way out failed, or what came after it did: the machine is left alone as long as after a refusal.
        case.failed, case.due = True, self._actuation.running(now) + case.seconds
        return self._withdraw(case, "the machine failed again") if case.step is RecoveryStep.RESTING else []

    def left(self, machine_id: str) -> list[Effect]:
        """The machine is no longer Failed, or is gone. A tick finds out where the machine went from there.

        A call or a Get on its way is waited for first.
        """
        case = self._cases.get(machine_id)
        return [] if case is None else self._look(case)

    def settled(self, machine_id: str, now: float) -> list[Effect]:
        """A Get answered, and supply has taken the answer."""
        case = self._cases.get(machine_id)
        if case is None or case.step is not RecoveryStep.DOUBT:
            return []
        return self._go(case, now) if case.answer is Problem.REFUSED else self._rest(case, now)

    # What becomes of calls.

    def acknowledged(self, machine_id: str, now: float) -> list[Effect]:
        """The call was acknowledged, and supply has taken the ack."""
        case = self._calling(machine_id)
        if case is None:
            return []
        self._fenced.discard(machine_id)
        return self._rest(case, now)

    def call_failed(self, machine_id: str, problem: Problem, now: float) -> list[Effect]:
        """The call brought no ack that fits. After a call that the provider cannot do, the other is made at once; after
        one that it refused, the other is made if a Get shows the machine Failed still. Every other problem ends the
        round.
        """
        case = self._calling(machine_id)
        if case is None:
            return []
        case.answer = problem
        if problem is Problem.UNSUPPORTED:
            return self._go(case, now)
        case.step = RecoveryStep.DOUBT
        effects: list[Effect] = [Settle(machine_id, case.provider)]
        if problem is Problem.FENCED:
            text = f"{case.tried[-1].value} out of Failed: the provider knows a newer token of this shard"
            effects.insert(0, Fenced(machine_id, text, stop=machine_id in self._fenced))
            self._fenced.add(machine_id)
        return effects

    # What operators say.

    def reclaim_acked(self, instruction_id: str, now: float) -> list[Effect]:
        """The node is cordoned. From an operator that does not report empty nodes, no more is to be heard."""
        case = self._instructed(instruction_id)
        return [] if case is None or self._lookups.reports_drained(case.cluster) else self._go(case, now)

    def node_drained(self, instruction_id: str, now: float) -> list[Effect]:
        """Nothing but daemons is left on the node."""
        case = self._instructed(instruction_id)
        if case is None:
            return []
        case.empty = True
        return self._go(case, now)

    def node_not_drained(self, instruction_id: str, now: float) -> list[Effect]:
        """Pods are left and the operator has stopped. The provider gives them what is left of their grace."""
        case = self._instructed(instruction_id)
        return [] if case is None else self._go(case, now)

    def unanswered(self, cluster_id: str, now: float) -> list[Instruct]:
        """What the cluster's operator hears again when it connects, with the grace that remains (protocol rule 14)."""
        told = [case for case in self._cases.values() if case.instruction_id and case.cluster == cluster_id]
        return [Instruct(cluster_id, each.instruction_id, each.machine, _remaining(each, now)) for each in told]

    # Time.

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: begin rounds that are due, go on where a grace is over, alert where Failed lasts."""
        return self._each(lambda case: self._ticked(case, now))

    def held(self, now: float) -> list[Effect]:
        """Actuation is held: nodes that no provider was asked to drain are uncordoned (protocol rule 18)."""
        return self._each(lambda case: self._rest(case, now) if case.step is RecoveryStep.INSTRUCTED else [])

    # Questions.

    def busy(self, machine_id: str) -> bool:
        """Whether an instruction, a call or a Get on the machine is out, so that nothing else may be begun on it."""
        case = self._cases.get(machine_id)
        return case is not None and case.step is not RecoveryStep.RESTING

    def wants(self, waited: ProviderCall) -> bool:
        """Whether a call that waited for its turn is still to be made. Otherwise it is to be told as UNAVAILABLE."""
        case, machine = self._calling(waited.machine), self._lookups.machine(waited.machine)
        return case is not None and machine is not None and waited.call in _ways_out(machine)

    def awaits(self, provider: str) -> bool:
        """Whether a machine of the provider is under way."""
        cases = (case for case in self._cases.values() if case.provider == provider)
        return any(not case.failed or RECOVERY_AWAITS[case.step] in _AT_PROVIDER for case in cases)

    # Steps.

    def _ticked(self, case: _Case, now: float) -> list[Effect]:
        effects = self._look(case)
        machine = self._lookups.machine(case.machine)
        if case.step is RecoveryStep.DOUBT:
            effects.append(Settle(case.machine, case.provider))
        if machine is None or machine.state is not _S.FAILED:
            return effects
        if not case.alerted and now - case.since >= ALERT_SECONDS:
            case.alerted = True
            effects.append(Alert(case.machine, case.since))
        if case.step is RecoveryStep.RESTING and self._actuation.running(now) >= case.due:
            effects += self._begin(case, machine, now)
        elif case.step is RecoveryStep.INSTRUCTED and (now >= case.deadline or machine.cluster != case.cluster):
            effects += self._go(case, now)
        return effects

    def _begin(self, case: _Case, machine: Machine, now: float) -> list[Effect]:
        """A round is due. Where pods may run on the machine, its operator empties the node first."""
        if not self._may(case, machine, now):
            return []
        cluster = machine.cluster
        if not cluster or not self._lookups.node_ready(case.machine) or not self._lookups.has_session(cluster):
            return self._go(case, now)
        case.step, case.cluster, case.instruction_id = RecoveryStep.INSTRUCTED, cluster, self._lookups.new_id()
        case.deadline = now + TAKEN_BACK_GRACE_SECONDS
        self._requests.instructed(case.instruction_id, cluster, case.machine)
        return [Instruct(cluster, case.instruction_id, case.machine, TAKEN_BACK_GRACE_SECONDS)]

    def _go(self, case: _Case, now: float) -> list[Effect]:
        """Make the next call of this round. The round is over where no call is left, or none may be made now."""
        machine = self._lookups.machine(case.machine)
        if machine is None or not self._may(case, machine, now):
            return self._rest(case, now)
        for call in _ways_out(machine):
            # Create makes a slot real that its provider cannot delete. If Delete only failed, nothing is paid for.
            if call in case.tried or (call is Call.CREATE and case.answer is not Problem.UNSUPPORTED):
                continue
            if call is Call.DELETE and case.instruction_id and not case.empty and now < case.deadline:
                # Delete does not wait for pods as Drain does, so their grace comes first.
                case.step = RecoveryStep.INSTRUCTED
                return []
            case.step, case.tried = RecoveryStep.CALLING, (*case.tried, call)
            grace = _grace(case, machine, now) if call is Call.DRAIN else 0
            return [ProviderCall(case.machine, case.provider, call, grace_seconds=grace)]
        return self._rest(case, now)

    def _rest(self, case: _Case, now: float) -> list[Effect]:
        """The round is over. After a round without a call, the next may begin as soon as a call may be made."""
        if case.tried:
            case.seconds = min(2 * case.seconds, LONGEST_SECONDS)
            case.due = self._actuation.running(now) + case.seconds
        case.step, case.tried = RecoveryStep.RESTING, ()
        machine = self._lookups.machine(case.machine)
        if machine is not None and machine.state is _S.FAILED:
            return self._withdraw(case, "the machine is not drained now")
        return self._look(case)

    def _look(self, case: _Case) -> list[Effect]:
        """Follow the machine out of Failed. The recovery is over once the machine has come to rest."""
        machine = self._lookups.machine(case.machine)
        if machine is not None and machine.state is _S.FAILED:
            return []
        case.failed = False
        if RECOVERY_AWAITS[case.step] in _AT_PROVIDER:
            return []
        case.step, case.tried = RecoveryStep.RESTING, ()
        effects: list[Effect] = []
        if machine is None or machine.cluster != case.cluster:
            effects = self._withdraw(case, "the machine has left the cluster")
        if machine is not None and machine.state in _UNDER_WAY:
            return effects
        del self._cases[case.machine]
        effects += self._withdraw(case, "the machine is out of Failed")
        return effects if machine is None else [*effects, Recovered(case.machine)]

    def _may(self, case: _Case, machine: Machine, now: float) -> bool:
        """Whether anything may be done with the machine now."""
        lookups, cluster = self._lookups, machine.cluster
        if self._actuation.held or not lookups.may_act():
            return False
        if not lookups.usable(case.machine) or lookups.committed(case.machine):
            return False
        if case.instruction_id:
            # An instruction that stands counts without a session too, but only for the binding that it was given for.
            return case.cluster == cluster
        # No session is no licence (protocol rule 12).
        return not cluster or lookups.has_session(cluster) or lookups.may_bypass(cluster, now)

    def _withdraw(self, case: _Case, reason: str) -> list[Effect]:
        """Withdraw the instruction, if one stands."""
        if not case.instruction_id:
            return []
        withdrawn = WithdrawInstruction(case.cluster, case.instruction_id, case.machine, reason)
        self._requests.over(case.instruction_id)
        case.cluster, case.instruction_id, case.empty = "", "", False
        return [withdrawn]

    def _calling(self, machine_id: str) -> _Case | None:
        case = self._cases.get(machine_id)
        return case if case is not None and case.step is RecoveryStep.CALLING else None

    def _instructed(self, instruction_id: str) -> _Case | None:
        asked = self._requests.instruction(instruction_id)
        case = None if asked is None else self._cases.get(asked.machine)
        if case is None or case.instruction_id != instruction_id:
            return None
        return case if case.step is RecoveryStep.INSTRUCTED else None

    def _each(self, step: Callable[[_Case], list[Effect]]) -> list[Effect]:
        return [effect for case in list(self._cases.values()) for effect in step(case)]


def _ways_out(machine: Machine) -> list[Call]:
    """The calls that may lead the machine out of Failed, the first to try first; none where it is not Failed."""
    if machine.state is not _S.FAILED:
        return []
    return [
        call for call in RECOVERY_CALLS[bool(machine.cluster)] if can(call, machine.state, machine.host is not None)
    ]


def _grace(case: _Case, machine: Machine, now: float) -> int:
    """The grace of a drain: short where the node is empty, what is left of an instruction's, or all of it."""
    if case.empty:
        return EMPTY_GRACE_SECONDS
    if case.instruction_id:
        return _remaining(case, now)
    return TAKEN_BACK_GRACE_SECONDS if machine.cluster else 0


def _remaining(case: _Case, now: float) -> int:
    return max(0, round(case.deadline - now))
