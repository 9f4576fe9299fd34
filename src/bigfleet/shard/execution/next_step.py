"""The course of a commitment: what to do next, from its goal and the machine's present state alone.

The goal is Configured for a cluster under its stamp, Idle, or Speculative. So a restart, a lost answer or a change that
nobody asked for lead back on the way without a case of their own.
"""

import math
from typing import Protocol

import msgspec

from bigfleet.engine.records import Kind
from bigfleet.model.machine import Call, Machine, MachineState, can
from bigfleet.shard.execution.commitment import CALLING, Commitment, Commitments, Step
from bigfleet.shard.execution.effects import (
    Ask,
    Effect,
    Ended,
    Held,
    HoldOut,
    Instruct,
    Keep,
    Outcome,
    RequestBlob,
    Settle,
    WithdrawBlob,
    WithdrawInstruction,
)

CALL_SECONDS = 30 * 60.0
"""What a Create, Configure or Delete may take, from the call to its end (protocol.md 6)."""

TAKEN_BACK_GRACE_SECONDS = 120
"""What pods get when the provider takes a machine back unasked (protocol.md 2)."""

PAUSED = "actuation is paused"

_S = MachineState

# A machine that is back where its call found it, after the call was acknowledged, did not get there.
_FELL_BACK = {
    Step.CREATING: _S.SPECULATIVE,
    Step.CONFIGURING: _S.IDLE,
    Step.DRAINING: _S.CONFIGURED,
    Step.DELETING: _S.IDLE,
}


class Surroundings(Protocol):
    """What must be known of the rest of the shard at the moment it acts."""

    def machine(self, machine_id: str) -> Machine | None:
        """The machine as last seen."""

    def provider(self, machine_id: str) -> str:
        """Whose it is."""

    def holds(self, commitment: Commitment, machine: Machine) -> bool:
        """Whether the machine is bound as the commitment wants it: to its cluster, by this shard, under its stamp."""

    def has_session(self, cluster_id: str) -> bool:
        """Whether the cluster's operator is connected."""

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        """Whether the operator has been away so long that its machines are drained without it (protocol.md 12)."""

    def reports_drained(self, cluster_id: str) -> bool:
        """Whether that operator says when a node is empty."""

    def new_id(self) -> str:
        """A fresh id for a request or an instruction."""


