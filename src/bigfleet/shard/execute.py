"""The life of an action, from the decision to the machine seen where it was to go. Events in, effects out; no I/O."""

import enum
from collections.abc import Iterable, Iterator

import msgspec

from bigfleet.engine.records import Action, Kind
from bigfleet.model.machine import Call, MachineState
from bigfleet.shard.commitments import AWAITING, CALLING, REVOCABLE, Commitment, Commitments, Step
from bigfleet.shard.course import Course, Surroundings, instruction
from bigfleet.shard.effects import Effect, Held, HoldOut, Incident, Outcome, Settle

CALL_SECONDS = 30 * 60.0
"""What a Create, Configure or Delete may take, from the call to its end (protocol.md 6)."""

DRAIN_SLACK_SECONDS = 15 * 60.0
"""What a drain may take beyond its grace."""

EMPTY_GRACE_SECONDS = 30
"""The grace at the provider for a node that its operator reported empty (protocol.md 14)."""

TAKEN_BACK_GRACE_SECONDS = 120
"""What pods get when the provider takes a machine back unasked (protocol.md 2)."""


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


class Execute:
    """Every commitment of the shard, and what happens to it."""

    def __init__(self, surroundings: Surroundings, blob_seconds: float) -> None:
        self._around = surroundings
        self._blob_seconds = blob_seconds
        self._table = Commitments()
        self._course = Course(self._table, surroundings)
        self._fenced: set[str] = set()
        self._paused_at = 0.0

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
                machine=action.machine,
                provider=self._around.provider(action.machine),
                kind=action.kind,
                step=Step.WAITING,
                began=now,
                decided=now,
                cluster="" if action.kind in (Kind.RECLAIM, Kind.DELETE) else action.cluster,
                leaves=machine.cluster if action.kind in (Kind.RECLAIM, Kind.PREEMPT) else "",
                stamp=action.stamp,
                grace_seconds=action.grace_seconds,
                reason=action.reason,
            )
        elif not standing.cluster and action.kind in (Kind.BOOTSTRAP, Kind.PROVISION):
            # A machine on its way to nobody is given a goal; how far it has come stays.
            commitment = msgspec.structs.replace(
                standing, kind=action.kind, cluster=action.cluster, stamp=action.stamp, reason=action.reason
            )
        else:
            return []
        return [self._course.keep(commitment)]

    def begin(self, machine_ids: Iterable[str], now: float) -> list[Effect]:
        """These commitments are durable: start what has not been started."""
        return self._each(machine_ids, now, {Step.WAITING})

    def released(self, machine_ids: Iterable[str]) -> list[Effect]:
        """The decision wants these no more; what a provider knows of already goes on to where it can be left."""
        effects: list[Effect] = []
        for machine_id in machine_ids:
            commitment = self._table.get(machine_id)
            if commitment is not None and commitment.step in REVOCABLE:
                effects += self._course.end(commitment, Outcome.DROPPED, "no need takes it any more")
        return effects

    def not_live(self, cluster_id: str) -> list[Effect]:
        """The cluster's demand is not live: what has not reached a provider for it is dropped (protocol.md 11)."""
        return self.released([commitment.machine for commitment in self if commitment.cluster == cluster_id])

    # What happens at the provider.

    def moved(self, machine_id: str, now: float) -> list[Effect]:
        """The machine was seen in another state, or is gone. A call on its way is waited for: its ack comes later."""
        commitment = self._table.get(machine_id)
        if commitment is None or commitment.step in CALLING:
            return []
        return self._course.advance(commitment, now)

    def acknowledged(self, machine_id: str, now: float) -> list[Effect]:
        """The call on its way was taken, and its ack, which fits, is the machine as last seen."""
        commitment = self._calling(machine_id)
        if commitment is None:
            return []
        self._fenced.discard(machine_id)
        awaiting = msgspec.structs.replace(commitment, step=AWAITING[CALLING[commitment.step]])
        return [self._course.keep(awaiting), *self._course.advance(awaiting, now)]

    def call_failed(self, machine_id: str, problem: Problem, text: str) -> list[Effect]:
        """The call on its way brought no ack that fits."""
        commitment = self._calling(machine_id)
        if commitment is None:
            return []
        settle = Settle(machine_id, commitment.provider)
        if problem.value is None:
            return [self._course.keep(msgspec.structs.replace(commitment, step=Step.DOUBT)), settle]
        effects: list[Effect] = []
        if problem is Problem.FENCED:
            # Twice with fresh sequences: somebody newer goes by this shard's name (protocol.md 10).
            effects.append(Incident(machine_id, text, stop=machine_id in self._fenced))
            self._fenced.add(machine_id)
        elif problem is Problem.EXHAUSTED:
            effects.append(HoldOut(Held.SHAPE, commitment))
        elif problem is Problem.INVALID:
            effects.append(HoldOut(Held.MACHINE, commitment))
        return [*effects, *self._course.end(commitment, problem.value, text), settle]

    def settled(self, machine_id: str, now: float) -> list[Effect]:
        """A Get answered: the machine as last seen is how it stands, and what is still to do is begun anew."""
        return self._each([machine_id], now, {Step.DOUBT})

    def taken_back(self, machine_id: str, now: float) -> list[Effect]:
        """The provider drains a machine unasked: its operator hears of it at once (protocol.md 2)."""
        effects: list[Effect] = []
        standing = self._table.get(machine_id)
        if standing is not None:
            effects += self._course.end(standing, Outcome.FAILED, "the provider takes the machine back")
        machine = self._around.machine(machine_id)
        if machine is None or not machine.cluster:
            return effects
        commitment = Commitment(
            machine=machine_id,
            provider=self._around.provider(machine_id),
            kind=Kind.RECLAIM,
            step=Step.DRAINING,
            began=now,
            decided=now,
            leaves=machine.cluster,
            grace_seconds=TAKEN_BACK_GRACE_SECONDS,
            deadline=now + TAKEN_BACK_GRACE_SECONDS,
            instruction_id=self._around.new_id(),
            reason="the provider takes it back",
        )
        return [*effects, self._course.keep(commitment), instruction(commitment)]

    # What operators say.

    def session_opened(self, now: float) -> list[Effect]:
        """An operator is there: go on with what waited for one."""
        return self._each([commitment.machine for commitment in self], now, {Step.WAITING})

    def blob_answered(self, request_id: str, blob: bytes, now: float) -> list[Effect]:
        """User data arrived; the first answer counts, and it is used at once or not at all."""
        commitment = self._table.behind(request_id, Step.BLOB)
        if commitment is None:
            return []
        machine = self._around.machine(commitment.machine)
        if machine is not None and machine.state is MachineState.IDLE and not self._course.paused:
            return self._course.call(commitment, Call.CONFIGURE, now, blob)
        waiting = msgspec.structs.replace(commitment, step=Step.WAITING, request_id="")
        return [self._course.keep(waiting), *self._course.advance(waiting, now)]

    def blob_failed(self, request_id: str, text: str) -> list[Effect]:
        """The operator has no user data for this: an unmet need, not a reason to try at once again."""
        commitment = self._table.behind(request_id, Step.BLOB)
        if commitment is None:
            return []
        answered = msgspec.structs.replace(commitment, request_id="")
        return [HoldOut(Held.NEED, answered), *self._course.end(answered, Outcome.BOOTSTRAP_ERROR, text)]

    def reclaim_acked(self, instruction_id: str, now: float) -> list[Effect]:
        """The nodes are cordoned. An operator that will not say when they are empty has said all it will."""
        commitment = self._table.behind(instruction_id, Step.INSTRUCTED)
        if commitment is None or self._around.reports_drained(commitment.leaves):
            return []
        return self._course.call(commitment, Call.DRAIN, now, grace=max(0, round(commitment.deadline - now)))

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
            if commitment.step is Step.INSTRUCTED:
                effects += self._course.end(commitment, Outcome.DROPPED, "actuation is paused")
        self._course.paused, self._paused_at = True, now
        return effects

    def resume(self, now: float) -> list[Effect]:
        """Go on; the pause counts for no time-out."""
        if not self._course.paused:
            return []
        self._course.paused, slept = False, now - self._paused_at
        for commitment in self:
            began, deadline = commitment.began + slept, commitment.deadline + slept
            self._table.put(msgspec.structs.replace(commitment, began=began, deadline=deadline))
        return self._each([commitment.machine for commitment in self], now, set(Step) - set(CALLING))

    def restore(self, commitments: Iterable[Commitment]) -> list[Effect]:
        """Take up what an earlier life wrote down: each is settled by a Get before anything is done (protocol.md 9)."""
        effects: list[Effect] = []
        for commitment in commitments:
            step = Step.INSTRUCTED if commitment.step is Step.INSTRUCTED else Step.DOUBT
            self._table.put(msgspec.structs.replace(commitment, step=step, request_id=""))
            effects.append(Settle(commitment.machine, commitment.provider))
        return effects

    def _ticked(self, commitment: Commitment, now: float) -> list[Effect]:
        taken, course = now - commitment.began, self._course
        match commitment.step:
            case Step.WAITING:
                return course.advance(commitment, now)
            case Step.BLOB:
                if taken < self._blob_seconds:
                    return []
                late = course.end(commitment, Outcome.BOOTSTRAP_ERROR, "the operator did not answer in time")
                return [HoldOut(Held.NEED, commitment), *late]
            case Step.INSTRUCTED:
                if now < commitment.deadline:
                    return []
                if commitment.kind is Kind.PREEMPT:
                    return course.call(commitment, Call.DRAIN, now)
                return course.give_up(commitment, "pods were left when the grace was over")
        if taken >= _limit(commitment):
            text = f"{commitment.step.value} took {taken:.0f} s"
            return [HoldOut(Held.MACHINE, commitment), *course.end(commitment, Outcome.TIMEOUT, text)]
        return [Settle(commitment.machine, commitment.provider)] if commitment.step is Step.DOUBT else []

    def _calling(self, machine_id: str) -> Commitment | None:
        commitment = self._table.get(machine_id)
        return commitment if commitment is not None and commitment.step in CALLING else None

    def _each(self, machine_ids: Iterable[str], now: float, steps: set[Step]) -> list[Effect]:
        effects: list[Effect] = []
        for machine_id in machine_ids:
            commitment = self._table.get(machine_id)
            if commitment is not None and commitment.step in steps:
                effects += self._course.advance(commitment, now)
        return effects


def _limit(commitment: Commitment) -> float:
    if commitment.step in (Step.DRAIN, Step.DRAINING):
        return commitment.grace_seconds + DRAIN_SLACK_SECONDS
    return CALL_SECONDS
