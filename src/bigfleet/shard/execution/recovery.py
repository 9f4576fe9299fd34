"""The way out of Failed (protocol.md 1), machine by machine and for ever. Events in, effects out; no I/O.

A round begins a while after the machine was seen Failed: where its Node was Ready its operator empties it first, then
one call is made and, if the provider will not have that one, another. A round in which a call was made doubles the wait
for the next. Nothing of this is written down: after a restart the first list shows who is Failed.
"""

import enum
from collections.abc import Callable
from typing import Protocol

import msgspec

from bigfleet.model.machine import ASKS, Call, Machine, MachineState, can
from bigfleet.shard.execution.effects import Ask, Incident, Instruct, Settle, WithdrawInstruction
from bigfleet.shard.execution.lifecycle import EMPTY_GRACE_SECONDS, Problem
from bigfleet.shard.execution.next_step import TAKEN_BACK_GRACE_SECONDS

FIRST_SECONDS, LONGEST_SECONDS = 60.0, 3600.0
"""How long a machine is left alone before a round: doubling from the first to the longest."""

ALERT_SECONDS = 30 * 60.0
"""A machine that is Failed after so long needs a person."""

_S = MachineState
_UNDER_WAY = frozenset(ask.via for ask in ASKS if ask.source is _S.FAILED)


class Surroundings(Protocol):
    """What must be known of the rest of the shard at the moment it acts."""

    def machine(self, machine_id: str) -> Machine | None:
        """The machine as last seen."""

    def node_ready(self, machine_id: str) -> bool:
        """Whether its Node was seen Ready in this binding, so that pods may run there."""

    def has_session(self, cluster_id: str) -> bool:
        """Whether the cluster's operator is connected."""

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        """Whether the operator has been away so long that its machines are drained without it (protocol.md 12)."""

    def reports_drained(self, cluster_id: str) -> bool:
        """Whether that operator says when a node is empty."""

    def committed(self, machine_id: str) -> bool:
        """Whether an action on the machine is under way, which then has to end first."""

    def usable(self, machine_id: str) -> bool:
        """Whether the machine may be acted on at all."""

    def may_act(self) -> bool:
        """Whether the local file can be written and nobody else is this shard (protocol.md 9, 10)."""

    def new_id(self) -> str:
        """A fresh id for an instruction."""


class Alert(msgspec.Struct, frozen=True):
    """The machine has been on its way out of Failed since then and still is: a person must hear of it. Said once."""

    machine_id: str
    since: float


class Recovered(msgspec.Struct, frozen=True):
    """The machine is out of Failed."""

    machine_id: str


Effect = Ask | Settle | Instruct | WithdrawInstruction | Incident | Alert | Recovered


class _Step(enum.Enum):
    RESTING = "resting"
    INSTRUCTED = "instructed"
    """The operator was told to empty the node."""
    CALLING = "calling"
    DOUBT = "doubt"
    """A Get must tell how the machine stands before the next call."""


class _Case(msgspec.Struct, kw_only=True):
    """One machine on its way out of Failed.

    `due` is when the next round may begin, on the clock that stands still in a pause, and `seconds` the wait before it.
    `tried` are the calls of this round and `answer` why the last of them brought no ack. `cluster`, `instruction_id`
    and `deadline` are of the instruction that stands; `empty` says that the operator reported the node empty.
    """

    machine: str
    provider: str
    since: float
    due: float
    seconds: float = FIRST_SECONDS
    failed: bool = True
    alerted: bool = False
    step: _Step = _Step.RESTING
    tried: tuple[Call, ...] = ()
    answer: Problem | None = None
    cluster: str = ""
    instruction_id: str = ""
    deadline: float = 0.0
    empty: bool = False


