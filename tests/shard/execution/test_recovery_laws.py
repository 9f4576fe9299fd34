"""Laws of recovery against a provider, operators and an execute part that are only played: they lose, refuse and go."""

import itertools
from collections.abc import Callable, Collection
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.model.machine import (
    ASKS,
    HOSTED,
    Call,
    CapacityType,
    Host,
    Machine,
    MachineState,
    acknowledged,
    can,
    check,
    check_invariants,
)
from bigfleet.shard.execution.effects import Fenced, Instruct, Problem, ProviderCall, Settle, WithdrawInstruction
from bigfleet.shard.execution.recovery import (
    ALERT_SECONDS,
    FIRST_SECONDS,
    LONGEST_SECONDS,
    Alert,
    Effect,
    Recovered,
)
from tests.shard.execution.alone import RecoveryAlone

S = MachineState
BOUND = frozenset({S.CONFIGURING, S.CONFIGURED, S.DRAINING})
ENDS = {ask.via: ask.end for ask in ASKS}
UNDER_WAY = frozenset({S.CREATING, S.DRAINING, S.DELETING})
NAMES, CLUSTERS = ("m-0", "m-1"), ("red", "blue")
P = "sim"
T = TypeVar("T")
STEPS = 120
BYPASS_SECONDS = 300.0
MANY_ROUNDS = 12


def machine(name: str, state: MachineState, cluster: str = "", host: bool = True) -> Machine:
    """A well-formed record in that state; a Failed one has the cluster and host it is given."""
    failed = state is S.FAILED
    record = Machine(
        id=name,
        state=state,
        instance_type="c8",
        capacity_type=CapacityType.ON_DEMAND,
        host=Host(P, name) if (host and failed) or state in HOSTED else None,
        cluster=cluster if failed or state in BOUND else "",
        last_error="boom" if failed else "",
    )
    check_invariants(record)
    return record


