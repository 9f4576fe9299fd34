"""The mind of a simulated cluster as a value: frames in, frames out."""

from typing import TYPE_CHECKING, Any

import pytest

from bigfleet.model.demand.need import Daemon
from bigfleet.model.machine import MachineState
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.events import EventKind
from bigfleet.sim.clusters.habits import BlobAnswers, Habits
from bigfleet.sim.clusters.world import Cordon, Pods, World
from bigfleet.wire.needs import rollup_from_wire
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

if TYPE_CHECKING:
    pass
from tests.sim.clusters.frames import (
    Kind,
    Mind,
    S,
    add_node,
    drained,
    kinds,
    readiness,
    reclaim,
    request,
    state,
    withdrawal,
    workload,
)


class TestRollups:
    def test_a_session_begins_with_hello_and_a_rollup(self) -> None:
        world = World([Daemon((), (("cpu", 100),))])
        world.deploy(workload(max_per_machine=2), 3)
        hello, rollup = Cluster("c", world).opened(0.0)
        assert (hello.hello.cluster_id, hello.hello.protocol_version) == ("c", "v1alpha1")
        assert list(hello.hello.features) == ["node_ready", "node_drained"]
        read = rollup_from_wire(rollup.rollup)
        assert (read.cluster_id, read.needs, read.daemons) == ("c", world.needs(), world.daemons)

    def test_rollups_come_at_intervals_and_at_once_when_the_demand_changes(self) -> None:
        mind = Mind(rollup_seconds=10.0)
        assert mind.due() == 10.0
        assert mind.tick(9.9) == []
        assert kinds(mind.tick(10.0)) == ["rollup"]
        mind.world.deploy(workload(), 3)
        due = mind.due()
        assert due is not None
        assert due <= 10.0
        (frame,) = mind.tick(11.0)
        assert rollup_from_wire(frame.rollup).needs == mind.world.needs()
        assert mind.due() == 21.0

    def test_stamps_grow_whatever_the_clock_does(self) -> None:
        mind = Mind()
        first, second = (mind.tick(now)[0].rollup.timestamp_unix_nanos for now in (10.0, 20.0))
        assert 7 < first < second

    def test_an_acknowledgement_is_for_the_demand_that_was_rolled_up(self) -> None:
        mind = Mind()
        mind.world.deploy(workload(), 3)
        said = mind.tick(1.0)[0].rollup.timestamp_unix_nanos
        before = mind.world.version
        mind.world.scale("web", 5)
        mind.hear(pb.ShardMessage(ack=pb.Acknowledgement(echo=str(said), shard_epoch=4)))
        assert (mind.acknowledged, mind.epoch) == (before, 4)
        mind.hear(pb.ShardMessage(ack=pb.Acknowledgement(echo=str(said))))
        mind.hear(pb.ShardMessage(ack=pb.Acknowledgement(rejection_reason="too little")))
        assert mind.refusal == "too little"
        counts = mind.log.counts
        assert (counts[EventKind.ACKNOWLEDGED], counts[EventKind.STRAY], counts[EventKind.REFUSED]) == (1, 1, 1)

    def test_a_strangers_operator_uses_no_field_of_ours(self) -> None:
        world = World([Daemon((), (("cpu", 100),))])
        add_node(world, "held")
        world.cordon("held", Cordon("i", 1e9, 0))
        world.deploy(workload(max_per_machine=2, requested=True), 3)
        world.deploy(workload("bare", requested=False), 3)
        cluster = Cluster("c", world, Habits(features=()))
        hello, rollup = cluster.opened(0.0)
        assert not hello.hello.features
        fields = {
            field.number for message in (rollup.rollup, *rollup.rollup.needs) for field, _ in message.ListFields()
        }
        assert max(fields) < 100
        assert cluster.received(state("m", S.CONFIGURED), 0.0) == cluster.tick(5.0) == []
        assert world.nodes["m"].ready
        assert kinds(cluster.received(reclaim("j", "m"), 6.0)) == ["reclaim_ack"]
        assert cluster.tick(600.0)[1:] == []
        assert cluster.received(withdrawal("j"), 600.0) == []
        assert world.nodes["m"].cordon is not None


