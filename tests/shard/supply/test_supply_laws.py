"""Laws of supply against a provider that is only played: messages in any order, stale, partial, doubled or lost."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bigfleet.model.machine import ASKS, UNASKED, CapacityType, Host, Machine, MachineState
from bigfleet.provider.records import Answer, Listing, Refusal
from bigfleet.shard.supply.known import Changed, Doubt, Effect
from bigfleet.shard.supply.table import LISTS_TO_AGREE, Supply

S = MachineState
HOSTLESS = frozenset({S.SPECULATIVE, S.CREATING})
BOUND = frozenset({S.CONFIGURING, S.CONFIGURED, S.DRAINING})
CALLS: dict[MachineState, MachineState] = {ask.source: ask.via for ask in ASKS if ask.source is not S.FAILED}
MOVES = {ask.via: ask.end for ask in ASKS}
P = "sim"


def machine(machine_id: str, state: MachineState, binding: int = 0) -> Machine:
    return Machine(
        id=machine_id,
        state=state,
        instance_type="c8",
        capacity_type=CapacityType.SPOT,
        host=None if state in HOSTLESS else Host(P, machine_id),
        cluster=f"cluster-{binding}" if state in BOUND else "",
        last_error="boom" if state is S.FAILED else "",
        price_per_hour=1.0,
        interruption_probability=0.1,
    )


@dataclass
class Reply:
    """An answer on its way: when its question was asked, and how things stood when the provider looked."""

    began: float
    picture: dict[str, Machine]
    full: bool = False
    bad_price: frozenset[str] = frozenset()


@dataclass
class Acked:
    """The newest ack of a machine, and whether anything that began after it has been heard since."""

    at: float
    record: Machine
    overtaken: bool = False


@dataclass
class Provider:
    """The machines as they really are."""

    machines: dict[str, Machine] = field(default_factory=dict)
    bindings: int = 0
    born: int = 0

    def bear(self) -> None:
        self.born += 1
        name = f"m-{self.born}"
        self.machines[name] = machine(name, S.SPECULATIVE)

    def move(self, name: str, state: MachineState) -> None:
        if state is S.CONFIGURING:
            self.bindings += 1
        self.machines[name] = machine(name, state, self.bindings)


class Closing(RuleBasedStateMachine):
    """One provider, one supply, and everything between them that can go wrong."""

    @initialize(count=st.integers(1, 14))
    def start(self, count: int) -> None:
        self.now = 0.0
        self.truth, self.supply = Provider(), Supply("eu-1")
        self.lists: list[Reply] = []
        self.gets: list[tuple[str, Reply]] = []
        self.acks: dict[str, Machine] = {}
        self.acked: dict[str, Acked] = {}
        self.before: dict[str, Machine] = {}
        self.asked_for: set[str] = set()
        for _ in range(count):
            self.truth.bear()
        self.take(
            self.supply.listed(P, self.listing(Reply(self.tick(), dict(self.truth.machines), full=True)), self.tick())
        )

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    def pick(self, data: st.DataObject, names: "list[str]") -> str:
        return data.draw(st.sampled_from(sorted(names)))

    def listing(self, reply: Reply) -> Listing:
        refused = tuple(
            Refusal(m.id, "price", "price_per_hour", "bad", msgspec.structs.replace(m, price_per_hour=0.0),
                    ("price_per_hour",))
            for m in reply.picture.values()
            if m.id in reply.bad_price
        )  # fmt: skip
        rows = {name: m for name, m in reply.picture.items() if name not in reply.bad_price}
        return Listing(rows, refused, b"", reply.full, reply.began)

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Changed) and effect.after is None:
                really = self.truth.machines.get(effect.machine_id)
                assert really is None or not really.cluster, "a bound machine was dropped while its provider has it"
            if isinstance(effect, Changed):
                assert effect.before == self.before.get(effect.machine_id), "effects do not follow from one another"
                if effect.after is None:
                    del self.before[effect.machine_id]
                else:
                    self.before[effect.machine_id] = effect.after

    # The provider's life

    @rule()
    def a_machine_appears(self) -> None:
        self.truth.bear()

    @precondition(lambda self: self.truth.machines)
    @rule(data=st.data())
    def a_machine_vanishes(self, data: st.DataObject) -> None:
        del self.truth.machines[self.pick(data, list(self.truth.machines))]

    @precondition(lambda self: self.truth.machines)
    @rule(data=st.data())
    def a_machine_moves(self, data: st.DataObject) -> None:
        name = self.pick(data, list(self.truth.machines))
        state = self.truth.machines[name].state
        ways = [end for source, end in UNASKED if source is state] + (
            [MOVES[state], S.FAILED] if state in MOVES else []
        )
        if ways:
            self.truth.move(name, data.draw(st.sampled_from(sorted(ways))))

    # Questions and their answers

    @rule(full=st.booleans(), data=st.data())
    def a_list_is_asked_for(self, full: bool, data: st.DataObject) -> None:
        names = sorted(self.truth.machines)
        some = names if full else data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
        bad = frozenset(data.draw(st.lists(st.sampled_from(names), max_size=2))) if names else frozenset()
        # A machine whose first record ever is bad has no good price to keep.
        bad &= self.before.keys()
        self.lists.append(Reply(self.tick(), {n: self.truth.machines[n] for n in some}, full, bad))

    @precondition(lambda self: self.lists)
    @rule(data=st.data(), again=st.booleans())
    def a_list_arrives(self, data: st.DataObject, again: bool) -> None:
        reply = data.draw(st.sampled_from(self.lists))
        if not again:
            self.lists.remove(reply)
        for name, acked in self.acked.items():
            if reply.began > acked.at and (reply.full or name in reply.picture):
                acked.overtaken = True
        self.take(self.supply.listed(P, self.listing(reply), self.tick()))

    @precondition(lambda self: self.before)
    @rule(data=st.data())
    def a_get_is_asked_for(self, data: st.DataObject) -> None:
        wanted = [doubt.machine_id for doubt in self.supply.doubts()] or list(self.before)
        name = self.pick(data, wanted)
        self.gets.append((name, Reply(self.tick(), dict(self.truth.machines))))

    @precondition(lambda self: self.gets)
    @rule(data=st.data(), lost=st.booleans())
    def a_get_is_answered(self, data: st.DataObject, lost: bool) -> None:
        index = data.draw(st.integers(0, len(self.gets) - 1))
        name, reply = self.gets.pop(index)
        if lost:
            return
        if name in self.acked and reply.began >= self.acked[name].at:
            self.acked[name].overtaken = True
        found = reply.picture.get(name)
        self.take(self.supply.got(P, name, None if found is None else Answer(found), reply.began, self.tick()))

    @precondition(lambda self: self.truth.machines)
    @rule(data=st.data())
    def a_call_is_made(self, data: st.DataObject) -> None:
        ready = [
            n for n, m in self.truth.machines.items() if m.state in CALLS and n in self.before and n not in self.acks
        ]
        if not ready:
            return
        name = self.pick(data, ready)
        self.supply.in_flight(name, True)
        self.supply.called(name)
        self.truth.move(name, CALLS[self.truth.machines[name].state])
        self.acks[name] = self.truth.machines[name]

    @precondition(lambda self: self.acks)
    @rule(data=st.data(), stays=st.booleans())
    def an_ack_arrives(self, data: st.DataObject, stays: bool) -> None:
        name = self.pick(data, list(self.acks))
        record, now = self.acks.pop(name), self.tick()
        if self.supply.find(name) is not None:
            self.acked[name] = Acked(now, record)
        self.take(self.supply.acknowledged(name, record, None, now))
        self.supply.in_flight(name, stays)

    # Laws

    @invariant()
    def nothing_older_undoes_an_ack(self) -> None:
        for name, acked in getattr(self, "acked", {}).items():
            if not acked.overtaken:
                assert self.supply.find(name) == acked.record

    @invariant()
    def effects_tell_the_whole_story(self) -> None:
        if hasattr(self, "supply"):
            assert {m.id: m for m in self.supply.machines()} == self.before
            assert len(self.supply) == self.supply.counts().total() == len(self.before)
            assert self.supply.idle_for(self.now).keys() == {n for n, m in self.before.items() if m.state is S.IDLE}

    def teardown(self) -> None:
        """Fresh full lists, as many as must agree, and the Gets that they leave to ask: then all is as it is."""
        if not hasattr(self, "supply"):
            return
        for name, record in self.acks.items():
            self.take(self.supply.acknowledged(name, record, None, self.tick()))
        for _ in range(LISTS_TO_AGREE):
            reply = Reply(self.tick(), dict(self.truth.machines), full=True)
            effects = self.supply.listed(P, self.listing(reply), self.tick())
            self.take(effects)
            standing = list(self.supply.doubts())
            assert {effect for effect in effects if isinstance(effect, Doubt)} <= set(standing)
            for doubt in standing:
                found = self.truth.machines.get(doubt.machine_id)
                answer = None if found is None else Answer(found)
                self.take(self.supply.got(P, doubt.machine_id, answer, self.tick(), self.now))
            assert list(self.supply.doubts()) == []
        assert {m.id: m for m in self.supply.machines()} == self.truth.machines


class Following(RuleBasedStateMachine):
    """A cursor that is never started anew: each change is told by one delta only, acks and Gets come when they come."""

    @initialize(count=st.integers(1, 3))
    def start(self, count: int) -> None:
        self.now, self.truth, self.supply = 0.0, Provider(), Supply("eu-1")
        self.acks: dict[str, Machine] = {}
        self.gets: list[tuple[float, Machine]] = []
        for _ in range(count):
            self.truth.bear()
        self.told = dict(self.truth.machines)
        self.supply.listed(P, Listing(self.told, (), b"", True, self.tick()), self.tick())
        self.reply: Reply | None = None

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    @rule(data=st.data())
    def a_machine_moves(self, data: st.DataObject) -> None:
        moving = sorted(name for name, machine in self.truth.machines.items() if machine.state in MOVES)
        if moving:
            name = data.draw(st.sampled_from(moving))
            self.truth.move(name, MOVES[self.truth.machines[name].state])

    @rule(data=st.data())
    def a_call_is_made(self, data: st.DataObject) -> None:
        ready = sorted(
            name
            for name, machine in self.truth.machines.items()
            if machine.state in CALLS and name not in self.acks and self.supply.find(name) == machine
        )
        if ready:
            name = data.draw(st.sampled_from(ready))
            self.supply.in_flight(name, True)
            self.supply.called(name)
            self.truth.move(name, CALLS[self.truth.machines[name].state])
            self.acks[name] = self.truth.machines[name]

    @precondition(lambda self: self.acks)
    @rule(data=st.data(), lost=st.booleans())
    def an_ack_arrives(self, data: st.DataObject, lost: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.acks)))
        record = self.acks.pop(name)
        if lost:
            self.supply.unanswered(name, self.tick())
        else:
            self.supply.acknowledged(name, record, None, self.tick())

    @rule(data=st.data())
    def a_get_is_asked_for(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.truth.machines)))
        self.gets.append((self.tick(), self.truth.machines[name]))

    @precondition(lambda self: self.gets)
    @rule(data=st.data())
    def a_get_is_answered(self, data: st.DataObject) -> None:
        began, record = self.gets.pop(data.draw(st.integers(0, len(self.gets) - 1)))
        self.supply.got(P, record.id, Answer(record), began, self.tick())

    @precondition(lambda self: self.reply is None)
    @rule()
    def a_delta_is_asked_for(self) -> None:
        machines = self.truth.machines
        # Where it went and came back there is news too.
        self.reply = Reply(self.tick(), {name: row for name, row in machines.items() if self.told[name] is not row})
        self.told = dict(machines)

    @precondition(lambda self: self.reply is not None)
    @rule()
    def a_delta_arrives(self) -> None:
        assert self.reply is not None
        self.supply.listed(P, Listing(self.reply.picture, (), b"", False, self.reply.began), self.tick())
        self.reply = None

    def teardown(self) -> None:
        """What is on its way arrives, one more delta, and the Gets that are asked for: then all is as it is."""
        if not hasattr(self, "reply"):
            return
        for name, record in self.acks.items():
            self.supply.acknowledged(name, record, None, self.tick())
        for began, record in self.gets:
            self.supply.got(P, record.id, Answer(record), began, self.tick())
        for _ in range(2):
            if self.reply is None:
                self.a_delta_is_asked_for()
            self.a_delta_arrives()
        for doubt in list(self.supply.doubts()):
            answer = Answer(self.truth.machines[doubt.machine_id])
            self.supply.got(P, doubt.machine_id, answer, self.tick(), self.now)
        assert {each.id: each for each in self.supply.machines()} == self.truth.machines


TestFollowing = Following.TestCase
TestFollowing.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
TestLaws = Closing.TestCase
TestLaws.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