class Recovery:
    """Every machine that is Failed, or was and has not come to rest since."""

    def __init__(self, surroundings: Surroundings, fenced: set[str]) -> None:
        """`fenced` are the machines whose last call was fenced, whoever made it: one set for execute and this."""
        self._around, self._fenced = surroundings, fenced
        self._cases: dict[str, _Case] = {}
        self._machine_of: dict[str, str] = {}
        self._paused_at: float | None = None
        self._slept = 0.0

    # What is seen of machines.

    def failed(self, machine: Machine, provider: str, now: float) -> list[Effect]:
        """The machine is Failed; to be told as often as it becomes so, and told again it is no news."""
        case = self._cases.get(machine.id)
        if case is None:
            due = self._running(now) + FIRST_SECONDS
            self._cases[machine.id] = _Case(machine=machine.id, provider=provider, since=now, due=due)
            return []
        case.provider = provider
        if case.failed:
            return []
        # The way out failed, or what came after: it is left alone as long as after a refusal.
        case.failed, case.due = True, self._running(now) + case.seconds
        return self._withdraw(case, "the machine failed again") if case.step is _Step.RESTING else []

    def left(self, machine_id: str) -> list[Effect]:
        """The machine is no longer Failed, or is gone; where it went from there a tick finds, if nobody tells.

        A call or a Get on its way is waited for first.
        """
        case = self._cases.get(machine_id)
        return [] if case is None else self._look(case)

    def settled(self, machine_id: str, now: float) -> list[Effect]:
        """A Get answered: the machine as last seen is how it stands."""
        case = self._cases.get(machine_id)
        if case is None or case.step is not _Step.DOUBT:
            return []
        return self._go(case, now) if case.answer is Problem.REFUSED else self._rest(case, now)

    # What becomes of calls.

    def acknowledged(self, machine_id: str, now: float) -> list[Effect]:
        """The call on its way was taken, and its ack, which fits, is the machine as last seen."""
        case = self._calling(machine_id)
        if case is None:
            return []
        self._fenced.discard(machine_id)
        return self._rest(case, now)

    def call_failed(self, machine_id: str, problem: Problem, now: float) -> list[Effect]:
        """The call on its way brought no ack that fits. One that the provider cannot do gives way to the other at once,
        one that it refused does if a Get shows the machine Failed still; after any other the next round is waited for.
        """
        case = self._calling(machine_id)
        if case is None:
            return []
        case.answer = problem
        if problem is Problem.UNSUPPORTED:
            return self._go(case, now)
        case.step = _Step.DOUBT
        effects: list[Effect] = [Settle(machine_id, case.provider)]
        if problem is Problem.FENCED:
            text = f"{case.tried[-1].value} out of Failed: the provider knows a newer token of this shard"
            effects.insert(0, Incident(machine_id, text, stop=machine_id in self._fenced))
            self._fenced.add(machine_id)
        return effects

    # What operators say.

    def reclaim_acked(self, instruction_id: str, now: float) -> list[Effect]:
        """The node is cordoned. An operator that will not say when it is empty has said all it will."""
        case = self._instructed(instruction_id)
        return [] if case is None or self._around.reports_drained(case.cluster) else self._go(case, now)

    def node_drained(self, instruction_id: str, now: float) -> list[Effect]:
        """Nothing but daemons is left on the node."""
        case = self._instructed(instruction_id)
        if case is None:
            return []
        case.empty = True
        return self._go(case, now)

    def node_not_drained(self, instruction_id: str, now: float) -> list[Effect]:
        """Pods are left and the operator has stopped: what remains of their grace is the provider's to give."""
        case = self._instructed(instruction_id)
        return [] if case is None else self._go(case, now)

    def unanswered(self, cluster_id: str, now: float) -> list[Instruct]:
        """What the cluster's operator hears again when it connects, with the grace that remains (protocol.md 14)."""
        told = [case for case in self._cases.values() if case.instruction_id and case.cluster == cluster_id]
        return [Instruct(cluster_id, each.instruction_id, each.machine, _remaining(each, now)) for each in told]

    # Time.

    def tick(self, now: float) -> list[Effect]:
        """Begin what is due, go on where a grace is over, and say who has been Failed for too long."""
        return self._each(lambda case: self._ticked(case, now))

    def pause(self, now: float) -> list[Effect]:
        """Send nothing more: nodes that no provider was asked to drain are uncordoned (protocol.md 18)."""
        if self._paused_at is not None:
            return []
        self._paused_at = now
        return self._each(lambda case: self._rest(case, now) if case.step is _Step.INSTRUCTED else [])

    def resume(self, now: float) -> list[Effect]:
        """Go on; the pause counts for no wait."""
        if self._paused_at is None:
            return []
        self._slept += now - self._paused_at
        self._paused_at = None
        return self.tick(now)

    # Questions.

    def busy(self, machine_id: str) -> bool:
        """Whether an instruction, a call or a Get on the machine is out, so that nothing else may be begun on it."""
        case = self._cases.get(machine_id)
        return case is not None and case.step is not _Step.RESTING

    def wants(self, ask: Ask) -> bool:
        """Whether a call that waited for its turn is still to be made; where not, say UNAVAILABLE of it."""
        case, machine = self._calling(ask.machine), self._around.machine(ask.machine)
        return case is not None and machine is not None and ask.call in _ways_out(machine)

    def awaits(self, provider: str) -> bool:
        """Whether a machine of the provider is under way."""
        cases = (case for case in self._cases.values() if case.provider == provider)
        return any(not case.failed or case.step in (_Step.CALLING, _Step.DOUBT) for case in cases)

    # Steps.

    def _ticked(self, case: _Case, now: float) -> list[Effect]:
        effects = self._look(case)
        machine = self._around.machine(case.machine)
        if case.step is _Step.DOUBT:
            effects.append(Settle(case.machine, case.provider))
        if machine is None or machine.state is not _S.FAILED:
            return effects
        if not case.alerted and now - case.since >= ALERT_SECONDS:
            case.alerted = True
            effects.append(Alert(case.machine, case.since))
        if case.step is _Step.RESTING and self._running(now) >= case.due:
            effects += self._begin(case, machine, now)
        elif case.step is _Step.INSTRUCTED and (now >= case.deadline or machine.cluster != case.cluster):
            effects += self._go(case, now)
        return effects

    def _begin(self, case: _Case, machine: Machine, now: float) -> list[Effect]:
        """A round is due: through the operator first, where pods may run on the machine."""
        if not self._may(case, machine, now):
            return []
        cluster = machine.cluster
        if not cluster or not self._around.node_ready(case.machine) or not self._around.has_session(cluster):
            return self._go(case, now)
        case.step, case.cluster, case.instruction_id = _Step.INSTRUCTED, cluster, self._around.new_id()
        case.deadline = now + TAKEN_BACK_GRACE_SECONDS
        self._machine_of[case.instruction_id] = case.machine
        return [Instruct(cluster, case.instruction_id, case.machine, TAKEN_BACK_GRACE_SECONDS)]

    def _go(self, case: _Case, now: float) -> list[Effect]:
        """Make the next call of this round; where there is none, or none may be made now, the round is over."""
        machine = self._around.machine(case.machine)
        if machine is None or not self._may(case, machine, now):
            return self._rest(case, now)
        for call in _ways_out(machine):
            # A slot that cannot be given back may be made real; one that just was not given back must not be paid for.
            if call in case.tried or (call is Call.CREATE and case.answer is not Problem.UNSUPPORTED):
                continue
            if call is Call.DELETE and case.instruction_id and not case.empty and now < case.deadline:
                # It would not wait for pods as a drain does: they have their grace first.
                case.step = _Step.INSTRUCTED
                return []
            case.step, case.tried = _Step.CALLING, (*case.tried, call)
            grace = _grace(case, machine, now) if call is Call.DRAIN else 0
            return [Ask(case.machine, case.provider, call, grace_seconds=grace)]
        return self._rest(case, now)

    def _rest(self, case: _Case, now: float) -> list[Effect]:
        """The round is over; where no call was made in it, the next may begin as soon as one may be made."""
        if case.tried:
            case.seconds = min(2 * case.seconds, LONGEST_SECONDS)
            case.due = self._running(now) + case.seconds
        case.step, case.tried = _Step.RESTING, ()
        machine = self._around.machine(case.machine)
        if machine is not None and machine.state is _S.FAILED:
            return self._withdraw(case, "the machine is not drained now")
        return self._look(case)

    def _look(self, case: _Case) -> list[Effect]:
        """Follow the machine out of Failed; one that came to rest elsewhere is done with."""
        machine = self._around.machine(case.machine)
        if machine is not None and machine.state is _S.FAILED:
            return []
        case.failed = False
        if case.step in (_Step.CALLING, _Step.DOUBT):
            return []
        case.step, case.tried = _Step.RESTING, ()
        effects: list[Effect] = []
        if machine is None or machine.cluster != case.cluster:
            effects = self._withdraw(case, "the machine has left the cluster")
        if machine is not None and machine.state in _UNDER_WAY:
            return effects
        del self._cases[case.machine]
        effects += self._withdraw(case, "the machine is out of Failed")
        return effects if machine is None else [*effects, Recovered(case.machine)]

    def _may(self, case: _Case, machine: Machine, now: float) -> bool:
        """Whether anything may be done with the machine at this moment."""
        around, cluster = self._around, machine.cluster
        if self._paused_at is not None or not around.may_act():
            return False
        if not around.usable(case.machine) or around.committed(case.machine):
            return False
        if case.instruction_id:
            # What its operator was told runs its course, session or not; told of another binding, it says nothing.
            return case.cluster == cluster
        # No session is no licence (protocol.md 12).
        return not cluster or around.has_session(cluster) or around.may_bypass(cluster, now)

    def _withdraw(self, case: _Case, reason: str) -> list[Effect]:
        """The instruction, if there is one, stands no more."""
        if not case.instruction_id:
            return []
        withdrawn = WithdrawInstruction(case.cluster, case.instruction_id, case.machine, reason)
        del self._machine_of[case.instruction_id]
        case.cluster, case.instruction_id, case.empty = "", "", False
        return [withdrawn]

    def _calling(self, machine_id: str) -> _Case | None:
        case = self._cases.get(machine_id)
        return case if case is not None and case.step is _Step.CALLING else None

    def _instructed(self, instruction_id: str) -> _Case | None:
        case = self._cases.get(self._machine_of.get(instruction_id, ""))
        return case if case is not None and case.step is _Step.INSTRUCTED else None

    def _each(self, step: Callable[[_Case], list[Effect]]) -> list[Effect]:
        return [effect for case in list(self._cases.values()) for effect in step(case)]

    def _running(self, now: float) -> float:
        """The clock that stands still in a pause."""
        return (now if self._paused_at is None else self._paused_at) - self._slept


def _ways_out(machine: Machine) -> list[Call]:
    """The calls that lead out of Failed, the one to try first before the other; none from any other state."""
    order = (Call.DRAIN, Call.DELETE) if machine.cluster else (Call.DELETE, Call.DRAIN)
    if machine.state is not _S.FAILED:
        return []
    return [call for call in (*order, Call.CREATE) if can(call, machine.state, machine.host is not None)]


def _grace(case: _Case, machine: Machine, now: float) -> int:
    """What the provider gives pods: little where the node is empty, else what remains, or all where nobody was told."""
    if case.empty:
        return EMPTY_GRACE_SECONDS
    if case.instruction_id:
        return _remaining(case, now)
    return TAKEN_BACK_GRACE_SECONDS if machine.cluster else 0


def _remaining(case: _Case, now: float) -> int:
    return max(0, round(case.deadline - now))
