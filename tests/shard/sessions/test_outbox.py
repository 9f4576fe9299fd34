"""One cluster's outbox: order, the newest word per key, what may be dropped, and what a connect brings again."""

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.shard.sessions.outbox import ROOM, Outbox
from bigfleet.wire.v1alpha1 import shard_pb2 as pb


def state(machine: str, error: str = "") -> pb.ShardMessage:
    update = pb.NodeStateUpdate(supersedes_key=f"node:{machine}", machine_id=machine, last_error=error)
    return pb.ShardMessage(node_state_update=update)


def capacity(profile: str, count: int = 0) -> pb.ShardMessage:
    update = pb.AvailableCapacityUpdate(supersedes_key=f"available:{profile}", available_count=count)
    return pb.ShardMessage(available_capacity=update)


def ack(echo: str) -> pb.ShardMessage:
    return pb.ShardMessage(ack=pb.Acknowledgement(echo=echo))


def request(name: str, machine: str = "") -> pb.ShardMessage:
    return pb.ShardMessage(bootstrap_request=pb.BootstrapRequest(request_id=name, machine_id=machine))


def instruction(name: str, grace: int = 600) -> pb.ShardMessage:
    reclaim = pb.ReclaimInstruction(instruction_id=name, nodes=["n"], grace_period_seconds=grace)
    return pb.ShardMessage(reclaim_instruction=reclaim)


def request_off(name: str) -> pb.ShardMessage:
    return pb.ShardMessage(bootstrap_withdrawn=pb.BootstrapWithdrawn(request_id=name))


def reclaim_off(name: str, *nodes: str) -> pb.ShardMessage:
    return pb.ShardMessage(reclaim_withdrawn=pb.ReclaimWithdrawn(instruction_id=name, nodes=nodes))


def opened(*frames: pb.ShardMessage, room: int = ROOM) -> Outbox:
    outbox = Outbox(room)
    outbox.connected([], [], [], 0.0)
    for frame in frames:
        outbox.put(frame, 0.0)
    return outbox


def drained(outbox: Outbox, now: float = 0.0) -> list[pb.ShardMessage]:
    frames = []
    while (frame := outbox.take()) is not None:
        frames.append(frame)
        outbox.sent(now)
    return frames


class TestOrder:
    def test_frames_leave_in_the_order_they_came_in(self) -> None:
        frames = [state("a"), ack("1"), request("r"), ack("2"), capacity("p"), instruction("i")]
        assert drained(opened(*frames)) == frames

    def test_a_newer_word_takes_the_place_of_an_older_one_that_waits(self) -> None:
        outbox = opened(state("a", "old"), state("b"), capacity("p", 1), state("a", "new"), capacity("p", 2))
        assert drained(outbox) == [state("a", "new"), state("b"), capacity("p", 2)]

    def test_a_newer_word_on_what_was_taken_comes_after_it(self) -> None:
        outbox = opened(state("a", "old"), state("b"))
        assert outbox.take() == state("a", "old")
        outbox.put(state("a", "new"), 0.0)
        outbox.sent(0.0)
        assert drained(outbox) == [state("b"), state("a", "new")]

    def test_acks_never_replace_each_other(self) -> None:
        assert drained(opened(ack("1"), ack("1"), ack("2"))) == [ack("1"), ack("1"), ack("2")]

    def test_what_is_withdrawn_before_it_was_sent_is_not_sent(self) -> None:
        outbox = opened(request("r"), instruction("i"), state("a"), request_off("r"), reclaim_off("i"))
        assert drained(outbox) == [request_off("r"), reclaim_off("i"), state("a")]

    def test_single_nodes_withdrawn_leave_the_instruction_standing(self) -> None:
        outbox = opened(instruction("i"), reclaim_off("i", "n"), reclaim_off("i", "m"), reclaim_off("i", "n"))
        assert drained(outbox) == [instruction("i"), reclaim_off("i", "n"), reclaim_off("i", "m")]

    def test_one_frame_is_in_hand_at_a_time(self) -> None:
        outbox = opened(ack("1"), ack("2"))
        outbox.take()
        with pytest.raises(ValueError, match="in hand"):
            outbox.take()

    def test_a_frame_without_payload_is_refused(self) -> None:
        with pytest.raises(ValueError, match="payload None"):
            opened(pb.ShardMessage())