class Life:
    """Few machines, two clusters, one recovery after another, and everything between them that can go wrong.

    What happens is written in bytes, so that a failure shrinks: one chooses the event, the others its details.
    """

    def __init__(self, story: bytes) -> None:
        self.story = iter(story)
        self.now, self.slept, self.paused = 1000.0, 0.0, False
        self.counter = itertools.count(1)
        self.deletes = self.pick([True, False])
        self.truth = {name: self.broken(name) for name in NAMES}
        self.seen: dict[str, Machine] = {}
        self.sessions, self.left_at = set(CLUSTERS), dict.fromkeys(CLUSTERS, 0.0)
        self.reporting = set(CLUSTERS)
        self.ready = {name for name in NAMES if self.pick([True, False])}
        self.commitments: set[str] = set()
        self.unusable: set[str] = set()
        self.acts = True
        self.fenced: set[str] = set()
        self.start()
        for name in NAMES:
            self.see(name)

    def start(self) -> None:
        """A new life, which knows nothing of the one before."""
        self.calls: dict[str, ProviderCall] = {}
        self.gets: set[str] = set()
        self.told: dict[str, tuple[str, str]] = {}
        # When the grace of what was told is over; at once where the node is empty.
        self.grace_ends: dict[str, float] = {}
        self.alerted: set[str] = set()
        # On the clock that stands still in a pause: since when a machine has been left alone after a call or since it
        # failed, and when anything was last tried.
        self.alone: dict[str, float] = {}
        self.helped: dict[str, float] = {}
        # Calls of the present round, and whether the last was refused so that another may follow.
        self.round: dict[str, tuple[Call, ...]] = {}
        self.falls: set[str] = set()
        self.doubtful: set[str] = set()
        self.recovery = RecoveryAlone(self, self.fenced)

    def byte(self) -> int:
        return next(self.story, 0)

    def pick(self, of: Collection[T]) -> T:
        return list(of)[self.byte() % len(of)]

    def rarely(self) -> bool:
        return self.byte() % 8 == 7

    def broken(self, name: str) -> Machine:
        return machine(name, S.FAILED, self.pick(["", *CLUSTERS]), self.pick([True, False]))

    def running(self) -> float:
        return self.now - self.slept

    def run(self) -> None:
        for _ in range(STEPS):
            happens = self.byte()
            if happens:
                EVENTS[happens % len(EVENTS)](self)
                self.check()

    # Surroundings

    def machine(self, machine_id: str) -> Machine | None:
        return self.seen.get(machine_id)

    def node_ready(self, machine_id: str) -> bool:
        return machine_id in self.ready

    def has_session(self, cluster_id: str) -> bool:
        return cluster_id in self.sessions

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        return cluster_id not in self.sessions and now - self.left_at[cluster_id] >= BYPASS_SECONDS

    def reports_drained(self, cluster_id: str) -> bool:
        return cluster_id in self.reporting

    def committed(self, machine_id: str) -> bool:
        return machine_id in self.commitments

    def usable(self, machine_id: str) -> bool:
        return machine_id not in self.unusable

    def may_act(self) -> bool:
        return self.acts

    def new_id(self) -> str:
        return f"id-{next(self.counter)}"

    # Carrying effects out, and what may be asked for at that moment

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ProviderCall(name):
                    self.judge_ask(effect)
                    self.calls[name] = effect
                case Settle(name):
                    assert name not in self.calls, "a Get while the call may still be answered"
                    self.gets.add(name)
                case Instruct(cluster, instruction, name, grace):
                    self.judge_free(name)
                    self.judge_wait(name)
                    assert name in self.ready, "an operator is asked where no Node was Ready"
                    assert cluster in self.sessions
                    assert self.seen[name].cluster == cluster, "an operator is told of a machine that is not its own"
                    assert instruction not in self.told
                    assert name not in {other for _, other in self.told.values()}, "told twice of one machine"
                    self.told[instruction] = cluster, name
                    self.grace_ends[name] = self.now + grace
                case WithdrawInstruction(cluster, instruction, name):
                    assert self.told.pop(instruction) == (cluster, name)
                    self.helped[name] = self.running()
                    if name in self.round:
                        self.over(name)
                case Alert(name, since):
                    assert name not in self.alerted, "alerted twice"
                    assert self.now - since >= ALERT_SECONDS
                    assert self.seen[name].state is S.FAILED
                    self.alerted.add(name)
                case Recovered(name):
                    assert self.seen[name].state not in UNDER_WAY | {S.FAILED}, "taken for recovered on its way"
                    self.alerted.discard(name)
                case Fenced(name, _, stop):
                    assert stop == (name in self.was_fenced), "rule 10: twice on one machine, no more and no less"

    def judge_free(self, name: str) -> None:
        """Nothing is begun now that must not be."""
        assert not self.paused, "rule 18: something is sent in a pause"
        assert self.acts, "rules 9 and 10: something is sent that must not be"
        assert name not in self.unusable, "rule 7: something is done with a machine that must be let be"
        assert name not in self.commitments, "recovery gets into the way of an action"
        assert self.seen[name].state is S.FAILED
        assert name not in self.calls, "a second call before the first was answered"
        assert name not in self.doubtful, "rule 6: a call before the Get"

    def judge_wait(self, name: str) -> None:
        assert self.running() - self.alone[name] >= FIRST_SECONDS, "rule 1: tried again at once"

    def judge_ask(self, ask: ProviderCall) -> None:
        name, now = ask.machine, self.seen[ask.machine]
        self.judge_free(name)
        assert can(ask.call, now.state, now.host is not None), f"{ask.call} is not legal"
        told = [cluster for cluster, machine_id in self.told.values() if machine_id == name]
        if now.cluster:
            licence = now.cluster in (*told, *self.sessions) or self.may_bypass(now.cluster, self.now)
            assert licence, "rule 12: no session is no licence"
            asked_first = told or name not in self.ready or now.cluster not in self.sessions or self.round.get(name)
            assert asked_first, "rule 1: through the operator first"
        if self.round.get(name):
            assert name in self.falls, "a second call though the first was not refused"
            assert ask.call not in self.round[name], "the same call twice in a round"
            self.falls.discard(name)
        else:
            if not told:
                self.judge_wait(name)
            preferred = Call.DRAIN if now.cluster and now.host is not None else Call.DELETE
            assert ask.call is preferred, "rule 1: not the call to try first"
        if ask.call is Call.DELETE and told:
            assert self.now >= self.grace_ends[name], "rule 14: pods are killed before their grace is over"
        if ask.call is Call.CREATE:
            assert not self.deletes or self.lied, "a slot that could be given back is paid for"
        self.round[name] = (*self.round.get(name, ()), ask.call)

    def over(self, name: str) -> None:
        """A round has ended, or the machine has failed: from here on it is left alone."""
        self.round.pop(name, None)
        self.falls.discard(name)
        self.alone[name] = self.helped[name] = self.running()

    # What is seen

    def see(self, name: str) -> None:
        before, after = self.seen.get(name), self.truth.get(name)
        if after is None:
            self.seen.pop(name, None)
        else:
            self.seen[name] = after
        if after is not None and after.state is S.FAILED:
            if before is None or before.state is not S.FAILED:
                if name not in self.calls and name not in self.doubtful:
                    self.over(name)
                self.alone[name] = self.helped[name] = self.running()
            self.take(self.recovery.failed(after, P, self.now))
        elif before is not None and before.state is S.FAILED:
            self.take(self.recovery.left(name))
        if after is None or (before is not None and before.state is not S.FAILED and after.state is not S.FAILED):
            # Not every step is told; a tick finds it.
            self.take(self.recovery.left(name) if self.pick([True, False]) else [])
        if name not in self.seen:
            self.alerted.discard(name)

    def a_row_is_seen(self) -> None:
        self.see(self.pick(NAMES))

    def a_machine_moves_as_asked(self) -> None:
        name = self.pick(NAMES)
        before = self.truth.get(name)
        if before is not None and before.state in ENDS:
            self.truth[name] = machine(name, ENDS[before.state], before.cluster)
        self.see(name)

    def a_machine_fails(self) -> None:
        name = self.pick(NAMES)
        if name in self.truth:
            self.truth[name] = self.broken(name)

    def a_machine_moves_by_itself(self) -> None:
        name = self.pick(NAMES)
        if name in self.truth:
            self.truth[name] = machine(name, self.pick([S.IDLE, S.SPECULATIVE, S.CONFIGURED, S.DRAINING]), "red")

    def a_machine_vanishes_or_returns(self) -> None:
        name = self.pick(NAMES)
        if self.truth.pop(name, None) is None:
            self.truth[name] = self.broken(name)

    # Calls and Gets

    def a_call_is_answered(self) -> None:
        if self.calls:
            self.answer(self.pick(self.calls))

    def answer(self, name: str) -> None:
        ask = self.calls[name]
        problem = self.arrives(ask) if self.recovery.wants(ask) else Problem.UNAVAILABLE
        if problem is not None:
            self.fail(name, problem)
            return
        del self.calls[name]
        self.see(name)
        self.over(name)
        self.take(self.recovery.acknowledged(name, self.now))
        assert name not in self.fenced

    def arrives(self, ask: ProviderCall) -> Problem | None:
        """The provider does what it is asked, or says why not."""
        name, before = ask.machine, self.truth.get(ask.machine)
        if before is None:
            return Problem.NOT_FOUND
        if ask.call is Call.DELETE and not self.deletes:
            return Problem.UNSUPPORTED
        if not can(ask.call, before.state, before.host is not None):
            return Problem.REFUSED
        way = check(ask.call, name, before.state, before.host is not None)
        self.truth[name] = machine(
            name, acknowledged(way, before.host is not None, bool(before.cluster)), before.cluster
        )
        return None

    lied = False

    def a_call_is_refused(self) -> None:
        if self.calls:
            problem = self.pick(list(Problem))
            self.lied = self.lied or problem is Problem.UNSUPPORTED
            self.fail(self.pick(self.calls), problem)

    def fail(self, name: str, problem: Problem) -> None:
        del self.calls[name]
        if problem in (Problem.UNSUPPORTED, Problem.REFUSED):
            self.falls.add(name)
        if problem is not Problem.UNSUPPORTED:
            self.doubtful.add(name)
        self.was_fenced = frozenset(self.fenced)
        self.take(self.recovery.call_failed(name, problem, self.now))
        if not self.recovery.busy(name):
            self.over(name)

    def a_call_is_lost_but_arrives(self) -> None:
        if self.calls:
            name = self.pick(self.calls)
            self.arrives(self.calls[name])
            self.fail(name, Problem.UNAVAILABLE)

    def a_get_is_answered(self) -> None:
        if self.gets:
            self.get(self.pick(sorted(self.gets)))

    def somebody_else_gets(self) -> None:
        self.get(self.pick(NAMES))

    def get(self, name: str) -> None:
        self.gets.discard(name)
        self.see(name)
        if name in self.doubtful:
            self.doubtful.discard(name)
            self.take(self.recovery.settled(name, self.now))
            if not self.recovery.busy(name):
                self.over(name)
        else:
            assert self.recovery.settled(name, self.now) == []

    # The rest of the shard

    def an_action_begins(self) -> None:
        name = self.pick(NAMES)
        if not self.recovery.busy(name):
            self.commitments.add(name)

    def an_action_ends(self) -> None:
        name = self.pick(NAMES)
        self.commitments.discard(name)
        if name in self.seen and self.seen[name].state is S.FAILED:
            # As execute's end tells it once more.
            assert self.recovery.failed(self.seen[name], P, self.now) == []

    def a_provider_is_lost(self) -> None:
        self.unusable.add(self.pick(NAMES))

    def a_provider_is_back(self) -> None:
        self.unusable.discard(self.pick(NAMES))

    def the_file_cannot_be_written(self) -> None:
        self.acts = False

    def the_file_can_be_written(self) -> None:
        self.acts = True

    def a_node_is_ready_or_gone(self) -> None:
        self.ready ^= {self.pick(NAMES)}

    def execute_is_fenced(self) -> None:
        self.fenced.add(self.pick(NAMES))

    # Operators

    def an_operator_connects(self) -> None:
        cluster = self.pick(CLUSTERS)
        self.sessions.add(cluster)
        self.reporting ^= {cluster} if self.rarely() else set()
        replayed = self.recovery.unanswered(cluster, self.now)
        assert {each.instruction_id: (each.cluster, each.machine) for each in replayed} == {
            instruction: told for instruction, told in self.told.items() if told[0] == cluster
        }, "rule 14"

    def an_operator_leaves(self) -> None:
        cluster = self.pick(CLUSTERS)
        if cluster in self.sessions:
            self.sessions.discard(cluster)
            self.left_at[cluster] = self.now

    def an_operator_reports(self) -> None:
        which = self.pick([*self.told, "id-0"])
        says = self.pick([self.recovery.node_drained, self.recovery.reclaim_acked, self.recovery.node_not_drained])
        if says == self.recovery.node_drained and which in self.told:
            self.grace_ends[self.told[which][1]] = self.now
        self.take(says(which, self.now))

    # Time, pauses and restarts

    def time_passes(self) -> None:
        self.pass_time(self.pick([1.0, 30.0, 60.0, 60.0, 120.0, 300.0, 1000.0, 4000.0]))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds if self.paused else 0.0
        self.take(self.recovery.tick(self.now))
        self.check_nobody_is_forgotten()
        for cluster, name in self.told.values():
            bound = name in self.seen and self.seen[name].cluster == cluster
            assert bound or name in self.calls or name in self.doubtful, "rule 14: an instruction outlives its binding"

    def check_nobody_is_forgotten(self) -> None:
        """After a tick, who is Failed and may be helped is being helped, or was within the hour."""
        if self.paused or not self.acts:
            return
        for name, now in self.seen.items():
            hindered = name in self.unusable or name in self.commitments
            silent = (
                bool(now.cluster) and now.cluster not in self.sessions and not self.may_bypass(now.cluster, self.now)
            )
            if now.state is S.FAILED and not hindered and not silent and not self.recovery.busy(name):
                assert self.running() - self.helped[name] < LONGEST_SECONDS, "rule 1: for ever, every hour at least"

    def actuation_is_paused(self) -> None:
        effects = self.recovery.pause(self.now)
        self.paused = True
        self.take(effects)
        for _, name in self.told.values():
            early = name in self.seen and self.seen[name].state is S.FAILED
            assert not early or name in self.calls or name in self.doubtful, "rule 18: a drain that did not begin"

    def actuation_is_resumed(self) -> None:
        self.paused = False
        self.take(self.recovery.resume(self.now))

    def the_shard_restarts(self) -> None:
        """Calls on their way are as if they had never been; instructions are answered as unknown."""
        self.fenced = set()
        self.start()
        if self.paused:
            self.recovery.pause(self.now)
        self.seen = {}
        for name in NAMES:
            self.see(name)

    # Laws

    def check(self) -> None:
        for name in NAMES:
            out = name in self.calls or name in self.doubtful
            asked = any(machine_id == name for _, machine_id in self.told.values())
            assert self.recovery.busy(name) or not out, "a call is out and nobody is told so"
            assert not self.recovery.busy(name) or out or asked, "busy with nothing"
        for cluster in CLUSTERS:
            told = {each.instruction_id for each in self.recovery.unanswered(cluster, self.now)}
            assert told == {instruction for instruction, (to, _) in self.told.items() if to == cluster}
        assert self.recovery.awaits(P) or not (self.calls or self.doubtful)

    def everybody_answers(self) -> None:
        """Once they do, every machine is out of Failed, and nobody is left waiting for a word."""
        self.acts, self.commitments, self.unusable, self.sessions = True, set(), set(), set(CLUSTERS)
        self.actuation_is_resumed()
        for _ in range(MANY_ROUNDS):
            for instruction, (_, name) in list(self.told.items()):
                self.grace_ends[name] = self.now
                self.take(self.recovery.node_drained(instruction, self.now))
            for _ in Call:
                for name in list(self.calls):
                    self.answer(name)
                for name in sorted(self.gets):
                    self.get(name)
            for name in NAMES:
                each = self.truth.get(name)
                if each is not None and each.state in ENDS:
                    self.truth[name] = machine(name, ENDS[each.state], each.cluster)
                self.see(name)
            self.pass_time(LONGEST_SECONDS / 2)
            self.check()
        assert not [each for each in self.seen.values() if each.state is S.FAILED]
        assert not self.told
        assert not self.recovery.awaits(P)
        assert not any(map(self.recovery.busy, NAMES))


