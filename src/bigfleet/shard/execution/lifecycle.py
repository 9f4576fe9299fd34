"""The life of an action, from the decision to the machine seen where it was to go. Events in, effects out; no I/O."""

import enum
import math
from collections.abc import Iterable, Iterator

import msgspec

from bigfleet.engine.records import Action, Kind
from bigfleet.model.machine import Call, Machine, MachineState
from bigfleet.shard.execution.commitment import AWAITING, CALLING, REVOCABLE, Commitment, Commitments, Step
from bigfleet.shard.execution.effects import (
    Effect,
    Held,
    HoldOut,
    Incident,
    Instruct,
    Keep,
    Outcome,
    RequestBlob,
    Settle,
    WithdrawBlob,
)
from bigfleet.shard.execution.next_step import CALL_SECONDS, PAUSED, Course, Surroundings, instruction, remaining

DRAIN_SLACK_SECONDS = 15 * 60.0
"""What a drain may take beyond its grace."""

EMPTY_GRACE_SECONDS = 30
"""The grace at the provider for a node that its operator reported empty (protocol.md 14)."""


TAKEN_BACK = "the provider takes it back"
"""The reason of a commitment to a drain that nobody asked for."""


class Problem(enum.Enum):
    """Why a call to a provider brought no ack that fits, and what its commitment then comes to."""

    UNAVAILABLE = None
    NOT_FOUND = Outcome.DROPPED
    REFUSED = Outcome.REFUSED
    INVALID = Outcome.FAILED
    FENCED = Outcome.FENCED
    UNSUPPORTED = Outcome.UNSUPPORTED
    EXHAUSTED = Outcome.EXHAUSTED
    MISMATCH = Outcome.MISMATCH


# Where a new life takes up what an earlier one wrote; from any other step only a Get can tell.
_RESTORED = {Step.DECIDED: Step.WAITING, Step.WAITING: Step.WAITING, Step.INSTRUCTED: Step.INSTRUCTED}

# Steps in which news of the machine waits: for durability, for an answer or for a Get.
_DEAF = frozenset({Step.DECIDED, Step.DOUBT, *CALLING})