class TestRoom:
    def test_beyond_the_bound_the_oldest_state_goes_and_is_counted(self) -> None:
        outbox = opened(state("a"), request("r"), capacity("p"), ack("1"), state("b"), room=3)
        assert (outbox.dropped, outbox.behind) == (1, True)
        assert drained(outbox) == [request("r"), capacity("p"), ack("1"), state("b")]

    def test_what_may_not_be_dropped_takes_no_room_and_is_never_dropped(self) -> None:
        kept = [f(str(i)) for i in range(20) for f in (request, instruction)]
        kept += [f(f"w{i}") for i in range(20) for f in (request_off, reclaim_off)]
        outbox = opened(*kept, *(state(str(i)) for i in range(50)), room=2)
        assert drained(outbox) == [*kept, state("48"), state("49")]
        assert outbox.dropped == 48

    def test_a_newer_word_needs_no_room(self) -> None:
        outbox = opened(*(state(m, str(i)) for i in range(9) for m in "ab"), room=2)
        assert not outbox.dropped
        assert drained(outbox) == [state("a", "8"), state("b", "8")]

    def test_what_ended_with_a_session_takes_no_room_in_the_next(self) -> None:
        outbox = opened(ack("1"), ack("2"), room=2)
        outbox.connected([], [], [], 0.0)
        outbox.put(ack("3"), 0.0)
        outbox.put(ack("4"), 0.0)
        assert drained(outbox) == [ack("3"), ack("4")]
        assert not outbox.dropped

    def test_a_peer_that_fell_behind_catches_up_with_all_states(self) -> None:
        outbox = opened(*map(state, "abcd"), room=2)
        drained(outbox)
        outbox.catch_up(map(state, "abcd"), 0.0)
        assert not outbox.behind
        assert drained(outbox) == [*map(state, "abcd")]
        assert outbox.dropped == 2

    def test_a_peer_for_whom_too_much_waits_that_may_not_be_dropped_is_better_cut(self) -> None:
        outbox = opened(*(reclaim_off("i", str(n)) for n in range(3)), *map(state, "abc"), room=3)
        assert not outbox.overfull
        outbox.put(reclaim_off("i", "more"), 0.0)
        assert outbox.overfull


class TestStall:
    def test_rule_21_a_peer_that_takes_no_frame_for_thirty_seconds_is_stalled(self) -> None:
        outbox = opened()
        assert not outbox.stalled(1000.0)
        outbox.put(ack("1"), 1000.0)
        outbox.put(ack("2"), 1029.0)
        assert not outbox.stalled(1029.9)
        assert outbox.stalled(1030.0)

    def test_rule_21_a_frame_in_hand_still_waits(self) -> None:
        outbox = opened(ack("1"))
        outbox.take()
        assert outbox.stalled(30.0)
        outbox.sent(30.0)
        assert not outbox.stalled(1000.0)

    def test_rule_21_a_slow_peer_that_takes_one_now_and_then_is_not_stalled(self) -> None:
        outbox = opened(*map(state, "abc"))
        for now in (29.0, 58.0):
            outbox.take()
            outbox.sent(now)
            assert not outbox.stalled(now + 29.0)
        assert outbox.stalled(88.0)

    def test_a_replay_waits_from_the_connect_on_and_nobody_waits_without_a_session(self) -> None:
        outbox = opened(request_off("r"))
        outbox.disconnected()
        assert not outbox.stalled(1000.0)
        outbox.connected([], [], [], 1000.0)
        assert not outbox.stalled(1029.0)
        assert outbox.stalled(1030.0)


class TestConnect:
    def test_a_connect_replays_what_lives_and_nothing_else(self) -> None:
        outbox = opened(request("answered"), instruction("over"), state("a", "old"), ack("1"), request_off("w"))
        outbox.disconnected()
        outbox.put(state("a", "lost"), 0.0)
        outbox.put(instruction("later"), 0.0)
        outbox.put(reclaim_off("v"), 0.0)
        assert outbox.take() is None
        living, unanswered = instruction("i", 90), request("r")
        outbox.connected([living.reclaim_instruction], [unanswered.bootstrap_request], [state("a", "new")], 5.0)
        assert drained(outbox) == [request_off("w"), reclaim_off("v"), living, unanswered, state("a", "new")]

    def test_rule_14_an_instruction_is_sent_again_under_its_id_with_the_grace_that_remains(self) -> None:
        outbox = opened(instruction("i", 600))
        drained(outbox)
        for grace in (400, 90):
            outbox.connected([instruction("i", grace).reclaim_instruction], [], [], 0.0)
            assert drained(outbox) == [instruction("i", grace)]

    def test_a_withdrawal_in_hand_when_the_session_breaks_is_sent_again_first(self) -> None:
        outbox = opened(request_off("r"), request_off("s"))
        outbox.take()
        outbox.connected([], [], [state("a")], 0.0)
        assert drained(outbox) == [request_off("r"), request_off("s"), state("a")]

    def test_an_instruction_in_hand_does_not_come_back_over_its_withdrawal(self) -> None:
        outbox = opened(instruction("i"))
        outbox.take()
        outbox.put(reclaim_off("i"), 0.0)
        outbox.connected([], [], [], 0.0)
        assert drained(outbox) == [reclaim_off("i")]

    def test_answers_about_cordoned_nodes_end_with_the_session_that_asked(self) -> None:
        outbox = opened(reclaim_off("i", "n"), reclaim_off("j"))
        outbox.connected([], [], [], 0.0)
        assert drained(outbox) == [reclaim_off("j")]

    def test_a_cluster_with_more_machines_than_room_is_replayed_whole(self) -> None:
        outbox = Outbox(room=2)
        machines = [str(i) for i in range(10)]
        outbox.connected([], [], map(state, machines), 0.0)
        for machine in machines:
            outbox.put(state(machine, "new"), 0.0)
        assert drained(outbox) == [state(machine, "new") for machine in machines]


