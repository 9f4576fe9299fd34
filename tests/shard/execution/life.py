"""A life of the execute part against a provider and operators that are only played, and its laws."""

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from bigfleet.engine.records import Action, Kind, Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import ASKS, UNASKED, Call, CapacityType, Host, Machine, MachineState, can, check
from bigfleet.provider.acks import SHOWN, misfit
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.execution.effects import (
    Effect,
    Ended,
    Instruct,
    Keep,
    Outcome,
    Problem,
    ProviderCall,
    RequestBlob,
    Settle,
    WithdrawBlob,
    WithdrawInstruction,
)
from bigfleet.shard.execution.steps import CALLING, Step
from tests.shard.execution.alone import LifecycleAlone

S = MachineState
BOUND = frozenset({S.CONFIGURING, S.CONFIGURED, S.DRAINING})
RUNNING = frozenset({S.CONFIGURING, S.CONFIGURED})
ENDS = {ask.via: ask.end for ask in ASKS}
# A Failed machine is recovered by somebody else.
USUAL = ENDS | {S.FAILED: S.SPECULATIVE}
CLUSTERS = ("red", "blue")
P = "sim"
T = TypeVar("T")
BLOB_SECONDS = 60.0
BYPASS_SECONDS = 300.0
MANY_ROUNDS = 60
STEPS = 150
FITTING = {
    S.SPECULATIVE: [Kind.PROVISION],
    S.CREATING: [Kind.BOOTSTRAP],
    S.IDLE: [Kind.BOOTSTRAP, Kind.DELETE],
    S.CONFIGURED: [Kind.PREEMPT, Kind.RECLAIM],
    S.DRAINING: [Kind.BOOTSTRAP],
    S.DELETING: [Kind.PROVISION],
}


def machine(name: str, state: MachineState, cluster: str = "", number: int = 0) -> Machine:
    bound = state in BOUND
    return Machine(
        id=name,
        state=state,
        instance_type="c8",
        capacity_type=CapacityType.SPOT,
        host=None if state in (S.SPECULATIVE, S.CREATING) else Host(P, name),
        cluster=cluster if bound else "",
        shard_metadata={"number": str(number)} if bound else {},
        last_error="boom" if state is S.FAILED else "",
    )


def moved_to(before: Machine, state: MachineState) -> Machine:
    return machine(before.id, state, before.cluster, int(before.shard_metadata.get("number", 0)))


@dataclass
class OnItsWay:
    """A call, and what the provider made of it; None until it has arrived there."""

    ask: ProviderCall
    sequence: int
    answer: "Machine | Problem | None" = None


class Provider:
    """The machines as they really are, and the newest call that each has seen."""

    def __init__(self, names: list[str]) -> None:
        self.machines = {name: machine(name, S.SPECULATIVE) for name in names}
        self.marks: dict[str, int] = {}

    def take(self, call: OnItsWay) -> None:
        ask = call.ask
        if call.sequence <= self.marks.get(ask.machine, 0):
            call.answer = Problem.FENCED
            return
        self.marks[ask.machine] = call.sequence
        before = self.machines.get(ask.machine)
        if before is None:
            call.answer = Problem.NOT_FOUND
        elif can(ask.call, before.state, before.host is not None):
            number = 0 if ask.stamp is None else ask.stamp.number
            via = check(ask.call, ask.machine, before.state, before.host is not None).via
            cluster = ask.cluster if ask.call is Call.CONFIGURE else before.cluster
            number = number if ask.call is Call.CONFIGURE else int(before.shard_metadata.get("number", 0))
            call.answer = self.machines[ask.machine] = machine(ask.machine, via, cluster, number)
        elif before.state in SHOWN[ask.call]:
            call.answer = before
        else:
            call.answer = Problem.REFUSED


