"""Sessions as state machines: lists of frames, what they mean for the shard, and how the stream ends."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.model.demand.need import Rollup
from bigfleet.shard.demand.rollup_reader import RollupReader
from bigfleet.shard.sessions.outbox import Outbox
from bigfleet.shard.sessions.outputs import (
    BlobAnswered,
    BlobFailed,
    Close,
    Code,
    IdentityRefused,
    NodeDrained,
    NodeProgress,
    NodeReady,
    Opened,
    Output,
    ReclaimAcked,
    RolledUp,
    RollupRefused,
    Send,
    SessionEnded,
    Standing,
    Strayed,
    Thing,
)
from bigfleet.shard.sessions.session import MAX_CORDONED, Session, SessionLookups, Sessions
from bigfleet.transport.identity import Identity, Role
from bigfleet.wire.errors import WireError
from bigfleet.wire.needs import rollup_from_wire
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

OURS = {Thing.REQUEST: "r", Thing.INSTRUCTION: "i", Thing.NODE: "n", Thing.MACHINE: "m"}
THEIRS = {Thing.REQUEST: "r2", Thing.INSTRUCTION: "i2", Thing.NODE: "n2", Thing.MACHINE: "m2"}


class Shelf(SessionLookups):
    """Cluster c has one thing of each kind, another cluster has one too, and instruction i wants node n."""

    def __init__(self) -> None:
        self.address = ""

    def elsewhere(self, cluster: str) -> str:
        return self.address

    def standing(self, cluster: str, thing: Thing, name: str) -> Standing:
        if name == OURS[thing]:
            return Standing.OURS if cluster == "c" else Standing.FOREIGN
        return Standing.FOREIGN if name == THEIRS[thing] else Standing.UNKNOWN

    def stands(self, instruction: str, node: str) -> bool:
        return (instruction, node) == ("i", "n")


def hello(cluster: str = "c", version: str = "v1alpha1", *features: str) -> pb.OperatorMessage:
    return pb.OperatorMessage(hello=pb.Hello(cluster_id=cluster, protocol_version=version, features=features))


def rollup(said_at: int = 1, cluster: str = "c", cores: str = "4") -> pb.OperatorMessage:
    row = capacity_pb2.CapacityNeed(aggregate_resources={"cpu": cores}, min_unit={"cpu": "1"})
    needs = capacity_pb2.ClusterCapacityNeeds(cluster_id=cluster, timestamp_unix_nanos=said_at, needs=[row])
    return pb.OperatorMessage(rollup=needs)


def blob(request: str, **fields: Any) -> pb.OperatorMessage:
    return pb.OperatorMessage(bootstrap_response=pb.BootstrapBlobResponse(request_id=request, **fields))


def reclaim_ack(instruction: str, started: int = 1) -> pb.OperatorMessage:
    return pb.OperatorMessage(reclaim_ack=pb.ReclaimAck(instruction_id=instruction, nodes_started=started))


def ready(machine: str, node: str = "n", state: Any = pb.NodeReadyReport.STATE_READY) -> pb.OperatorMessage:
    return pb.OperatorMessage(node_ready=pb.NodeReadyReport(machine_id=machine, node_name=node, state=state))


def drained(
    instruction: str, node: str = "n", outcome: Any = pb.NodeDrainedReport.OUTCOME_DRAINED, reason: str = ""
) -> pb.OperatorMessage:
    report = pb.NodeDrainedReport(instruction_id=instruction, node_name=node, outcome=outcome, reason=reason)
    return pb.OperatorMessage(node_drained=report)


def cordoned(*nodes: tuple[str, str]) -> pb.OperatorMessage:
    named = [pb.CordonedNode(instruction_id=instruction, node=node) for instruction, node in nodes]
    return pb.OperatorMessage(cordoned_nodes=pb.CordonedNodes(nodes=named))


EVERY_FRAME = [
    hello(),
    rollup(),
    blob("r", user_data=b"x"),
    reclaim_ack("i"),
    ready("m"),
    drained("i"),
    cordoned(("i", "n")),
]


def live(sessions: Sessions | None = None) -> Session:
    """A session of cluster c that has said Hello."""
    session = (Sessions(Shelf()) if sessions is None else sessions).stream(None, 0.0)
    session.received(hello())
    return session


def closed(outputs: list[Output]) -> Close:
    """The Close among the outputs; the session that ends thereby says so once."""
    (close,) = [output for output in outputs if isinstance(output, Close)]
    assert isinstance(close, Close)
    return close


class TestHello:
    def test_a_session_opens_with_hello_and_the_features_it_names(self) -> None:
        sessions = Sessions(Shelf())
        session = sessions.stream(None, 0.0)
        assert session.received(hello("c", "v1alpha1", "node_ready", "x" * 1000)) == [
            Opened("c", frozenset({"node_ready"}), replaced=False)
        ]
        assert sessions.of("c") is session
        assert len(sessions) == 1

    @pytest.mark.parametrize("frame", [*EVERY_FRAME[1:], pb.OperatorMessage()])
    def test_any_other_first_frame_ends_the_stream(self, frame: pb.OperatorMessage) -> None:
        sessions = Sessions(Shelf())
        session = sessions.stream(None, 0.0)
        (close,) = session.received(frame)
        assert isinstance(close, Close)
        assert (close.stream, close.code) == (session.number, Code.INVALID_ARGUMENT)
        assert session.received(hello()) == []
        assert len(sessions) == 0

    @pytest.mark.parametrize("frame", [hello(""), hello("c\0"), hello("c" * 254), hello("c", "v1"), hello("c", "")])
    def test_a_hello_without_a_cluster_or_of_another_version_ends_the_stream(self, frame: pb.OperatorMessage) -> None:
        (close,) = Sessions(Shelf()).stream(None, 0.0).received(frame)
        assert isinstance(close, Close)
        assert close.code is Code.INVALID_ARGUMENT

    def test_hello_is_said_once(self) -> None:
        outputs = live().received(hello())
        assert closed(outputs).code is Code.INVALID_ARGUMENT
        assert outputs[-1] == SessionEnded("c")

    @pytest.mark.parametrize("peer", [Identity(Role.CLUSTER, "d"), Identity(Role.SHARD, "c"), Identity(Role.ADMIN)])
    def test_rule_30_kind_and_id_of_the_certificate_must_both_match(self, peer: Identity) -> None:
        sessions = Sessions(Shelf())
        refused, close = sessions.stream(peer, 0.0).received(hello())
        assert isinstance(refused, IdentityRefused)
        assert isinstance(close, Close)
        assert close.code is Code.PERMISSION_DENIED
        assert len(sessions) == 0

    def test_the_right_certificate_opens(self) -> None:
        session = Sessions(Shelf()).stream(Identity(Role.CLUSTER, "c"), 0.0)
        assert session.received(hello()) == [Opened("c", frozenset(), replaced=False)]

    def test_a_cluster_of_another_shard_is_told_where_to_go(self) -> None:
        shelf = Shelf()
        shelf.address = "shard-2:7780"
        (close,) = Sessions(shelf).stream(None, 0.0).received(hello())
        assert isinstance(close, Close)
        assert close.code is Code.FAILED_PRECONDITION
        assert close.reason.endswith(" shard-2:7780")

    def test_a_stream_that_says_nothing_is_ended(self) -> None:
        session = Sessions(Shelf()).stream(None, 100.0)
        assert session.tick(None, 129.9) == []
        assert closed(session.tick(None, 130.0)).code is Code.INVALID_ARGUMENT


class TestRule21:
    def test_rule_21_a_newer_session_replaces_the_older_whose_frames_are_dropped(self) -> None:
        sessions = Sessions(Shelf())
        older = live(sessions)
        newer = sessions.stream(None, 0.0)
        assert newer.received(hello()) == [
            Close(older.number, Code.ABORTED, "replaced"),
            Opened("c", frozenset(), replaced=True),
        ]
        for frame in EVERY_FRAME:
            assert older.received(frame) == []
        assert older.read(b"\xff") == []
        assert older.ended() == []
        assert older.tick(None, 1000.0) == []
        assert sessions.of("c") is newer
        assert newer.received(reclaim_ack("i")) == [ReclaimAcked("c", "i")]
        assert newer.ended() == [SessionEnded("c")]
        assert newer.ended() == []
        assert len(sessions) == 0

    def test_rule_21_a_stream_that_is_refused_replaces_nobody(self) -> None:
        shelf = Shelf()
        sessions = Sessions(shelf)
        session = live(sessions)
        sessions.stream(Identity(Role.CLUSTER, "d"), 0.0).received(hello())
        sessions.stream(None, 0.0).received(hello("c", "v2"))
        shelf.address = "elsewhere:1"
        sessions.stream(None, 0.0).received(hello())
        assert sessions.of("c") is session
        assert session.received(reclaim_ack("i")) == [ReclaimAcked("c", "i")]

    def test_sessions_of_different_clusters_do_not_meet(self) -> None:
        sessions = Sessions(Shelf())
        live(sessions)
        assert sessions.stream(None, 0.0).received(hello("d")) == [Opened("d", frozenset(), replaced=False)]
        assert len(sessions) == 2

    def test_rule_21_a_peer_that_takes_no_frame_for_thirty_seconds_is_cut(self) -> None:
        session, outbox = live(), Outbox()
        outbox.connected([], [], [pb.ShardMessage(ack=pb.Acknowledgement())], 0.0)
        assert session.tick(outbox, 29.0) == []
        outputs = session.tick(outbox, 30.0)
        assert closed(outputs).code is Code.UNAVAILABLE
        assert outputs[-1] == SessionEnded("c")
        assert session.tick(outbox, 31.0) == []

    def test_a_peer_for_whom_too_much_waits_is_cut(self) -> None:
        session, outbox = live(), Outbox(room=0)
        outbox.connected([pb.ReclaimInstruction(instruction_id="i")], [], [], 0.0)
        assert closed(session.tick(outbox, 0.0)).code is Code.RESOURCE_EXHAUSTED


class TestRule30:
    @pytest.mark.parametrize(
        "frame",
        [
            rollup(cluster="d"),
            blob("r2", user_data=b"x"),
            reclaim_ack("i2"),
            ready("m2"),
            ready("m", "n2"),
            ready("gone", "n2"),
            drained("i2"),
            drained("i", "n2"),
            drained("gone", "n2"),
            cordoned(("i", "n"), ("i2", "n")),
        ],
    )
    def test_rule_30_what_is_another_clusters_ends_the_stream(self, frame: pb.OperatorMessage) -> None:
        session = live()
        outputs = session.received(frame)
        assert outputs[1:] == [SessionEnded("c")]
        assert closed(outputs).code is Code.PERMISSION_DENIED
        assert "is not of cluster 'c'" in closed(outputs).reason
        assert session.received(reclaim_ack("i")) == []

    @pytest.mark.parametrize(
        ("frame", "stray"),
        [
            (blob("gone", user_data=b"x"), Strayed("c", Thing.REQUEST, "gone")),
            (reclaim_ack("gone"), Strayed("c", Thing.INSTRUCTION, "gone")),
            (ready("gone"), Strayed("c", Thing.MACHINE, "gone")),
            (ready(""), Strayed("c", Thing.MACHINE, "")),
            (drained("gone"), Strayed("c", Thing.INSTRUCTION, "gone")),
            (drained("i", "left"), Strayed("c", Thing.NODE, "left")),
        ],
    )
    def test_a_late_word_on_what_is_over_is_dropped_and_the_stream_lives(
        self, frame: pb.OperatorMessage, stray: Strayed
    ) -> None:
        session = live()
        assert session.received(frame) == [stray]
        assert session.received(reclaim_ack("i")) == [ReclaimAcked("c", "i")]


class TestFrames:
    def test_an_answer_to_a_bootstrap_request(self) -> None:
        (answer,) = live().received(blob("r", user_data=b"join-secret", ttl_seconds=3600))
        assert answer == BlobAnswered("c", "r", b"join-secret", 3600)
        assert "join-secret" not in f"{answer!r} {answer}"

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"error": "no template"}, "no template"),
            ({"error": "no template", "user_data": b"x"}, "no template"),
            ({}, "neither user data nor an error came"),
            ({"user_data": b"x", "ttl_seconds": -1}, "ttl_seconds is -1"),
            ({"error": "x" * 5000}, "x" * 1000),
        ],
    )
    def test_an_answer_without_user_data_that_is_good_is_a_failure(self, fields: Any, error: str) -> None:
        assert live().received(blob("r", **fields)) == [BlobFailed("c", "r", error)]

    def test_an_error_may_be_of_one_machine_alone(self) -> None:
        said = blob("r", error="its old Node is there", about_machine=True)
        assert live().received(said) == [BlobFailed("c", "r", "its old Node is there", about_machine=True)]

    def test_acks_and_reports(self) -> None:
        session = live()
        assert session.received(reclaim_ack("i", -3)) == [ReclaimAcked("c", "i")]
        assert session.received(ready("m", "n", pb.NodeReadyReport.STATE_ABSENT)) == [
            NodeReady("c", "m", NodeProgress.ABSENT)
        ]
        assert session.received(drained("i")) == [NodeDrained("c", "i", empty=True, reason="")]
        failed = drained("i", outcome=pb.NodeDrainedReport.OUTCOME_FAILED, reason="a budget")
        assert session.received(failed) == [NodeDrained("c", "i", empty=False, reason="a budget")]

    @pytest.mark.parametrize("number", [0, 99])
    def test_reports_that_say_nothing_are_skipped(self, number: int) -> None:
        session = live()
        assert session.received(ready("m", state=number)) == []
        assert session.received(drained("i", outcome=number)) == []

    def test_a_payload_of_the_future_is_skipped(self) -> None:
        session = live()
        assert session.read(bytes([0xBA, 0x3E, 0x01, 0x00])) == []
        assert session.read(b"") == []
        assert session.read(reclaim_ack("i").SerializeToString()) == [ReclaimAcked("c", "i")]

    @pytest.mark.parametrize("garbage", [b"\xff\xff\xff", b"\x0a\x05ab", b"\x0a\x03\x0a\x01\xff"])
    def test_garbage_ends_the_stream_with_a_reason(self, garbage: bytes) -> None:
        outputs = live().read(garbage)
        assert outputs[1:] == [SessionEnded("c")]
        assert closed(outputs).code is Code.INVALID_ARGUMENT
        assert closed(outputs).reason == f"{len(garbage)} bytes are no OperatorMessage"

    @settings(max_examples=200)
    @given(st.binary(max_size=60), st.booleans())
    def test_no_bytes_do_more_than_end_the_stream(self, data: bytes, greeted: bool) -> None:
        session = live() if greeted else Sessions(Shelf()).stream(None, 0.0)
        session.read(data)
        assert isinstance(session.ended(), list)


class TestRule22:
    def test_rule_22_cordons_whose_instruction_is_over_or_unknown_are_withdrawn(self) -> None:
        named = cordoned(("i", "n"), ("i", "left"), ("gone", "a"), ("gone", "b"), ("gone", ""))
        left, gone = live().received(named)
        assert isinstance(left, Send)
        assert isinstance(gone, Send)
        assert left.cluster == gone.cluster == "c"
        for send, instruction, nodes in ((left, "i", ["left"]), (gone, "gone", ["a", "b"])):
            withdrawn = send.frame.reclaim_withdrawn
            assert (withdrawn.instruction_id, list(withdrawn.nodes)) == (instruction, nodes)
            assert withdrawn.reason

    def test_rule_22_a_node_that_went_to_another_cluster_does_not_lock_its_old_operator_out(self) -> None:
        (send,) = live().received(cordoned(("gone", "n2")))
        assert isinstance(send, Send)
        assert list(send.frame.reclaim_withdrawn.nodes) == ["n2"]

    def test_more_cordons_than_a_cluster_has_nodes_end_the_stream(self) -> None:
        outputs = live().received(cordoned(*[("gone", "n")] * (MAX_CORDONED + 1)))
        assert closed(outputs).code is Code.INVALID_ARGUMENT


class TestRollups:
    def test_a_roll_up_is_handed_on(self) -> None:
        assert live().received(rollup(7)) == [RolledUp("c", rollup_from_wire(rollup(7).rollup))]

    def test_a_malformed_roll_up_is_refused_and_the_stream_lives_on(self) -> None:
        session = live()
        for _ in range(2):
            (refused,) = session.received(rollup(cores="many"))
            assert isinstance(refused, RollupRefused)
            assert refused.reason.startswith("needs[0].aggregate_resources['cpu']: ")
        (refused,) = session.received(rollup(cluster=""))
        assert refused == RollupRefused("c", "cluster_id: is empty")
        assert session.received(rollup(8)) == [RolledUp("c", rollup_from_wire(rollup(8).rollup))]


def message(*rows: dict[str, Any], said_at: int = 1, **fields: Any) -> capacity_pb2.ClusterCapacityNeeds:
    needs = [capacity_pb2.CapacityNeed(**row) for row in rows]
    return capacity_pb2.ClusterCapacityNeeds(cluster_id="c", timestamp_unix_nanos=said_at, needs=needs, **fields)


def asks(cores: int, **fields: Any) -> dict[str, Any]:
    return {"aggregate_resources": {"cpu": str(cores)}, "min_unit": {"cpu": "1"}, **fields}


class TestReader:
    def test_rows_that_stay_are_the_very_same_objects(self) -> None:
        reader = RollupReader()
        first = reader.read(message(asks(1), asks(2, priority=5)))
        same = reader.read(message(asks(1), asks(2, priority=5), said_at=2))
        assert same.needs is first.needs
        assert same.timestamp_unix_nanos == 2
        other = reader.read(message(asks(2, priority=5), asks(3), empty_nodes=["n"], said_at=3))
        assert other.needs[0] is first.needs[1]
        assert other == rollup_from_wire(message(asks(2, priority=5), asks(3), empty_nodes=["n"], said_at=3))

    @pytest.mark.parametrize(
        ("rows", "error"),
        [
            ([asks(1), {"aggregate_resources": {"x": str(2**50)}, "min_unit": {"x": "1"}}], r"needs\[1\]: asks for "),
            ([asks(1, group="a\0b")], r"needs\[0\]: has a NUL"),
            ([{"aggregate_resources": {"a\0": "1"}, "min_unit": {"a\0": "1"}}], r"needs\[0\]: has a NUL"),
            ([{"aggregate_resources": {"x": str(2**62)}, "min_unit": {"x": str(2**44)}}] * 2, "cannot be summed"),
            ([asks(1, spread=[{"topology_key": ""}])], r"needs\[0\]\.spread\[0\]\."),
        ],
    )
    def test_what_the_engine_would_refuse_is_refused_before_it_is_acknowledged(self, rows: Any, error: str) -> None:
        reader = RollupReader()
        good = reader.read(message(asks(1)))
        with pytest.raises(WireError, match=error):
            reader.read(message(*rows))
        assert reader.read(message(asks(1))) == good

    def test_a_row_that_was_fine_alone_is_looked_at_again_where_it_comes_twice(self) -> None:
        reader, most = RollupReader(), {"aggregate_resources": {"x": str(2**44)}, "min_unit": {"x": "1"}}
        reader.read(message(most))
        with pytest.raises(WireError, match=r"needs\[1\]: asks for 35184372088832 units"):
            reader.read(message(most, most))


_rows = st.fixed_dictionaries(
    {
        "aggregate_resources": st.dictionaries(
            st.sampled_from(["x", "cpu", "a\0"]), st.sampled_from(["1", "3", str(2**44), str(2**45), str(2**62)])
        ),
        "min_unit": st.dictionaries(st.sampled_from(["x", "cpu", "a\0"]), st.sampled_from(["1", "2", str(2**44)])),
        "group": st.sampled_from(["", "g", "g\0"]),
        "priority": st.integers(0, 1),
    }
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(_rows, max_size=4), max_size=5))
def test_what_the_reader_takes_is_what_was_sent_and_the_engine_takes_it_too(plan: list[Any]) -> None:
    reader, table = RollupReader(), NeedsTable(Inventory())
    for rows in plan:
        try:
            read: Rollup = reader.read(message(*rows))
        except WireError:
            continue
        assert read == rollup_from_wire(message(*rows))
        table.replace("c", read.needs)