EVENTS: list[Callable[[Life], None]] = [
    *[Life.time_passes] * 10,
    *[Life.a_call_is_answered] * 6,
    *[Life.a_machine_fails] * 4,
    *[Life.a_row_is_seen] * 5,
    *[Life.an_operator_reports] * 4,
    *[Life.a_get_is_answered] * 4,
    *[Life.a_call_is_refused] * 3,
    *[Life.a_machine_moves_as_asked] * 3,
    *[Life.an_operator_connects] * 3,
    *[Life.actuation_is_resumed] * 2,
    *[Life.an_action_ends] * 2,
    *[Life.a_provider_is_back] * 2,
    *[Life.the_file_can_be_written] * 2,
    Life.a_call_is_lost_but_arrives,
    Life.somebody_else_gets,
    Life.a_machine_moves_by_itself,
    Life.a_machine_vanishes_or_returns,
    Life.an_action_begins,
    Life.a_provider_is_lost,
    Life.the_file_cannot_be_written,
    Life.a_node_is_ready_or_gone,
    Life.execute_is_fenced,
    Life.an_operator_leaves,
    Life.actuation_is_paused,
    Life.the_shard_restarts,
]
"""What may happen, as often as it stands here."""


@settings(max_examples=500, deadline=None)
@given(st.binary(min_size=4 * STEPS, max_size=4 * STEPS))
def test_no_story_breaks_a_law_and_every_machine_gets_out_of_failed(story: bytes) -> None:
    life = Life(story)
    life.run()
    life.everybody_answers()