class TestNodes:
    def test_a_node_registers_and_becomes_ready_some_time_after_its_machine_is_configured(self) -> None:
        mind = Mind(register_seconds=2.0, ready_seconds=3.0)
        assert mind.hear(state("m", S.CREATING)) == []
        assert readiness(mind.hear(state("m", S.CONFIGURING))) == [("m", "ABSENT")]
        assert mind.hear(state("m", S.CONFIGURED)) == mind.hear(state("m", S.CONFIGURED), 1.0) == []
        assert mind.due() == 2.0
        assert readiness(mind.tick(2.0)) == [("m", "NOT_READY")]
        assert readiness(mind.tick(9.0)) == [("m", "READY")]
        assert (mind.log.counts[EventKind.NODE_JOINED], mind.log.counts[EventKind.NODE_READY]) == (1, 1)
        assert mind.states() == {S.CONFIGURED: 1}
        assert mind.world.nodes["m"].provider_id == "sim://m"
        assert mind.hear(state("m", S.CONFIGURED)) == []

    @pytest.mark.parametrize(
        ("habits", "said"), [({"register_seconds": None}, "ABSENT"), ({"ready_seconds": None}, "NOT_READY")]
    )
    def test_what_never_comes_up_is_said_on_every_connect(self, habits: dict[str, Any], said: str) -> None:
        mind = Mind(**habits)
        mind.hear(state("m", S.CONFIGURED))
        assert readiness(mind.tick(1e6)) == []
        mind.closed("", 1e6)
        mind.opened(1e6)
        assert readiness(mind.hear(state("m", S.CONFIGURED))) == [("m", said)]

    def test_rule_16_what_an_earlier_session_heard_is_said_again_once_the_shard_names_the_machine(self) -> None:
        mind = Mind()
        mind.bind("m", "moved away")
        mind.closed("", 6.0)
        assert kinds(mind.opened(7.0)) == ["hello", "rollup"]
        assert readiness(mind.hear(state("m", S.CONFIGURED))) == [("m", "READY")]

    def test_nodes_come_up_while_nobody_is_connected(self) -> None:
        mind = Mind()
        mind.hear(state("m", S.CONFIGURED))
        mind.closed("", 1.0)
        assert mind.tick(4.0) == []
        mind.opened(4.5)
        assert readiness(mind.tick(5.0)) == []
        assert mind.world.nodes["m"].ready

    @pytest.mark.parametrize("end", [S.IDLE, S.DELETING, S.SPECULATIVE])
    def test_a_node_goes_with_its_machine_and_its_pods_wait(self, end: MachineState) -> None:
        mind = Mind()
        mind.world.deploy(workload(), 2)
        mind.bind("m")
        mind.hear(state("m", S.DRAINING))
        mind.world.scale("web", 3)
        assert mind.world.pods() == Pods(1, 2)
        mind.hear(state("m", end))
        assert mind.world.pods() == Pods(3, 0)
        assert not mind.machines

    def test_a_machine_on_its_way_is_known_before_it_is_bound(self) -> None:
        mind = Mind()
        for machine, at in (("a", S.SPECULATIVE), ("b", S.CREATING), ("c", S.IDLE)):
            mind.hear(state(machine, at))
        assert mind.states() == {S.SPECULATIVE: 1, S.CREATING: 1, S.IDLE: 1}
        mind.hear(state("b", S.FAILED, last_error="out of stock"))
        assert mind.states() == {S.SPECULATIVE: 1, S.IDLE: 1}
        assert mind.log.recent[-1].detail == "out of stock"

    @pytest.mark.parametrize("register_seconds", [0.0, 2.0])
    def test_a_machine_that_leaves_before_its_node_came_up_leaves_nothing(self, register_seconds: float) -> None:
        mind = Mind(register_seconds=register_seconds)
        mind.hear(state("m", S.CONFIGURED))
        mind.hear(state("m", S.DRAINING))
        mind.hear(state("m", S.IDLE))
        assert readiness(mind.tick(9.0)) == []
        assert not mind.world.nodes

    def test_what_the_shard_does_not_name_in_a_minute_went_while_nobody_was_looking(self) -> None:
        mind = Mind()
        mind.bind("stays", "goes")
        add_node(mind.world, "from an earlier life")
        mind.closed("", 6.0)
        mind.opened(100.0)
        mind.hear(state("stays", S.CONFIGURED), 101.0)
        mind.tick(159.9)
        assert len(mind.world.nodes) == 3
        mind.tick(160.0)
        assert list(mind.world.nodes) == list(mind.machines) == ["stays"]

    def test_what_is_not_ours_is_counted_and_dropped(self) -> None:
        mind = Mind()
        odd = [state("m", S.IDLE, cluster="d"), request("r", cluster="d"), state("m", S.IDLE)]
        odd[2].node_state_update.state = 99  # type: ignore[assignment]  # a number of the future
        assert [mind.hear(frame) for frame in odd] == [[], [], []]
        assert mind.hear(pb.ShardMessage()) == []
        assert mind.log.counts[EventKind.STRAY] == 3
        assert not mind.machines