class Life:
    """Few machines, two clusters, one execute part after another, and everything between them that can go wrong.

    What happens is written in bytes, so that a failure shrinks: one chooses the event, the others its details.
    """

    def __init__(self, story: bytes) -> None:
        self.story = iter(story)
        self.now, self.paused = 1000.0, False
        self.counter = itertools.count(1)
        self.names = [f"m-{i}" for i in range(2)]
        self.truth = Provider(self.names)
        for name in self.names:
            state = self.pick([S.SPECULATIVE, S.IDLE, S.CONFIGURED])
            self.truth.machines[name] = machine(name, state, self.pick(CLUSTERS))
        self.seen = dict(self.truth.machines)
        self.sessions, self.left_at = set(CLUSTERS), dict.fromkeys(CLUSTERS, 0.0)
        self.reporting = set(CLUSTERS)
        self.calls: dict[str, OnItsWay] = {}
        self.strays: list[OnItsWay] = []
        self.gets: set[str] = set()
        self.kept: dict[str, Commitment] = {}
        self.durable: set[str] = set()
        self.unsettled: set[str] = set()
        self.requests: dict[str, str] = {}
        self.instructions: dict[str, str] = {}
        self.ever: set[str] = set()
        self.goals: dict[str, tuple[str, Stamp]] = {}
        # Of which a goal is on its way to the file; until it is there they go on without.
        self.aimed: set[str] = set()
        self.execute = LifecycleAlone(self, BLOB_SECONDS)

    def byte(self) -> int:
        return next(self.story, 0)

    def pick(self, of: Collection[T]) -> T:
        return list(of)[self.byte() % len(of)]

    def rarely(self) -> bool:
        return self.byte() % 8 == 7

    def run(self) -> None:
        for _ in range(STEPS):
            happens = self.byte()
            if happens:
                EVENTS[happens % len(EVENTS)](self)
                self.check()

    # Surroundings

    def machine(self, machine_id: str) -> Machine | None:
        return self.seen.get(machine_id)

    def provider(self, machine_id: str) -> str:
        return P

    def holds(self, commitment: Commitment, machine: Machine) -> bool:
        number = None if commitment.stamp is None else {"number": str(commitment.stamp.number)}
        return machine.cluster == commitment.cluster and machine.shard_metadata == number

    def has_session(self, cluster_id: str) -> bool:
        return cluster_id in self.sessions

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        return cluster_id not in self.sessions and now - self.left_at[cluster_id] >= BYPASS_SECONDS

    def reports_drained(self, cluster_id: str) -> bool:
        return cluster_id in self.reporting

    def new_id(self) -> str:
        return f"id-{next(self.counter)}"

    # Carrying effects out, and what may be asked for at that moment

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Keep(commitment):
                    self.kept[commitment.machine] = commitment
                case Ended(commitment, outcome):
                    del self.kept[commitment.machine]
                    self.durable.discard(commitment.machine)
                    self.unsettled.discard(commitment.machine)
                    if outcome is Outcome.SUCCESS:
                        self.judge_success(commitment)
                case ProviderCall():
                    self.judge_ask(effect)
                    self.calls[effect.machine] = OnItsWay(effect, next(self.counter))
                case Settle(name):
                    self.gets.add(name)
                case RequestBlob(cluster, request, name):
                    self.judge_new(request, name)
                    assert cluster in self.sessions, "rule 15: a request where nobody hears it"
                    assert self.seen[name].state is S.IDLE, "rule 15: a request for a machine that is not Idle"
                    self.requests[request] = cluster
                case Instruct(cluster, instruction, name):
                    self.judge_new(instruction, name)
                    assert self.seen[name].cluster == cluster, "an operator is told of a machine that is not its own"
                    self.instructions[instruction] = cluster
                case WithdrawBlob(cluster, request):
                    assert self.requests.pop(request) == cluster
                case WithdrawInstruction(cluster, instruction):
                    assert self.instructions.pop(instruction) == cluster

    def judge_new(self, asked: str, name: str) -> None:
        assert not self.paused, "rule 18: a pause asks operators for nothing new"
        assert name not in self.unsettled, "rule 9: an operator is asked before the Get"
        assert asked not in self.ever, "an id is used twice"
        self.ever.add(asked)

    def judge_ask(self, ask: ProviderCall) -> None:
        now = self.seen[ask.machine]
        assert not self.paused, "rule 18: a pause sends no mutating call"
        assert ask.machine not in self.calls, "a second call before the first was answered"
        assert ask.machine in self.durable, "rule 9: a call for what is not durable"
        assert ask.machine not in self.unsettled, "rule 9: a call before the Get"
        assert can(ask.call, now.state, now.host is not None), f"{ask.call} is not legal from {now.state}"
        commitment = self.kept[ask.machine]
        assert CALLING[commitment.step] is ask.call
        if ask.call is Call.CONFIGURE:
            assert (ask.cluster, ask.stamp) == self.goals[ask.machine], "rule 3: not what was decided"
        if ask.call is Call.DRAIN:
            assert now.cluster == commitment.leaves, "a drain of a cluster that it was not decided for"
            told = bool(commitment.instruction_id)
            assert told or self.may_bypass(commitment.leaves, self.now), "rule 12: no session is no licence"

    def judge_success(self, commitment: Commitment) -> None:
        now = self.seen[commitment.machine]
        if commitment.cluster:
            assert now.state is S.CONFIGURED
            assert self.holds(commitment, now), "rule 3: bound for another need or cluster, yet counted a success"
        else:
            assert now.state in ({S.SPECULATIVE} if commitment.kind is Kind.DELETE else {S.IDLE, S.SPECULATIVE})

    def see(self, name: str) -> None:
        """A row or a Get shows the machine as it really is."""
        before, after = self.seen.get(name), self.truth.machines.get(name)
        if after is None:
            self.seen.pop(name, None)
        else:
            self.seen[name] = after
        if before == after:
            return
        asked_for = self.execute.get(name) is not None and before is not None and before.state is S.CONFIGURED
        self.take(self.execute.moved(name, self.now))
        drains = before is not None and before.state in RUNNING and after is not None and after.state is S.DRAINING
        if drains and not asked_for:
            self.take(self.execute.taken_back(name, self.now))
            # A new commitment is written down before what follows it is carried out.
            self.durable.update(self.kept.keys() & {name})

    # Decisions

    def an_action_is_decided(self) -> None:
        name, cluster = self.pick(self.names), self.pick(CLUSTERS)
        fits = name in self.seen and not self.rarely()
        kind = self.pick(FITTING.get(self.seen[name].state, list(Kind)) if fits else list(Kind))
        stamp = Stamp(NeedKey("f", "", ()), 1, PenaltyBucket.ZERO, PenaltyBucket.ZERO, next(self.counter))
        grace = self.pick([600, 0, 30]) if kind in (Kind.RECLAIM, Kind.PREEMPT) else 0
        if kind is Kind.PREEMPT and name in self.seen and self.seen[name].cluster == cluster:
            return
        if kind is Kind.RECLAIM and name in self.seen and fits:
            cluster = self.seen[name].cluster
        bare = kind in (Kind.RECLAIM, Kind.DELETE)
        action = Action(kind, name, "" if kind is Kind.DELETE else cluster, "why", grace, None if bare else stamp)
        standing = self.execute.get(name)
        effects = self.execute.decided(action, self.now)
        if effects:
            self.goals[name] = cluster, stamp
            if standing is not None:
                self.aimed.add(name)
        self.take(effects)
        if not self.rarely():
            self.the_file_is_written()

    def the_file_is_written(self) -> None:
        self.durable.update(self.kept)
        self.aimed.clear()
        self.take(self.execute.begin(list(self.kept), self.now))

    def a_decision_lets_one_go(self) -> None:
        self.take(self.execute.released([self.pick(self.names)]))

    def demand_is_not_live(self) -> None:
        cluster = self.pick(CLUSTERS)
        if cluster not in self.sessions:
            self.take(self.execute.not_live(cluster))

    # The provider

    def a_call_arrives(self) -> None:
        if self.calls:
            call = self.calls[self.pick(self.calls)]
            if call.answer is None:
                self.truth.take(call)

    def a_call_is_answered(self) -> None:
        if self.calls:
            self.answer(self.pick(self.calls))

    def answer(self, name: str) -> None:
        call = self.calls.pop(name)
        if call.answer is None:
            self.truth.take(call)
        if isinstance(call.answer, Problem):
            self.take(self.execute.call_failed(name, call.answer, "no"))
            return
        assert call.answer is not None
        self.seen[name] = call.answer
        number = {} if call.ask.stamp is None else {"number": str(call.ask.stamp.number)}
        problem = misfit(call.ask.call, call.answer, call.ask.cluster, number)
        if problem is None:
            self.take(self.execute.acknowledged(name, self.now))
        else:
            self.take(self.execute.call_failed(name, Problem.MISMATCH, problem))

    def an_answer_is_lost(self) -> None:
        if self.calls:
            name = self.pick(self.calls)
            call = self.calls.pop(name)
            if call.answer is None:
                self.strays.append(call)
            self.unsettled.add(name)
            self.take(self.execute.call_failed(name, Problem.UNAVAILABLE, "no answer"))

    def a_call_is_refused(self) -> None:
        problem = self.pick([each for each in Problem if each is not Problem.UNAVAILABLE])
        waiting = [name for name, call in self.calls.items() if call.answer is None]
        if waiting:
            name = self.pick(waiting)
            del self.calls[name]
            self.take(self.execute.call_failed(name, problem, "no"))

    def a_call_given_up_for_lost_arrives_after_all(self) -> None:
        if self.strays:
            self.truth.take(self.strays.pop())

    def a_machine_moves_as_asked(self) -> None:
        name = self.pick(self.names)
        before = self.truth.machines.get(name)
        if before is not None and before.state in USUAL:
            self.truth.machines[name] = moved_to(before, USUAL[before.state])
        if not self.rarely():
            self.see(name)

    def a_machine_moves_by_itself(self) -> None:
        name = self.pick(self.names)
        before = self.truth.machines.get(name)
        if before is None:
            return
        ways = sorted(end for source, end in UNASKED | {(S.CREATING, S.FAILED)} if source is before.state)
        if ways:
            self.truth.machines[name] = moved_to(before, self.pick(ways))

    def a_machine_vanishes_or_returns(self) -> None:
        name = self.pick(self.names)
        if self.truth.machines.pop(name, None) is None:
            self.truth.machines[name] = machine(name, S.SPECULATIVE)

    def a_row_is_seen(self) -> None:
        self.see(self.pick(self.names))

    def a_get_is_answered(self) -> None:
        if self.gets:
            name = self.pick(sorted(self.gets))
            self.gets.discard(name)
            if not self.rarely():
                self.get(name)

    def get(self, name: str) -> None:
        self.see(name)
        self.unsettled.discard(name)
        self.take(self.execute.settled(name, self.now))

    # Operators

    def an_operator_connects(self) -> None:
        self.connect(self.pick(CLUSTERS), reports=not self.rarely())

    def connect(self, cluster: str, reports: bool) -> None:
        self.sessions.add(cluster)
        (self.reporting.add if reports else self.reporting.discard)(cluster)
        replayed = self.execute.unanswered(cluster, self.now)
        ids = {each.request_id if isinstance(each, RequestBlob) else each.instruction_id for each in replayed}
        assert ids == {i for i, c in (self.requests | self.instructions).items() if c == cluster}, "rules 14, 15"
        self.take(self.execute.session_opened(self.now))

    def an_operator_leaves(self) -> None:
        cluster = self.pick(CLUSTERS)
        if cluster in self.sessions:
            self.sessions.discard(cluster)
            self.left_at[cluster] = self.now

    def user_data_comes(self) -> None:
        if not self.ever:
            return
        which = self.pick(self.requests if self.requests and not self.rarely() else sorted(self.ever))
        self.requests.pop(which, None)
        if self.rarely():
            self.take(self.execute.blob_failed(which, "no template"))
        else:
            self.take(self.execute.blob_answered(which, b"blob", self.pick([3600, 0, 60]), self.now))

    def an_operator_reports(self) -> None:
        if not self.ever:
            return
        which = self.pick(self.instructions if self.instructions and not self.rarely() else sorted(self.ever))
        match self.pick(["drained", "acked", "not drained"]):
            case "drained":
                self.take(self.execute.node_drained(which, self.now))
            case "acked":
                self.take(self.execute.reclaim_acked(which, self.now))
            case _:
                self.take(self.execute.node_not_drained(which, "pods are left"))

    # Time, pauses and restarts

    def time_passes(self) -> None:
        self.now += self.pick([1.0, 10.0, 30.0, 100.0, 300.0, 700.0, 2000.0])
        self.take(self.execute.tick(self.now))

    def actuation_is_paused(self) -> None:
        effects = self.execute.pause(self.now)
        self.paused = True
        self.take(effects)

    def actuation_is_resumed(self) -> None:
        effects = self.execute.resume(self.now)
        self.paused = False
        self.take(effects)

    def the_shard_restarts(self) -> None:
        for call in self.calls.values():
            if call.answer is None and self.pick([True, False]):
                self.truth.take(call)
        self.calls, self.gets = {}, set()
        # What was not durable is not in the file; nothing was sent for it.
        assert all(each.step is Step.DECIDED for each in self.execute if each.machine not in self.durable)
        self.kept = {name: each for name, each in self.kept.items() if name in self.durable}
        self.sessions, self.left_at = set(), dict.fromkeys(CLUSTERS, self.now)
        self.execute = LifecycleAlone(self, BLOB_SECONDS)
        if self.paused:
            self.execute.pause(self.now)
        self.unsettled = set(self.kept)
        self.aimed.clear()
        self.take(self.execute.restore(list(self.kept.values()), self.now))
        assert self.gets == {each.machine for each in self.execute}, "rule 9: every one is settled by a Get"
        again = LifecycleAlone(self, BLOB_SECONDS)
        again.restore(self.execute, self.now)
        assert list(again) == list(self.execute), "what a restart changes, the next would change again"
        self.kept = {each.machine: each for each in self.execute}

    # Laws

    def check(self) -> None:
        assert {each.machine for each in self.execute} == self.kept.keys()
        table = {each.machine: self.kept[each.machine] if each.machine in self.aimed else each for each in self.execute}
        assert table == self.kept, "Keep and Ended do not rebuild the table"
        asked = {each.request_id for each in self.execute if each.request_id}
        assert self.requests.keys() == asked, "a request is left to nobody, or waits for a word that has come"
        told = {each.instruction_id for each in self.execute if each.instruction_id}
        assert self.instructions.keys() == told, "an instruction is left to nobody"
        assert self.calls.keys() == {each.machine for each in self.execute if each.step in CALLING}

    def everybody_answers(self) -> None:
        """Once they do, every commitment ends, and nobody is left waiting for a word."""
        self.actuation_is_resumed()
        for cluster in CLUSTERS:
            self.connect(cluster, reports=True)
        for _ in range(MANY_ROUNDS):
            self.the_file_is_written()
            for name in list(self.calls):
                self.answer(name)
            for name in self.names:
                each = self.truth.machines.get(name)
                if each is not None and each.state in ENDS:
                    self.truth.machines[name] = moved_to(each, ENDS[each.state])
                self.see(name)
            gets, self.gets = sorted(self.gets), set()
            for name in gets:
                self.get(name)
            for request in list(self.requests):
                del self.requests[request]
                self.take(self.execute.blob_answered(request, b"blob", 3600, self.now))
            for instruction in list(self.instructions):
                self.take(self.execute.node_drained(instruction, self.now))
            self.now += 10.0
            self.take(self.execute.tick(self.now))
            self.check()
        assert list(self.execute) == []


EVENTS: list[Callable[[Life], None]] = [
    *[Life.an_action_is_decided] * 8,
    *[Life.a_call_is_answered] * 8,
    *[Life.a_machine_moves_as_asked] * 8,
    *[Life.user_data_comes] * 5,
    *[Life.an_operator_reports] * 4,
    *[Life.a_get_is_answered] * 4,
    *[Life.time_passes] * 4,
    *[Life.an_operator_connects] * 3,
    *[Life.actuation_is_resumed] * 3,
    *[Life.a_row_is_seen] * 2,
    *[Life.an_answer_is_lost] * 2,
    Life.a_call_arrives,
    Life.a_call_is_refused,
    Life.a_call_given_up_for_lost_arrives_after_all,
    Life.a_machine_moves_by_itself,
    Life.a_machine_vanishes_or_returns,
    Life.the_file_is_written,
    Life.a_decision_lets_one_go,
    Life.demand_is_not_live,
    Life.an_operator_leaves,
    Life.actuation_is_paused,
    Life.the_shard_restarts,
]
"""What may happen, as often as it stands here."""
