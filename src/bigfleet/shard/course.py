"""The course of a commitment: what to do next, from its goal and the machine's present state alone.

The goal is Configured for a cluster under its stamp, Idle, or Speculative. So a restart, a lost answer or a change that
nobody asked for lead back on the way without a case of their own.
"""

from typing import Protocol

import msgspec

from bigfleet.engine.records import Kind
from bigfleet.model.machine import Call, Machine, MachineState
from bigfleet.shard.commitments import AWAITING, CALLING, Commitment, Commitments, Step
from bigfleet.shard.effects import (
    Ask,
    Effect,
    Ended,
    Held,
    HoldOut,
    Instruct,
    Keep,
    Outcome,
    RequestBlob,
    WithdrawBlob,
    WithdrawInstruction,
)

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
            return []
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
                return self._await(commitment, Step.DRAINING, now)
        return self.end(commitment, Outcome.DROPPED, f"the machine is {machine.state.label}")

    def call(self, commitment: Commitment, call: Call, now: float, blob: bytes = b"", grace: int = 0) -> list[Effect]:
        """Make a call to the provider; from here on its time runs."""
        step = next(step for step, made in CALLING.items() if made is call)
        calling = msgspec.structs.replace(commitment, step=step, began=now, request_id="")
        ask = Ask(calling.machine, calling.provider, call)
        if call is Call.CONFIGURE:
            ask = msgspec.structs.replace(ask, cluster=calling.cluster, stamp=calling.stamp, blob=blob)
        if call is Call.DRAIN:
            calling = msgspec.structs.replace(calling, grace_seconds=grace)
            ask = msgspec.structs.replace(ask, grace_seconds=grace)
        return [self.keep(calling), ask]

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

    def _at_idle(self, commitment: Commitment, now: float) -> list[Effect]:
        if not commitment.cluster:
            if commitment.kind is Kind.DELETE:
                return self.call(commitment, Call.DELETE, now)
            return self._succeed(commitment)
        if commitment.step is Step.BLOB:
            return []
        effects: list[Effect] = []
        if commitment.instruction_id:
            effects.append(_withdrawal(commitment, "the machine has left the cluster"))
        commitment = msgspec.structs.replace(commitment, instruction_id="", leaves="")
        if commitment.stamp is None or not self._around.has_session(commitment.cluster):
            return [*effects, *self._await(commitment, Step.WAITING, now)]
        asked = msgspec.structs.replace(commitment, step=Step.BLOB, began=now, request_id=self._around.new_id())
        request = RequestBlob(asked.cluster, asked.request_id, asked.machine, commitment.stamp)
        return [*effects, self.keep(asked), request]

    def _at_bound(self, commitment: Commitment, machine: Machine, now: float) -> list[Effect]:
        if commitment.cluster and self._around.holds(commitment, machine):
            if machine.state is _S.CONFIGURED:
                return self._succeed(commitment)
            return self._await(commitment, Step.CONFIGURING, now)
        if not commitment.leaves or machine.cluster != commitment.leaves:
            return self.end(commitment, Outcome.DROPPED, f"the machine is bound to {machine.cluster}")
        if commitment.step is Step.INSTRUCTED:
            return []
        if commitment.instruction_id:
            # A drain whose call was doubtful did not begin; the operator has had its time, or has what remains of it.
            return self.call(commitment, Call.DRAIN, now, grace=max(0, round(commitment.deadline - now)))
        if self._around.has_session(commitment.leaves):
            told = msgspec.structs.replace(
                commitment,
                step=Step.INSTRUCTED,
                began=now,
                deadline=now + commitment.grace_seconds,
                instruction_id=self._around.new_id(),
            )
            return [self.keep(told), instruction(told)]
        if self._around.may_bypass(commitment.leaves, now):
            return self.call(commitment, Call.DRAIN, now, grace=commitment.grace_seconds)
        return self._await(commitment, Step.WAITING, now)

    def _await(self, commitment: Commitment, step: Step, now: float) -> list[Effect]:
        if commitment.step is step:
            return []
        # From its call on its time runs; where another life made the call, from now.
        made = commitment.step in CALLING or commitment.step in AWAITING.values()
        began = commitment.began if made and step is not Step.WAITING else now
        return [self.keep(msgspec.structs.replace(commitment, step=step, began=began))]

    def _succeed(self, commitment: Commitment) -> list[Effect]:
        return self.end(commitment, Outcome.SUCCESS)

    def _fail(self, commitment: Commitment, text: str) -> list[Effect]:
        held = [HoldOut(Held.MACHINE, commitment)]
        if commitment.step is Step.CREATING:
            held.append(HoldOut(Held.SHAPE, commitment))
        return [*held, *self.end(commitment, Outcome.FAILED, text)]


def instruction(commitment: Commitment) -> Instruct:
    """What the operator of the cluster that the machine leaves is told."""
    preempts = commitment.stamp if commitment.kind is Kind.PREEMPT else None
    return Instruct(
        commitment.leaves, commitment.instruction_id, commitment.machine, commitment.grace_seconds, preempts
    )


def _withdrawal(commitment: Commitment, reason: str) -> WithdrawInstruction:
    return WithdrawInstruction(commitment.leaves, commitment.instruction_id, commitment.machine, reason)
