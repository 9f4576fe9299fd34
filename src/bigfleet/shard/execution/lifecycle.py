"""The life of a commitment, from the decision to the machine seen where it was to go. Events in, effects out; no I/O.

What each step awaits, and what it leads to, stands in `steps`. What a commitment does next is in `next_step`.
"""

import math
from collections.abc import Iterable

import msgspec

from bigfleet.engine.records import Action, Kind
from bigfleet.model.machine import Call, Machine, MachineState
from bigfleet.shard.execution.actuation import Actuation
from bigfleet.shard.execution.commitment import Commitment, Commitments
from bigfleet.shard.execution.effects import (
    Effect,
    Fenced,
    Held,
    HoldOut,
    Instruct,
    Keep,
    Outcome,
    Problem,
    RequestBlob,
    Settle,
    WithdrawBlob,
)
from bigfleet.shard.execution.next_step import PAUSED, ExecutionLookups, NextStep, instruction, remaining
from bigfleet.shard.execution.steps import (
    CALL_SECONDS,
    CALLING,
    DEAF,
    DRAIN_SLACK_SECONDS,
    EMPTY_GRACE_SECONDS,
    REVOCABLE,
    RULES,
    Awaited,
    Step,
)

TAKEN_BACK = "the provider takes it back"
"""The reason of a commitment to a drain that nobody asked for."""