class TestBootstrap:
    def test_a_request_is_answered_at_once_and_again_when_it_is_repeated(self) -> None:
        mind = Mind()
        (first,), (second,) = mind.hear(request("r")), mind.hear(request("r"))
        assert first == second
        answer = first.bootstrap_response
        assert (answer.request_id, answer.ttl_seconds, answer.error) == ("r", 3600, "")
        assert answer.user_data

    def test_an_error_a_second_answer_and_none(self) -> None:
        mind = Mind(blob=BlobAnswers(error="no template", answers=2))
        answers = [frame.bootstrap_response for frame in mind.hear(request("r"))]
        assert [(answer.error, answer.user_data) for answer in answers] == [("no template", b"")] * 2
        mind.habits = Habits(blob=BlobAnswers(answers=0))
        assert mind.hear(request("r")) == []

    def test_a_late_answer_comes_once_however_often_it_was_asked_for(self) -> None:
        mind = Mind(blob=BlobAnswers(delay_seconds=3.0))
        assert mind.hear(request("r"), 1.0) == mind.hear(request("r"), 2.0) == []
        assert kinds(mind.tick(4.0)) == ["bootstrap_response"]
        assert mind.tick(5.0) == []

    def test_rule_15_a_withdrawn_request_is_not_answered(self) -> None:
        mind = Mind(blob=BlobAnswers(delay_seconds=3.0))
        mind.hear(request("r"))
        mind.hear(pb.ShardMessage(bootstrap_withdrawn=pb.BootstrapWithdrawn(request_id="r")))
        assert mind.tick(3.0) == []

    def test_rule_22_the_node_left_from_an_earlier_binding_goes_first(self) -> None:
        mind = Mind()
        mind.bind("m")
        assert kinds(mind.hear(request("r", "m"))) == ["bootstrap_response"]
        assert not mind.world.nodes
        assert readiness(mind.hear(state("m", S.CONFIGURED))) == [("m", "ABSENT"), ("m", "NOT_READY")]


