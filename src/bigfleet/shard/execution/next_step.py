"""The next step of a commitment, from its goal and its machine's present state alone.

`steps.MOVES` says what is done for which goal in which state. The methods here do it.
"""

import math
from typing import Protocol

import msgspec

from bigfleet.engine.records import Kind
from bigfleet.model.machine import Call, Machine, MachineState, can
from bigfleet.shard.execution.actuation import Actuation
from bigfleet.shard.execution.commitment import Commitment, Commitments
from bigfleet.shard.execution.effects import (
    Effect,
    Ended,
    Held,
    HoldOut,
    Instruct,
    Keep,
    Outcome,
    ProviderCall,
    RequestBlob,
    Settle,
    WithdrawBlob,
    WithdrawInstruction,
)
from bigfleet.shard.execution.steps import (
    CALL_SECONDS,
    LEADS_TO,
    MOVES,
    RULES,
    STEP_OF,
    TAKEN_BACK_GRACE_SECONDS,
    UNSENT,
    Goal,
    Move,
    Step,
)

PAUSED = "actuation is paused"
"""Why commitments end, and calls are not made, that a pause cancels."""

_S = MachineState


class ExecutionLookups(Protocol):
    """What a commitment must know of the rest of the shard at the moment it goes on."""

    def machine(self, machine_id: str) -> Machine | None:
        """The machine as last seen."""

    def provider(self, machine_id: str) -> str:
        """The name of the machine's provider."""

    def holds(self, commitment: Commitment, machine: Machine) -> bool:
        """Whether the machine is bound as the commitment wants it: to its cluster, by this shard, under its stamp."""

    def has_session(self, cluster_id: str) -> bool:
        """Whether the cluster's operator is connected."""

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        """Whether the operator has been away so long that its machines are drained without it (protocol rule 12)."""

    def reports_drained(self, cluster_id: str) -> bool:
        """Whether that operator says when a node is empty."""

    def new_id(self) -> str:
        """A fresh id for a request or an instruction."""