class Lifecycle:
    """What happens to commitments. The table of them is `Commitments`."""

    def __init__(
        self,
        lookups: ExecutionLookups,
        commitments: Commitments,
        actuation: Actuation,
        fenced: set[str],
        blob_seconds: float,
    ) -> None:
        """`fenced` are the machines whose last call was fenced, whoever made the call (protocol rule 10)."""
        self._lookups, self._commitments, self._actuation = lookups, commitments, actuation
        self._fenced = fenced
        self._blob_seconds = blob_seconds
        self._next_step = NextStep(commitments, lookups, actuation)
        # Goals of commitments that had none: each takes effect once it is durable.
        self._goals: dict[str, Action] = {}

    # Decisions.

    def decided(self, action: Action, now: float) -> list[Effect]:
        """Commit to an action. Returns nothing where the machine's present commitment or a pause forbids it.

        Nothing is sent before `begin`: the caller makes the commitment durable in between.
        """
        machine = self._lookups.machine(action.machine)
        if machine is None or self._actuation.held:
            return []
        standing = self._commitments.get(action.machine)
        if standing is None:
            # A goal that was never written went with the commitment that it was for.
            self._goals.pop(action.machine, None)
            commitment = Commitment(
                id=f"{action.machine}@{now:.3f}",
                machine=action.machine,
                provider=self._lookups.provider(action.machine),
                kind=action.kind,
                step=Step.DECIDED,
                began=now,
                decided=now,
                cluster="" if action.kind in (Kind.RECLAIM, Kind.DELETE) else action.cluster,
                leaves=_leaves(action, machine),
                stamp=action.stamp,
                grace_seconds=action.grace_seconds,
                reason=action.reason,
            )
        elif not standing.cluster and action.kind in (Kind.BOOTSTRAP, Kind.PROVISION):
            # The commitment goes on without the goal until the goal is durable.
            self._goals[action.machine] = action
            return [Keep(_aimed(standing, action))]
        else:
            return []
        return [self._next_step.keep(commitment)]

    def begin(self, machine_ids: Iterable[str], now: float) -> list[Effect]:
        """The commitments of these machines are durable: begin them, or have them wait for the end of a pause."""
        effects: list[Effect] = []
        for machine_id in machine_ids:
            commitment, goal = self._commitments.get(machine_id), self._goals.pop(machine_id, None)
            if commitment is None:
                continue
            if goal is not None and not commitment.cluster:
                effects += [self._next_step.keep(_aimed(commitment, goal)), *self.moved(machine_id, now)]
            elif commitment.step is Step.DECIDED and self._actuation.held:
                effects.append(self._next_step.keep(msgspec.structs.replace(commitment, step=Step.WAITING)))
            elif commitment.step is Step.DECIDED:
                effects += self._next_step.advance(commitment, now)
        return effects

    def released(self, machine_ids: Iterable[str]) -> list[Effect]:
        """No need takes these machines any more. A commitment that a provider knows of goes on all the same."""
        effects: list[Effect] = []
        for machine_id in machine_ids:
            commitment, goal = self._commitments.get(machine_id), self._goals.pop(machine_id, None)
            if commitment is not None and goal is not None:
                effects.append(Keep(commitment))
            elif commitment is not None and commitment.step in REVOCABLE:
                effects += self._next_step.end(commitment, Outcome.DROPPED, "no need takes it any more")
        return effects

    def not_live(self, cluster_id: str) -> list[Effect]:
        """The cluster's demand is not live, so commitments for it are dropped that no provider knows of; drains out of
        it are dropped that no operator knows of either (protocol rule 11).
        """
        dropped = [c.machine for c in self._commitments if c.cluster == cluster_id]
        dropped += [
            c.machine for c in self._commitments if c.leaves == cluster_id and not c.cluster and _waits_to_drain(c)
        ]
        return self.released(dropped)

    # What happens at the provider.

    def moved(self, machine_id: str, now: float) -> list[Effect]:
        """The machine was seen in another state, or is gone. A step that awaits the file, an ack or a Get is not left
        for that.
        """
        commitment = self._commitments.get(machine_id)
        if commitment is None or commitment.unsettled or commitment.step in DEAF:
            return []
        return self._next_step.advance(commitment, now)

    def acknowledged(self, machine_id: str, now: float) -> list[Effect]:
        """The call was acknowledged. Supply has taken the ack, so the machine is as the ack shows it."""
        commitment = self._calling(machine_id)
        if commitment is None:
            return []
        self._fenced.discard(machine_id)
        awaiting = msgspec.structs.replace(commitment, step=RULES[commitment.step].acknowledged, doubted=None)
        return [self._next_step.keep(awaiting), *self._next_step.advance(awaiting, now)]

    def call_failed(self, machine_id: str, problem: Problem, text: str) -> list[Effect]:
        """The call brought no ack that fits."""
        commitment = self._calling(machine_id)
        if commitment is None:
            return []
        if problem.value is None:
            since = commitment.began if commitment.doubted is None else commitment.doubted
            return self._next_step.doubt(msgspec.structs.replace(commitment, doubted=since))
        effects: list[Effect] = []
        if problem is Problem.FENCED:
            # Twice with fresh sequences: somebody newer goes by this shard's name (protocol rule 10).
            effects.append(Fenced(machine_id, text, stop=machine_id in self._fenced))
            self._fenced.add(machine_id)
        elif problem is Problem.EXHAUSTED and commitment.step is Step.CREATE:
            effects.append(HoldOut(Held.SHAPE, commitment, text))
        elif problem in (Problem.EXHAUSTED, Problem.INVALID) and commitment.step is Step.CONFIGURE:
            # The need decides what a Configure carries: another machine would be refused with it too.
            effects.append(HoldOut(Held.NEED, commitment, text))
        elif problem is Problem.INVALID:
            effects.append(HoldOut(Held.MACHINE, commitment, text))
        return [
            *effects,
            *self._next_step.end(commitment, problem.value, text),
            Settle(machine_id, commitment.provider),
        ]

    def settled(self, machine_id: str, now: float) -> list[Effect]:
        """A Get answered. Supply has taken the answer, and the commitment goes on from there."""
        commitment = self._commitments.get(machine_id)
        if commitment is None or not (commitment.unsettled or commitment.step is Step.DOUBT):
            return []
        effects: list[Effect] = []
        if commitment.unsettled:
            commitment = msgspec.structs.replace(commitment, unsettled=False)
            effects.append(self._next_step.keep(commitment))
        return [*effects, *self._next_step.advance(commitment, now)]

    def taken_back(self, machine_id: str, now: float) -> list[Effect]:
        """The provider drains a machine unasked: the operator is told at once, or after a pause (protocol rule 2).

        A commitment to drain the same machine goes on with the provider's drain. A call on its way is waited for.
        """
        standing, machine = self._commitments.get(machine_id), self._lookups.machine(machine_id)
        if machine is None or machine.state is not MachineState.DRAINING:
            return []
        effects: list[Effect] = []
        if standing is not None:
            if standing.step in CALLING or standing.leaves == machine.cluster:
                return self.moved(machine_id, now)
            effects = self._next_step.end(standing, Outcome.FAILED, "the provider takes the machine back")
        commitment = Commitment(
            id=f"{machine_id}@{now:.3f}",
            machine=machine_id,
            provider=self._lookups.provider(machine_id),
            kind=Kind.RECLAIM,
            step=Step.WAITING,
            began=now,
            decided=now,
            leaves=machine.cluster,
            reason=TAKEN_BACK,
        )
        return [*effects, self._next_step.keep(commitment), *self._next_step.advance(commitment, now)]

    # What operators say.

    def session_opened(self, now: float) -> list[Effect]:
        """An operator has connected: commitments that waited for a session go on."""
        waiting = [each for each in self._commitments if each.step is Step.WAITING and not each.unsettled]
        return [effect for each in waiting for effect in self._next_step.advance(each, now)]

    def unanswered(self, cluster_id: str, now: float) -> list[RequestBlob | Instruct]:
        """What the cluster's operator hears again when it connects, with the grace that remains (protocol rule 14)."""
        replayed: list[RequestBlob | Instruct] = []
        for each in self._commitments:
            if each.instruction_id and each.leaves == cluster_id:
                replayed.append(instruction(each, now))
            if each.request_id and each.cluster == cluster_id and each.stamp is not None:
                replayed.append(RequestBlob(cluster_id, each.request_id, each.machine, each.stamp))
        return replayed

    def blob_answered(self, request_id: str, blob: bytes, ttl_seconds: int, now: float) -> list[Effect]:
        """User data arrived. It is used at once or not at all; only the first answer to a request counts.

        User data that would expire while Configure may still run is asked for anew, once (protocol rule 15). A time to
        live of 0 seconds says nothing.
        """
        commitment = self._commitments.behind_request(request_id)
        if commitment is None:
            return []
        short = 0 < ttl_seconds < CALL_SECONDS
        if short and commitment.renewed:
            return self.blob_failed(request_id, f"user data expires in {ttl_seconds} s, within a Configure's time-out")
        machine = self._lookups.machine(commitment.machine)
        idle = machine is not None and machine.state is MachineState.IDLE
        if idle and not short and not self._actuation.held:
            until = now + ttl_seconds - CALL_SECONDS if ttl_seconds else math.inf
            return self._next_step.call(commitment, Call.CONFIGURE, now, blob, until=until)
        waiting = msgspec.structs.replace(commitment, step=Step.WAITING, request_id="", renewed=short)
        return [self._next_step.keep(waiting), *self._next_step.advance(waiting, now)]

    def blob_failed(self, request_id: str, text: str, held: Held = Held.NEED) -> list[Effect]:
        """The operator has no user data: the need, or the machine, is not tried again at once."""
        commitment = self._commitments.behind_request(request_id)
        if commitment is None:
            return []
        answered = msgspec.structs.replace(commitment, request_id="")
        return [HoldOut(held, answered, text), *self._next_step.end(answered, Outcome.BOOTSTRAP_ERROR, text)]

    def reclaim_acked(self, instruction_id: str, now: float) -> list[Effect]:
        """The node is cordoned. From an operator that does not report empty nodes, no more is to be heard."""
        commitment = self._commitments.behind_instruction(instruction_id)
        if commitment is None or self._lookups.reports_drained(commitment.leaves):
            return []
        return self._next_step.call(commitment, Call.DRAIN, now, grace=remaining(commitment, now))

    def node_drained(self, instruction_id: str, now: float) -> list[Effect]:
        """Nothing but daemons is left on the node."""
        commitment = self._commitments.behind_instruction(instruction_id)
        if commitment is None:
            return []
        return self._next_step.call(commitment, Call.DRAIN, now, grace=EMPTY_GRACE_SECONDS)

    def node_not_drained(self, instruction_id: str, text: str) -> list[Effect]:
        """Pods are left and the operator has stopped. A preemption waits for the end of its grace; a reclaim ends."""
        commitment = self._commitments.behind_instruction(instruction_id)
        if commitment is None or commitment.kind is Kind.PREEMPT:
            return []
        return self._next_step.give_up(commitment, text)

    # Time.

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: end commitments that have taken too long, and go on with those that wait."""
        if self._actuation.held:
            return []
        effects: list[Effect] = []
        for commitment in self._commitments:
            effects += self._ticked(commitment, now)
        return effects

    def held(self) -> list[Effect]:
        """Actuation is held from now on: drains that no provider knows of are cancelled; every other commitment stays
        in its step (protocol rule 18).
        """
        early = [commitment for commitment in self._commitments if _is_early_drain(commitment)]
        return [effect for each in early for effect in self._next_step.end(each, Outcome.DROPPED, PAUSED)]

    def released_from_hold(self, held_since: float, now: float) -> list[Effect]:
        """Actuation goes on. The time since it was held counts for no time-out."""
        effects: list[Effect] = []
        for commitment in self._commitments:
            slept = max(0.0, now - max(held_since, commitment.began))
            later = msgspec.structs.replace(
                commitment,
                began=commitment.began + slept,
                deadline=commitment.deadline + slept,
                doubted=None if commitment.doubted is None else commitment.doubted + slept,
            )
            effects.append(self._next_step.keep(later))
            if later.step is Step.DOUBT or later.unsettled:
                effects.append(Settle(later.machine, later.provider))
            elif later.step not in DEAF:
                effects += self._next_step.advance(later, now)
        return effects

    def restore(self, commitments: Iterable[Commitment], now: float) -> list[Effect]:
        """Take up commitments of an earlier life. A Get comes before anything is done for each (protocol rule 9)."""
        effects: list[Effect] = []
        for commitment in commitments:
            if self._actuation.held and _is_early_drain(commitment):
                effects += self._next_step.end(commitment, Outcome.DROPPED, PAUSED)
                continue
            if commitment.request_id:
                effects.append(WithdrawBlob(commitment.cluster, commitment.request_id))
            # A commitment that never left the shard stays apart from a call of unknown end: if its machine drains by
            # now, the provider began that drain.
            step = RULES[commitment.step].restored_as
            # A call has been running all the while. What waited for an operator waits anew.
            began = now if commitment.step in REVOCABLE else commitment.began
            self._commitments.put(
                msgspec.structs.replace(commitment, step=step, began=began, request_id="", unsettled=True)
            )
            effects.append(Settle(commitment.machine, commitment.provider))
        return effects

    def _ticked(self, commitment: Commitment, now: float) -> list[Effect]:
        taken, next_step = now - commitment.began, self._next_step
        settle: list[Effect] = [Settle(commitment.machine, commitment.provider)]
        match RULES[commitment.step].awaits:
            case Awaited.FILE | Awaited.ACK:
                # A call always comes back. Ending its commitment before would let a second call out beside it.
                return []
            case Awaited.SESSION:
                return settle if commitment.unsettled else next_step.advance(commitment, now)
            case Awaited.USER_DATA:
                if not self._lookups.has_session(commitment.cluster):
                    # An operator that is away has not failed: its time begins anew when it is back.
                    return [next_step.keep(msgspec.structs.replace(commitment, began=now))]
                if taken < self._blob_seconds:
                    return []
                text = "the operator did not answer in time"
                late = next_step.end(commitment, Outcome.BOOTSTRAP_ERROR, text)
                return [HoldOut(Held.NEED, commitment, text), *late]
            case Awaited.EMPTY_NODE:
                if now < commitment.deadline:
                    return settle if commitment.unsettled else []
                if commitment.kind is Kind.PREEMPT:
                    return next_step.call(commitment, Call.DRAIN, now)
                if commitment.unsettled:
                    return settle
                return next_step.give_up(commitment, "pods were left when the grace was over")
            case Awaited.STATE | Awaited.GET:
                if taken >= _limit(commitment):
                    return next_step.time_out(commitment, f"{commitment.step.value} took {taken:.0f} s")
                return settle if commitment.step is Step.DOUBT else []

    def _calling(self, machine_id: str) -> Commitment | None:
        commitment = self._commitments.get(machine_id)
        return commitment if commitment is not None and commitment.step in CALLING else None


def _aimed(commitment: Commitment, goal: Action) -> Commitment:
    """The commitment with a goal that it had not; its step stays."""
    return msgspec.structs.replace(
        commitment, kind=goal.kind, cluster=goal.cluster, stamp=goal.stamp, reason=goal.reason
    )


def _leaves(action: Action, machine: Machine) -> str:
    """The cluster that the machine is to leave, or is leaving already."""
    match action.kind:
        case Kind.RECLAIM:
            return action.cluster
        case Kind.PREEMPT:
            return machine.cluster
        case Kind.BOOTSTRAP | Kind.PROVISION if machine.state is MachineState.DRAINING:
            return machine.cluster
    return ""


def _is_early_drain(commitment: Commitment) -> bool:
    """Whether the commitment is a drain of ours that no provider knows of."""
    return bool(commitment.leaves) and commitment.step in REVOCABLE and commitment.reason != TAKEN_BACK


def _waits_to_drain(commitment: Commitment) -> bool:
    """Whether the commitment is a drain of ours that neither a provider nor an operator knows of."""
    return _is_early_drain(commitment) and commitment.step is not Step.INSTRUCTED


def _limit(commitment: Commitment) -> float:
    return commitment.grace_seconds + DRAIN_SLACK_SECONDS if commitment.leaves else CALL_SECONDS