class Execute:
    """Every commitment of the shard, and what happens to it."""

    def __init__(self, surroundings: Surroundings, blob_seconds: float) -> None:
        self._around = surroundings
        self._blob_seconds = blob_seconds
        self._table = Commitments()
        self._course = Course(self._table, surroundings)
        self.fenced: set[str] = set()
        """Machines whose last call was fenced; shared with whoever else makes calls (protocol.md 10)."""
        self._paused_at = 0.0
        # Of commitments to nobody, for whom they are to be once that is durable.
        self._goals: dict[str, Action] = {}

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Commitment]:
        return iter(self._table)

    def get(self, machine_id: str) -> Commitment | None:
        """The machine's commitment, if it has one."""
        return self._table.get(machine_id)

    # Decisions.

    def decided(self, action: Action, now: float) -> list[Effect]:
        """Commit to an action; nothing, where the machine's present commitment or a pause stands in its way.

        Nothing is sent before `begin`: the caller makes the commitment durable in between.
        """
        machine = self._around.machine(action.machine)
        if machine is None or self._course.paused:
            return []
        standing = self._table.get(action.machine)
        if standing is None:
            commitment = Commitment(
                id=f"{action.machine}@{now:.3f}",
                machine=action.machine,
                provider=self._around.provider(action.machine),
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
            # It goes on as it did until its goal is durable too.
            self._goals[action.machine] = action
            return [Keep(_aimed(standing, action))]
        else:
            return []
        return [self._course.keep(commitment)]

    def begin(self, machine_ids: Iterable[str], now: float) -> list[Effect]:
        """These commitments are durable: start what has not been started, or after the pause."""
        effects: list[Effect] = []
        for machine_id in machine_ids:
            commitment, goal = self._table.get(machine_id), self._goals.pop(machine_id, None)
            if commitment is None:
                continue
            if goal is not None and not commitment.cluster:
                effects += [self._course.keep(_aimed(commitment, goal)), *self.moved(machine_id, now)]
            elif commitment.step is Step.DECIDED and self._course.paused:
                effects.append(self._course.keep(msgspec.structs.replace(commitment, step=Step.WAITING)))
            elif commitment.step is Step.DECIDED:
                effects += self._course.advance(commitment, now)
        return effects

    def released(self, machine_ids: Iterable[str]) -> list[Effect]:
        """The decision wants these no more; what a provider knows of already goes on to where it can be left."""
        effects: list[Effect] = []
        for machine_id in machine_ids:
            commitment, goal = self._table.get(machine_id), self._goals.pop(machine_id, None)
            if commitment is not None and goal is not None:
                effects.append(Keep(commitment))
            elif commitment is not None and commitment.step in REVOCABLE:
                effects += self._course.end(commitment, Outcome.DROPPED, "no need takes it any more")
        return effects

    def not_live(self, cluster_id: str) -> list[Effect]:
        """The cluster's demand is not live: what has not reached a provider for it, nor an operator where it is given
        back, is dropped (protocol.md 11).
        """
        dropped = [c.machine for c in self if c.cluster == cluster_id]
        dropped += [c.machine for c in self if c.leaves == cluster_id and not c.cluster and _waits_to_drain(c)]
        return self.released(dropped)

    # What happens at the provider.

    def moved(self, machine_id: str, now: float) -> list[Effect]:
        """The machine was seen in another state, or is gone. A call or a Get on its way is waited for first, and what
        is not known to be durable is not begun.
        """
        commitment = self._table.get(machine_id)
        if commitment is None or commitment.unsettled or commitment.step in _DEAF:
            return []
        return self._course.advance(commitment, now)

    def acknowledged(self, machine_id: str, now: float) -> list[Effect]:
        """The call on its way was taken, and its ack, which fits, is the machine as last seen."""
        commitment = self._calling(machine_id)
        if commitment is None:
            return []
        self.fenced.discard(machine_id)
        awaiting = msgspec.structs.replace(commitment, step=AWAITING[CALLING[commitment.step]], doubted=None)
        return [self._course.keep(awaiting), *self._course.advance(awaiting, now)]

    def call_failed(self, machine_id: str, problem: Problem, text: str) -> list[Effect]:
        """The call on its way brought no ack that fits."""
        commitment = self._calling(machine_id)
        if commitment is None:
            return []
        if problem.value is None:
            since = commitment.began if commitment.doubted is None else commitment.doubted
            return self._course.doubt(msgspec.structs.replace(commitment, doubted=since))
        effects: list[Effect] = []
        if problem is Problem.FENCED:
            # Twice with fresh sequences: somebody newer goes by this shard's name (protocol.md 10).
            effects.append(Incident(machine_id, text, stop=machine_id in self.fenced))
            self.fenced.add(machine_id)
        elif problem is Problem.EXHAUSTED and commitment.step is Step.CREATE:
            effects.append(HoldOut(Held.SHAPE, commitment))
        elif problem in (Problem.EXHAUSTED, Problem.INVALID) and commitment.step is Step.CONFIGURE:
            # What a Configure brings is the need's: another machine would be refused with it too.
            effects.append(HoldOut(Held.NEED, commitment))
        elif problem is Problem.INVALID:
            effects.append(HoldOut(Held.MACHINE, commitment))
        return [*effects, *self._course.end(commitment, problem.value, text), Settle(machine_id, commitment.provider)]

    def settled(self, machine_id: str, now: float) -> list[Effect]:
        """A Get answered: the machine as last seen is how it stands, and what is still to do is begun anew."""
        commitment = self._table.get(machine_id)
        if commitment is None or not (commitment.unsettled or commitment.step is Step.DOUBT):
            return []
        effects: list[Effect] = []
        if commitment.unsettled:
            commitment = msgspec.structs.replace(commitment, unsettled=False)
            effects.append(self._course.keep(commitment))
        return [*effects, *self._course.advance(commitment, now)]

    def taken_back(self, machine_id: str, now: float) -> list[Effect]:
        """The provider drains a machine unasked: its operator hears of it at once, or after a pause (protocol.md 2).

        A drain of ours that had not got so far goes on as this one; a call on its way is waited for.
        """
        standing, machine = self._table.get(machine_id), self._around.machine(machine_id)
        if machine is None or machine.state is not MachineState.DRAINING:
            return []
        effects: list[Effect] = []
        if standing is not None:
            if standing.step in CALLING or standing.leaves == machine.cluster:
                return self.moved(machine_id, now)
            effects = self._course.end(standing, Outcome.FAILED, "the provider takes the machine back")
        commitment = Commitment(
            id=f"{machine_id}@{now:.3f}",
            machine=machine_id,
            provider=self._around.provider(machine_id),
            kind=Kind.RECLAIM,
            step=Step.WAITING,
            began=now,
            decided=now,
            leaves=machine.cluster,
            reason=TAKEN_BACK,
        )
        return [*effects, self._course.keep(commitment), *self._course.advance(commitment, now)]

    # What operators say.

    def session_opened(self, now: float) -> list[Effect]:
        """An operator is there: go on with what waited for one."""
        waiting = [each for each in self if each.step is Step.WAITING and not each.unsettled]
        return [effect for each in waiting for effect in self._course.advance(each, now)]

    def unanswered(self, cluster_id: str, now: float) -> list[RequestBlob | Instruct]:
        """What the cluster's operator hears again when it connects, with the grace that remains (protocol.md 14)."""
        replayed: list[RequestBlob | Instruct] = []
        for each in self:
            if each.instruction_id and each.leaves == cluster_id:
                replayed.append(instruction(each, now))
            if each.request_id and each.cluster == cluster_id and each.stamp is not None:
                replayed.append(RequestBlob(cluster_id, each.request_id, each.machine, each.stamp))
        return replayed

    def blob_answered(self, request_id: str, blob: bytes, ttl_seconds: int, now: float) -> list[Effect]:
        """User data arrived; the first answer counts, and it is used at once or not at all.

        What would expire while Configure may still run is asked for anew, once (protocol.md 15); 0 says nothing.
        """
        commitment = self._table.behind(request_id, Step.BLOB)
        if commitment is None:
            return []
        short = 0 < ttl_seconds < CALL_SECONDS
        if short and commitment.renewed:
            return self.blob_failed(request_id, f"user data expires in {ttl_seconds} s, within a Configure's time-out")
        machine = self._around.machine(commitment.machine)
        idle = machine is not None and machine.state is MachineState.IDLE
        if idle and not short and not self._course.paused:
            until = now + ttl_seconds - CALL_SECONDS if ttl_seconds else math.inf
            return self._course.call(commitment, Call.CONFIGURE, now, blob, until=until)
        waiting = msgspec.structs.replace(commitment, step=Step.WAITING, request_id="", renewed=short)
        return [self._course.keep(waiting), *self._course.advance(waiting, now)]

    def blob_failed(self, request_id: str, text: str, held: Held = Held.NEED) -> list[Effect]:
        """The operator has no user data for this: an unmet need, or a machine, that is not tried at once again."""
        commitment = self._table.behind(request_id, Step.BLOB)
        if commitment is None:
            return []
        answered = msgspec.structs.replace(commitment, request_id="")
        return [HoldOut(held, answered), *self._course.end(answered, Outcome.BOOTSTRAP_ERROR, text)]

    def reclaim_acked(self, instruction_id: str, now: float) -> list[Effect]:
        """The nodes are cordoned. An operator that will not say when they are empty has said all it will."""
        commitment = self._table.behind(instruction_id, Step.INSTRUCTED)
        if commitment is None or self._around.reports_drained(commitment.leaves):
            return []
        return self._course.call(commitment, Call.DRAIN, now, grace=remaining(commitment, now))

    def node_drained(self, instruction_id: str, now: float) -> list[Effect]:
        """Nothing but daemons is left on the node."""
        commitment = self._table.behind(instruction_id, Step.INSTRUCTED)
        if commitment is None:
            return []
        return self._course.call(commitment, Call.DRAIN, now, grace=EMPTY_GRACE_SECONDS)

    def node_not_drained(self, instruction_id: str, text: str) -> list[Effect]:
        """Pods are left and the operator has stopped: a preemption waits its grace out, a reclaim is given up."""
        commitment = self._table.behind(instruction_id, Step.INSTRUCTED)
        if commitment is None or commitment.kind is Kind.PREEMPT:
            return []
        return self._course.give_up(commitment, text)

    # Time.

    def tick(self, now: float) -> list[Effect]:
        """End what has taken too long, and go on with what waits."""
        if self._course.paused:
            return []
        effects: list[Effect] = []
        for commitment in self:
            effects += self._ticked(commitment, now)
        return effects

    def pause(self, now: float) -> list[Effect]:
        """Send nothing more: drains not yet at a provider are cancelled, all else holds its step (protocol.md 18)."""
        if self._course.paused:
            return []
        effects: list[Effect] = []
        for commitment in self:
            if _is_early_drain(commitment):
                effects += self._course.end(commitment, Outcome.DROPPED, PAUSED)
        self._course.paused, self._paused_at = True, now
        return effects

    def resume(self, now: float) -> list[Effect]:
        """Go on; the pause counts for no time-out."""
        if not self._course.paused:
            return []
        self._course.paused = False
        effects: list[Effect] = []
        for commitment in self:
            slept = max(0.0, now - max(self._paused_at, commitment.began))
            later = msgspec.structs.replace(
                commitment,
                began=commitment.began + slept,
                deadline=commitment.deadline + slept,
                doubted=None if commitment.doubted is None else commitment.doubted + slept,
            )
            effects.append(self._course.keep(later))
            if later.step is Step.DOUBT or later.unsettled:
                effects.append(Settle(later.machine, later.provider))
            elif later.step not in _DEAF:
                effects += self._course.advance(later, now)
        return effects

    def restore(self, commitments: Iterable[Commitment], now: float) -> list[Effect]:
        """Take up what an earlier life wrote down: each is settled by a Get before anything is done (protocol.md 9)."""
        effects: list[Effect] = []
        for commitment in commitments:
            if self._course.paused and _is_early_drain(commitment):
                effects += self._course.end(commitment, Outcome.DROPPED, PAUSED)
                continue
            if commitment.request_id:
                effects.append(WithdrawBlob(commitment.cluster, commitment.request_id))
            # What never left the shard is told from a call of unknown end: a drain found now is the provider's own.
            step = _RESTORED.get(commitment.step, Step.DOUBT)
            # Only a call has been running for a while; what waited for an operator waits anew.
            began = now if commitment.step in REVOCABLE else commitment.began
            self._table.put(msgspec.structs.replace(commitment, step=step, began=began, request_id="", unsettled=True))
            effects.append(Settle(commitment.machine, commitment.provider))
        return effects

    def _ticked(self, commitment: Commitment, now: float) -> list[Effect]:
        taken, course = now - commitment.began, self._course
        settle: list[Effect] = [Settle(commitment.machine, commitment.provider)]
        match commitment.step:
            case step if step is Step.DECIDED or step in CALLING:
                # A call always comes back; to end its commitment before would let a second one out beside it.
                return []
            case Step.WAITING:
                return settle if commitment.unsettled else course.advance(commitment, now)
            case Step.BLOB:
                if not self._around.has_session(commitment.cluster):
                    # An operator that is away has not failed: its time begins anew when it is back.
                    return [course.keep(msgspec.structs.replace(commitment, began=now))]
                if taken < self._blob_seconds:
                    return []
                late = course.end(commitment, Outcome.BOOTSTRAP_ERROR, "the operator did not answer in time")
                return [HoldOut(Held.NEED, commitment), *late]
            case Step.INSTRUCTED:
                if now < commitment.deadline:
                    return settle if commitment.unsettled else []
                if commitment.kind is Kind.PREEMPT:
                    return course.call(commitment, Call.DRAIN, now)
                if commitment.unsettled:
                    return settle
                return course.give_up(commitment, "pods were left when the grace was over")
        if taken >= _limit(commitment):
            return course.time_out(commitment, f"{commitment.step.value} took {taken:.0f} s")
        return settle if commitment.step is Step.DOUBT else []

    def _calling(self, machine_id: str) -> Commitment | None:
        commitment = self._table.get(machine_id)
        return commitment if commitment is not None and commitment.step in CALLING else None


def _aimed(commitment: Commitment, goal: Action) -> Commitment:
    """A commitment to nobody with a goal; how far the machine has come stays."""
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
    """Whether it is a drain that no provider knows of."""
    return bool(commitment.leaves) and commitment.step in REVOCABLE and commitment.reason != TAKEN_BACK


def _waits_to_drain(commitment: Commitment) -> bool:
    """Whether it is a drain that nobody at all knows of."""
    return _is_early_drain(commitment) and commitment.step is not Step.INSTRUCTED


def _limit(commitment: Commitment) -> float:
    return commitment.grace_seconds + DRAIN_SLACK_SECONDS if commitment.leaves else CALL_SECONDS