class TestReclaim:
    def loaded(self, leave_seconds: float | None = 5.0, **habits: Any) -> Mind:
        """A node with two pods, and no room for them elsewhere."""
        mind = Mind(**habits)
        mind.world.deploy(workload(leave_seconds=leave_seconds), 2)
        mind.bind("m")
        return mind

    def test_cordon_ack_evict_and_report(self) -> None:
        mind = self.loaded()
        (ack,) = mind.hear(reclaim("i", "m"), 10.0)
        assert (ack.reclaim_ack.instruction_id, ack.reclaim_ack.nodes_started) == ("i", 1)
        assert mind.world.pods() == Pods(0, 2)
        assert drained(mind.tick(14.9)) == []
        assert drained(mind.tick(15.0)) == [("m", "DRAINED")]
        assert mind.world.pods() == Pods(2, 0)
        assert drained(mind.tick(70.0)) == []

    def test_an_empty_node_and_one_that_is_not_there_are_drained_at_once(self) -> None:
        mind = Mind()
        mind.bind("m")
        frames = mind.hear(reclaim("i", "m", "nowhere"), 10.0)
        assert frames[0].reclaim_ack.nodes_started == 1
        assert drained(frames) == [("m", "DRAINED"), ("nowhere", "DRAINED")]

    def test_said_again_it_is_acknowledged_again_and_only_its_deadline_moves(self) -> None:
        mind = self.loaded(leave_seconds=None)
        mind.hear(reclaim("i", "m", grace=60), 10.0)
        assert kinds(mind.hear(reclaim("i", "m", grace=50), 30.0)) == ["reclaim_ack"]
        assert drained(mind.tick(70.0)) == []
        assert drained(mind.tick(80.0)) == [("m", "FAILED")]
        assert mind.log.counts[EventKind.CORDONED] == 1

    @pytest.mark.parametrize(
        ("kind", "stays"), [(Kind.KIND_RECLAIM, False), (Kind.KIND_PREEMPT, True), (Kind.KIND_UNSPECIFIED, True)]
    )
    def test_rule_14_at_the_deadline_it_stops_and_what_goes_to_nobody_is_uncordoned(
        self, kind: Any, stays: bool
    ) -> None:
        mind = self.loaded(leave_seconds=61.0)
        mind.hear(reclaim("i", "m", kind=kind), 10.0)
        (report,) = [frame for frame in mind.tick(70.0) if frame.HasField("node_drained")]
        assert drained([report]) == [("m", "FAILED")]
        assert "2 pods" in report.node_drained.reason
        assert (mind.world.nodes["m"].cordon is not None) == stays
        mind.tick(71.0)
        assert mind.world.pods() == Pods(0, 2)

    def test_a_withdrawn_reclaim_is_uncordoned_and_evicts_nobody(self) -> None:
        mind = self.loaded()
        mind.hear(reclaim("i", "m"), 10.0)
        mind.hear(withdrawal("another"), 11.0)
        mind.hear(withdrawal("i", "elsewhere"), 11.0)
        assert [node.cordon is not None for node in mind.world.nodes.values()] == [True]
        mind.hear(withdrawal("i"), 11.0)
        assert [node.cordon is not None for node in mind.world.nodes.values()] == [False]
        assert drained(mind.tick(600.0)) == []
        assert mind.world.pods() == Pods(0, 2)

    def test_rule_22_cordons_are_named_on_connect_and_reported_on_once_the_shard_names_them(self) -> None:
        mind = self.loaded()
        mind.hear(reclaim("i", "m", grace=100), 10.0)
        mind.closed("", 11.0)
        _, cordoned, _ = mind.opened(12.0)
        assert [(each.instruction_id, each.node) for each in cordoned.cordoned_nodes.nodes] == [("i", "m")]
        assert drained(mind.tick(15.0)) == []
        assert mind.world.pods() == Pods(2, 0)
        assert drained(mind.hear(reclaim("i", "m", grace=95), 16.0)) == [("m", "DRAINED")]

    def test_rule_22_another_life_of_the_operator_goes_on_with_the_drain(self) -> None:
        mind = self.loaded()
        mind.hear(reclaim("i", "m", grace=100), 10.0)
        heir = Cluster("c", mind.world)
        assert kinds(heir.opened(20.0)) == ["hello", "cordoned_nodes", "rollup"]
        heir.received(reclaim("i", "m", grace=90), 20.0)
        assert drained(heir.tick(25.0)) == [("m", "DRAINED")]

    def test_one_deadline_is_one_report_however_often_the_stream_was_lost(self) -> None:
        mind = self.loaded(leave_seconds=None)
        mind.hear(reclaim("i", "m", grace=60, kind=Kind.KIND_PREEMPT), 10.0)
        mind.closed("", 11.0)
        mind.opened(20.0)
        mind.hear(reclaim("i", "m", grace=50, kind=Kind.KIND_PREEMPT), 20.0)
        assert drained(mind.tick(70.0)) == [("m", "FAILED")]

    def test_without_a_session_pods_leave_all_the_same(self) -> None:
        mind = self.loaded()
        mind.hear(reclaim("i", "m"), 10.0)
        mind.closed("", 11.0)
        assert mind.tick(15.0) == []
        assert mind.world.pods() == Pods(2, 0)