# The outbox against a list: one entry a frame, searched from the front.


class Waiting(NamedTuple):
    key: str
    kind: str
    version: int


class Model:
    """What should wait, as a plain list, and the books of the shard that a replay is made from."""

    def __init__(self, room: int) -> None:
        self.room = self.least = room
        self.queue: list[Waiting] = []
        self.hand: Waiting | None = None
        self.connected = False
        self.living: dict[str, Waiting] = {}
        self.states: dict[str, Waiting] = {}

    def put(self, item: Waiting) -> None:
        match item.kind:
            case "state":
                self.states[item.key] = item
            case "off":
                self.living.pop(item.key, None)
            case _:
                self.living[item.key] = item
        if self.connected or item.kind == "off":
            self.enqueue(item)

    def enqueue(self, item: Waiting) -> None:
        places = [i for i, each in enumerate(self.queue) if each.key == item.key]
        if places:
            self.queue[places[0]] = item
        else:
            self.queue.append(item)
        states = [each for each in self.queue if each.kind == "state"]
        if len(states) > self.room:
            self.queue.remove(states[0])

    def take(self) -> Waiting | None:
        self.hand = self.queue.pop(0) if self.connected and self.queue else None
        return self.hand

    def disconnect(self) -> None:
        if self.hand is not None and all(each.key != self.hand.key for each in self.queue):
            self.queue.insert(0, self.hand)
        self.queue = [each for each in self.queue if each.kind == "off"]
        self.hand, self.connected = None, False

    def connect(self) -> None:
        self.disconnect()
        self.connected = True
        for kind in ("reclaim", "request"):
            for item in self.living.values():
                if item.kind == kind:
                    self.enqueue(item)
        self.room = max(self.least, 2 * len(self.states))
        for item in self.states.values():
            self.enqueue(item)

    def of(self, kind: str) -> Iterable[Waiting]:
        return (item for item in self.living.values() if item.kind == kind)


def frame_of(item: Waiting) -> pb.ShardMessage:
    if item.kind == "state":
        return state(item.key, str(item.version))
    if item.kind == "off":
        return request_off(item.key) if item.key.startswith("r") else reclaim_off(item.key)
    return request(item.key, str(item.version)) if item.kind == "request" else instruction(item.key, item.version)


steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(["n1", "n2", "n3", "n4", "n5"]), st.just("state")),
    st.tuples(st.just("put"), st.sampled_from(["r1", "r2"]), st.sampled_from(["request", "off"])),
    st.tuples(st.just("put"), st.sampled_from(["i1", "i2"]), st.sampled_from(["reclaim", "off"])),
    st.sampled_from([("take",), ("take",), ("sent",), ("connect",), ("disconnect",)]),
)


@settings(max_examples=400)
@given(st.lists(steps, max_size=60), st.integers(1, 4))
def test_whatever_happens_it_is_the_plain_list_and_loses_and_reorders_nothing(
    plan: list[tuple[str, ...]], room: int
) -> None:
    outbox, model, latest = Outbox(room), Model(room), dict[str, int]()
    arrived: dict[str, Waiting] = {}

    def arrives(item: Waiting) -> None:
        assert item.key not in arrived or arrived[item.key].version <= item.version, "an older word after a newer one"
        arrived[item.key] = item

    for step in [*plan, ("connect",)]:
        match step:
            case ("put", key, kind):
                latest[key] = latest.get(key, 0) + 1
                item = Waiting(key, kind, latest[key])
                model.put(item)
                outbox.put(frame_of(item), 0.0)
            case ("take",) if model.hand is None:
                taken = model.take()
                assert outbox.take() == (None if taken is None else frame_of(taken))
            case ("sent",) if model.hand is not None:
                arrives(model.hand)
                model.hand = None
                outbox.sent(0.0)
            case ("connect",):
                instructions = [frame_of(item).reclaim_instruction for item in model.of("reclaim")]
                requests = [frame_of(item).bootstrap_request for item in model.of("request")]
                states = [frame_of(item) for item in model.states.values()]
                model.connect()
                outbox.connected(instructions, requests, states, 0.0)
            case ("disconnect",):
                model.disconnect()
                outbox.disconnected()
        assert len(outbox) == len(model.queue)
    while (taken := model.take()) is not None:
        assert outbox.take() == frame_of(taken)
        outbox.sent(0.0)
        arrives(taken)
    assert outbox.take() is None
    # After a connect and time to read, the peer has the newest word on everything.
    assert {key: item.version for key, item in arrived.items()} == latest