class Course:
    """Moves commitments on. While `paused`, it sends nothing and they stay where they are."""

    def __init__(self, table: Commitments, surroundings: Surroundings) -> None:
        self._table, self._around = table, surroundings
        self.paused = False

    def advance(self, commitment: Commitment, now: float) -> list[Effect]:
        """Do what the goal asks for in the machine's present state."""
        machine = self._around.machine(commitment.machine)
        if machine is None:
            return self.end(commitment, Outcome.DROPPED, "the machine is gone")
        if self.paused:
            # A Get may show that a drain never reached the provider: such a one is cancelled (protocol.md 18).
            undone = commitment.step is Step.DOUBT and _is_running(machine, commitment.leaves)
            return self.end(commitment, Outcome.DROPPED, PAUSED) if undone else []
        commitment, effects = self._take_back(commitment, machine)
        return [*effects, *self._onwards(commitment, machine, now)]

    def _onwards(self, commitment: Commitment, machine: Machine, now: float) -> list[Effect]:
        if machine.state is _FELL_BACK.get(commitment.step):
            return self._fail(commitment, f"it is {machine.state.label} again")
        match machine.state:
            case _S.FAILED:
                return self._fail(commitment, machine.last_error)
            case _S.SPECULATIVE:
                return self.call(commitment, Call.CREATE, now) if commitment.cluster else self._succeed(commitment)
            case _S.IDLE:
                return self._at_idle(commitment, now)
            case _S.CONFIGURING | _S.CONFIGURED:
                return self._at_bound(commitment, machine, now)
            case _S.CREATING if commitment.cluster:
                return self._await(commitment, Step.CREATING, now)
            case _S.DELETING:
                return self._await(commitment, Step.DELETING, now)
            case _S.DRAINING if commitment.leaves:
                return self._at_draining(commitment, now)
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
        """Make a call to the provider; from here on its time runs. Where it is not legal as the machine was last seen,
        or no Get has answered in this life, settle that first.
        """
        step = next(step for step, made in CALLING.items() if made is call)
        calling = msgspec.structs.replace(commitment, step=step, began=now, request_id="")
        ask = Ask(calling.machine, calling.provider, call)
        if call is Call.CONFIGURE:
            ask = msgspec.structs.replace(ask, cluster=calling.cluster, stamp=calling.stamp, blob=blob, until=until)
        if call is Call.DRAIN:
            calling = msgspec.structs.replace(calling, grace_seconds=grace, deadline=now + grace)
            ask = msgspec.structs.replace(ask, grace_seconds=grace)
        machine = self._around.machine(commitment.machine)
        if commitment.unsettled or machine is None or not can(call, machine.state, machine.host is not None):
            return self.doubt(calling)
        if commitment.doubted is not None and now - commitment.doubted >= CALL_SECONDS:
            return self.time_out(calling, f"no answer to its calls for {now - commitment.doubted:.0f} s")
        return [self.keep(calling), ask]

    def doubt(self, commitment: Commitment) -> list[Effect]:
        """Have a Get tell how the machine stands before anything else is done."""
        doubtful = msgspec.structs.replace(commitment, step=Step.DOUBT)
        return [self.keep(doubtful), Settle(doubtful.machine, doubtful.provider)]

    def keep(self, commitment: Commitment) -> Keep:
        """Have the commitment as it is now."""
        self._table.put(commitment)
        return Keep(commitment)

    def end(self, commitment: Commitment, outcome: Outcome, detail: str = "") -> list[Effect]:
        """Be done with it, and take back what its operators were asked."""
        self._table.take(commitment.machine)
        effects: list[Effect] = []
        if commitment.request_id:
            effects.append(WithdrawBlob(commitment.cluster, commitment.request_id))
        if commitment.instruction_id:
            effects.append(_withdrawal(commitment, detail or outcome.value))
        return [*effects, Ended(commitment, outcome, detail)]

    def give_up(self, commitment: Commitment, text: str) -> list[Effect]:
        """Leave a machine that would not empty where it is, for a while (protocol.md 14)."""
        return [HoldOut(Held.RECLAIM, commitment), *self.end(commitment, Outcome.GIVEN_UP, text)]

    def time_out(self, commitment: Commitment, text: str) -> list[Effect]:
        """End what has taken too long; how the machine stands is its provider's word alone (protocol.md 6)."""
        return [HoldOut(Held.MACHINE, commitment), *self.end(commitment, Outcome.TIMEOUT, text)]

    def _take_back(self, commitment: Commitment, machine: Machine) -> tuple[Commitment, list[Effect]]:
        """Withdraw what operators were asked that the machine's present state has overtaken (protocol.md 14, 15)."""
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

    def _at_idle(self, commitment: Commitment, now: float) -> list[Effect]:
        if not commitment.cluster:
            if commitment.kind is Kind.DELETE:
                return self.call(commitment, Call.DELETE, now)
            return self._succeed(commitment)
        if commitment.step is Step.BLOB:
            return []
        if commitment.stamp is None or not self._around.has_session(commitment.cluster):
            return self._await(commitment, Step.WAITING, now)
        asked = msgspec.structs.replace(commitment, step=Step.BLOB, began=now, request_id=self._around.new_id())
        return [self.keep(asked), RequestBlob(asked.cluster, asked.request_id, asked.machine, commitment.stamp)]

    def _at_bound(self, commitment: Commitment, machine: Machine, now: float) -> list[Effect]:
        if commitment.cluster and self._around.holds(commitment, machine):
            if machine.state is _S.CONFIGURED:
                return self._succeed(commitment)
            return self._await(commitment, Step.CONFIGURING, now)
        if not _is_running(machine, commitment.leaves):
            text = f"the machine is {machine.state.label} for {machine.cluster}"
            return self.end(commitment, Outcome.DROPPED, text)
        if commitment.step is Step.INSTRUCTED:
            return []
        if commitment.instruction_id:
            # A drain whose call was doubtful did not begin; the operator has had its time, or has what remains of it.
            return self.call(commitment, Call.DRAIN, now, grace=remaining(commitment, now))
        if self._around.has_session(commitment.leaves):
            told = msgspec.structs.replace(
                commitment,
                step=Step.INSTRUCTED,
                began=now,
                deadline=now + commitment.grace_seconds,
                instruction_id=self._around.new_id(),
            )
            return [self.keep(told), instruction(told, now)]
        if self._around.may_bypass(commitment.leaves, now):
            return self.call(commitment, Call.DRAIN, now, grace=commitment.grace_seconds)
        return self._await(commitment, Step.WAITING, now)

    def _at_draining(self, commitment: Commitment, now: float) -> list[Effect]:
        ours = commitment.step is not Step.WAITING
        if commitment.step is Step.DECIDED:
            ours = commitment.kind not in (Kind.RECLAIM, Kind.PREEMPT)
        if ours:
            return self._await(commitment, Step.DRAINING, now)
        # Nothing was asked yet, so the provider takes it back, and its operator hears of it as soon as it is there.
        told = msgspec.structs.replace(
            commitment,
            step=Step.DRAINING,
            began=now,
            grace_seconds=TAKEN_BACK_GRACE_SECONDS,
            deadline=now + TAKEN_BACK_GRACE_SECONDS,
            instruction_id=self._around.new_id(),
        )
        return [self.keep(told), instruction(told, now)]

    def _await(self, commitment: Commitment, step: Step, now: float) -> list[Effect]:
        if commitment.step is step:
            return []
        if commitment.step is Step.DOUBT and step is not Step.WAITING:
            # The call took effect, and from it on its time runs, whichever life made it.
            return [self.keep(msgspec.structs.replace(commitment, step=step, doubted=None))]
        return [self.keep(msgspec.structs.replace(commitment, step=step, began=now))]

    def _succeed(self, commitment: Commitment) -> list[Effect]:
        return self.end(commitment, Outcome.SUCCESS)

    def _fail(self, commitment: Commitment, text: str) -> list[Effect]:
        held = [HoldOut(Held.MACHINE, commitment)]
        if commitment.step is Step.CREATING:
            held.append(HoldOut(Held.CREATE, commitment))
        return [*held, *self.end(commitment, Outcome.FAILED, text)]


def instruction(commitment: Commitment, now: float) -> Instruct:
    """What the operator of the cluster that the machine leaves is told, with the grace that remains."""
    preempts = commitment.stamp if commitment.kind is Kind.PREEMPT else None
    remains = remaining(commitment, now)
    return Instruct(commitment.leaves, commitment.instruction_id, commitment.machine, remains, preempts)


def remaining(commitment: Commitment, now: float) -> int:
    """What is left of its grace, in whole seconds."""
    return max(0, round(commitment.deadline - now))


def _is_running(machine: Machine, cluster_id: str) -> bool:
    return machine.state is _S.CONFIGURED and machine.cluster == cluster_id


def _withdrawal(commitment: Commitment, reason: str) -> WithdrawInstruction:
    return WithdrawInstruction(commitment.leaves, commitment.instruction_id, commitment.machine, reason)