class NextStep:
    """Moves commitments on. While actuation is held, nothing is sent and every commitment stays in its step."""

    def __init__(self, commitments: Commitments, lookups: ExecutionLookups, actuation: Actuation) -> None:
        self._commitments, self._lookups, self._actuation = commitments, lookups, actuation

    def advance(self, commitment: Commitment, now: float) -> list[Effect]:
        """Do what the goal asks for in the machine's present state."""
        machine = self._lookups.machine(commitment.machine)
        if machine is None:
            return self.end(commitment, Outcome.DROPPED, "the machine is gone")
        if self._actuation.held:
            # A Get may show that a drain never reached the provider. Such a drain is cancelled (protocol rule 18).
            undone = commitment.step is Step.DOUBT and _is_running(machine, commitment.leaves)
            return self.end(commitment, Outcome.DROPPED, PAUSED) if undone else []
        commitment, effects = self._take_back(commitment, machine)
        return [*effects, *self._onwards(commitment, machine, now)]

    def _onwards(self, commitment: Commitment, machine: Machine, now: float) -> list[Effect]:
        if machine.state is RULES[commitment.step].falls_back_to:
            return self._fail(commitment, f"it is {machine.state.label} again")
        match move := MOVES[_goal(commitment)][machine.state]:
            case Move.CREATE:
                return self.call(commitment, Call.CREATE, now)
            case Move.DELETE:
                return self.call(commitment, Call.DELETE, now)
            case Move.REQUEST_BLOB:
                return self._request_blob(commitment, now)
            case Move.CHECK_BINDING if self._lookups.holds(commitment, machine):
                if machine.state is _S.CONFIGURED:
                    return self._succeed(commitment)
                return self._await(commitment, Step.CONFIGURING, now)
            case Move.CHECK_BINDING | Move.EMPTY_NODE:
                return self._empty_node(commitment, machine, now)
            case Move.AWAIT_CREATE | Move.AWAIT_DELETE:
                return self._await(commitment, LEADS_TO[move][0], now)
            case Move.AWAIT_DRAIN if commitment.leaves:
                return self._await_drain(commitment, now)
            case Move.SUCCEED:
                return self._succeed(commitment)
            case Move.FAIL:
                return self._fail(commitment, machine.last_error)
        return self.end(commitment, Outcome.DROPPED, f"the machine is {machine.state.label}")

    def call(
        self,
        commitment: Commitment,
        call: Call,
        now: float,
        blob: bytes = b"",
        grace: int = 0,
        until: float = math.inf,
    ) -> list[Effect]:
        """Make a call to the provider. The time that the call may take begins now.

        A Get comes first where the call is not legal as the machine was last seen, or where no Get has answered in this
        life of the shard.
        """
        calling = msgspec.structs.replace(commitment, step=STEP_OF[call], began=now, request_id="")
        made = ProviderCall(calling.machine, calling.provider, call)
        if call is Call.CONFIGURE:
            made = msgspec.structs.replace(made, cluster=calling.cluster, stamp=calling.stamp, blob=blob, until=until)
        if call is Call.DRAIN:
            calling = msgspec.structs.replace(calling, grace_seconds=grace, deadline=now + grace)
            made = msgspec.structs.replace(made, grace_seconds=grace)
        machine = self._lookups.machine(commitment.machine)
        if commitment.unsettled or machine is None or not can(call, machine.state, machine.host is not None):
            return self.doubt(calling)
        if commitment.doubted is not None and now - commitment.doubted >= CALL_SECONDS:
            return self.time_out(calling, f"no answer to its calls for {now - commitment.doubted:.0f} s")
        return [self.keep(calling), made]

    def doubt(self, commitment: Commitment) -> list[Effect]:
        """Have a Get tell how the machine stands before anything else is done."""
        doubtful = msgspec.structs.replace(commitment, step=Step.DOUBT)
        return [self.keep(doubtful), Settle(doubtful.machine, doubtful.provider)]

    def keep(self, commitment: Commitment) -> Keep:
        """Have the commitment like this from now on."""
        self._commitments.put(commitment)
        return Keep(commitment)

    def end(self, commitment: Commitment, outcome: Outcome, detail: str = "") -> list[Effect]:
        """End the commitment, and withdraw what operators were asked for it."""
        self._commitments.take(commitment.machine)
        effects: list[Effect] = []
        if commitment.request_id:
            effects.append(WithdrawBlob(commitment.cluster, commitment.request_id))
        if commitment.instruction_id:
            effects.append(_withdrawal(commitment, detail or outcome.value))
        return [*effects, Ended(commitment, outcome, detail)]

    def give_up(self, commitment: Commitment, text: str) -> list[Effect]:
        """End the drain of a machine that would not empty. It is no candidate for a while (protocol rule 14)."""
        return [HoldOut(Held.RECLAIM, commitment, text), *self.end(commitment, Outcome.GIVEN_UP, text)]

    def time_out(self, commitment: Commitment, text: str) -> list[Effect]:
        """End a commitment that has taken too long. The machine's state is not touched (protocol rule 6)."""
        return [HoldOut(Held.MACHINE, commitment, text), *self.end(commitment, Outcome.TIMEOUT, text)]

    def _take_back(self, commitment: Commitment, machine: Machine) -> tuple[Commitment, list[Effect]]:
        """Withdraw what operators were asked that the machine's present state has overtaken (protocol rules 14, 15)."""
        effects: list[Effect] = []
        kept = commitment
        if commitment.request_id and machine.state is not _S.IDLE:
            effects.append(WithdrawBlob(commitment.cluster, commitment.request_id))
            kept = msgspec.structs.replace(kept, step=Step.WAITING, request_id="")
        if commitment.leaves and machine.cluster != commitment.leaves and machine.state is not _S.FAILED:
            if commitment.instruction_id:
                effects.append(_withdrawal(commitment, "the machine has left the cluster"))
            kept = msgspec.structs.replace(kept, instruction_id="", leaves="")
        return kept, effects if kept is commitment else [self.keep(kept), *effects]

    def _request_blob(self, commitment: Commitment, now: float) -> list[Effect]:
        if commitment.step is Step.BLOB:
            return []
        if commitment.stamp is None or not self._lookups.has_session(commitment.cluster):
            return self._await(commitment, Step.WAITING, now)
        asked = msgspec.structs.replace(commitment, step=Step.BLOB, began=now, request_id=self._lookups.new_id())
        return [self.keep(asked), RequestBlob(asked.cluster, asked.request_id, asked.machine, commitment.stamp)]

    def _empty_node(self, commitment: Commitment, machine: Machine, now: float) -> list[Effect]:
        if not _is_running(machine, commitment.leaves):
            text = f"the machine is {machine.state.label} for {machine.cluster}"
            return self.end(commitment, Outcome.DROPPED, text)
        if commitment.step is Step.INSTRUCTED:
            return []
        if commitment.instruction_id:
            # The drain's call was doubtful and did not begin. The operator was told, and its grace has run since then.
            return self.call(commitment, Call.DRAIN, now, grace=remaining(commitment, now))
        if self._lookups.has_session(commitment.leaves):
            told = msgspec.structs.replace(
                commitment,
                step=Step.INSTRUCTED,
                began=now,
                deadline=now + commitment.grace_seconds,
                instruction_id=self._lookups.new_id(),
            )
            return [self.keep(told), instruction(told, now)]
        if self._lookups.may_bypass(commitment.leaves, now):
            return self.call(commitment, Call.DRAIN, now, grace=commitment.grace_seconds)
        return self._await(commitment, Step.WAITING, now)

    def _await_drain(self, commitment: Commitment, now: float) -> list[Effect]:
        asked = commitment.step not in UNSENT
        if commitment.step is Step.DECIDED:
            # An action for a machine that drains already is no drain of its own.
            asked = commitment.kind not in (Kind.RECLAIM, Kind.PREEMPT)
        if asked:
            return self._await(commitment, Step.DRAINING, now)
        # No drain was asked for, so the provider takes the machine back. Its operator hears of it in its session.
        told = msgspec.structs.replace(
            commitment,
            step=Step.DRAINING,
            began=now,
            grace_seconds=TAKEN_BACK_GRACE_SECONDS,
            deadline=now + TAKEN_BACK_GRACE_SECONDS,
            instruction_id=self._lookups.new_id(),
        )
        return [self.keep(told), instruction(told, now)]

    def _await(self, commitment: Commitment, step: Step, now: float) -> list[Effect]:
        if commitment.step is step:
            return []
        if commitment.step is Step.DOUBT and step is not Step.WAITING:
            # The call took effect. Its time began with the call, in whichever life of the shard that was.
            return [self.keep(msgspec.structs.replace(commitment, step=step, doubted=None))]
        return [self.keep(msgspec.structs.replace(commitment, step=step, began=now))]

    def _succeed(self, commitment: Commitment) -> list[Effect]:
        return self.end(commitment, Outcome.SUCCESS)

    def _fail(self, commitment: Commitment, text: str) -> list[Effect]:
        held = [HoldOut(Held.MACHINE, commitment, text)]
        if commitment.step is Step.CREATING:
            held.append(HoldOut(Held.CREATE, commitment, text))
        return [*held, *self.end(commitment, Outcome.FAILED, text)]


def instruction(commitment: Commitment, now: float) -> Instruct:
    """What the operator of the cluster that the machine leaves is told, with what is left of the grace."""
    preempts = commitment.stamp if commitment.kind is Kind.PREEMPT else None
    remains = remaining(commitment, now)
    return Instruct(commitment.leaves, commitment.instruction_id, commitment.machine, remains, preempts)


def remaining(commitment: Commitment, now: float) -> int:
    """What is left of the commitment's grace, in whole seconds."""
    return max(0, round(commitment.deadline - now))


def _goal(commitment: Commitment) -> Goal:
    if commitment.cluster:
        return Goal.SERVE
    return Goal.GONE if commitment.kind is Kind.DELETE else Goal.IDLE


def _is_running(machine: Machine, cluster_id: str) -> bool:
    return machine.state is _S.CONFIGURED and machine.cluster == cluster_id


def _withdrawal(commitment: Commitment, reason: str) -> WithdrawInstruction:
    return WithdrawInstruction(commitment.leaves, commitment.instruction_id, commitment.machine, reason)
