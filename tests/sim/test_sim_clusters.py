"""Simulated clusters: their worlds and minds as values, and whole operators on real sessions.

The far end of those sessions is the shard's pure `Sessions` machine behind a small gRPC server. It decides nothing:
the tests say which machines there are and what is asked of the operator.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bench import shard_load
from bench.shard_load import Load, Options
from bench.shard_streams import Histogram, LoadedCluster, Rows, Tally, rollup_frame
from bigfleet.model.demand.need import Daemon, UnrequestedNode
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Profile, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.labels import RACK, ZONE
from bigfleet.model.machine import MachineState
from bigfleet.shard.sessions import session as says
from bigfleet.shard.sessions.outbox import Outbox
from bigfleet.shard.sessions.session import Sessions, Standing, Thing
from bigfleet.sim.clusters import rogues
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.events import What
from bigfleet.sim.clusters.habits import Blob, Habits
from bigfleet.sim.clusters.operator import SimOperator, Waits
from bigfleet.sim.clusters.world import Cordon, Pods, Workload, World
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.grpc_options import SERVER_OPTIONS
from bigfleet.transport.identity import peer_identity
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.wire.needs import rollup_from_wire
from bigfleet.wire.session_stream import SESSION, Ending
from bigfleet.wire.v1alpha1 import capacity_pb2, provider_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

if TYPE_CHECKING:
    from tests.conftest import PKI

S = MachineState
GIB = 2**20
UNIT = (("cpu", 1000), ("memory", GIB))
NODE = (("cpu", 4000), ("memory", 8 * GIB), ("pods", 10))
Kind = pb.ReclaimInstruction
Frames = list[pb.OperatorMessage]


def workload(name: str = "web", **fields: Any) -> Workload:
    profile = {field: fields.pop(field) for field in list(fields) if field in Profile.__struct_fields__}
    return Workload(name=name, unit=fields.pop("unit", UNIT), profile=Profile(**profile), **fields)


def add_node(world: World, name: str, labels: dict[str, str] | None = None, *, ready: bool = True) -> None:
    world.register(name, f"sim://{name}", labels or {}, NODE)
    if ready:
        world.become_ready(name)


def world_of(*nodes: str) -> World:
    world = World()
    for name in nodes:
        add_node(world, name)
    return world


def placed(world: World) -> dict[str, dict[str, int]]:
    return {node.name: dict(node.pods) for node in world.nodes.values()}


class TestWorld:
    def test_pods_wait_until_a_node_is_ready_and_fill_the_first_first(self) -> None:
        world = World()
        world.deploy(workload(), 6)
        assert world.pods() == Pods(pending=6, running=0)
        add_node(world, "a", ready=False)
        assert world.pods() == Pods(6, 0)
        world.become_ready("a")
        add_node(world, "b")
        assert placed(world) == {"a": {"web": 4}, "b": {"web": 2}}
        assert world.pods("web") == Pods(0, 6)

    def test_scaling_down_takes_those_that_wait_first_and_then_the_last_placed(self) -> None:
        world = world_of("a", "b")
        world.deploy(workload(), 12)
        world.scale("web", 9)
        assert world.pods() == Pods(1, 8)
        world.scale("web", 5)
        assert placed(world) == {"a": {"web": 4}, "b": {"web": 1}}
        world.scale("web", 3)
        assert world.empty_nodes() == ("b",)

    def test_a_removed_nodes_pods_find_another_place_or_wait(self) -> None:
        world = world_of("a", "b")
        world.deploy(workload(), 6)
        world.remove("a")
        assert placed(world) == {"b": {"web": 4}}
        assert world.pods() == Pods(2, 4)
        world.remove("never there")

    def test_nothing_is_put_on_nodes_that_are_cordoned_or_leaving(self) -> None:
        world = world_of("a", "b")
        world.cordon("a", Cordon("i", 0.0, 0))
        world.leave("b", leaving=True)
        world.deploy(workload(), 1)
        assert world.pods() == Pods(1, 0)
        world.leave("b", leaving=False)
        assert placed(world)["b"] == {"web": 1}
        world.scale("web", 6)
        world.uncordon("a")
        assert placed(world)["a"] == {"web": 2}

    def test_daemons_and_pod_slots_are_taken_from_each_node_that_they_match(self) -> None:
        gpu = Requirement("gpu", Operator.EXISTS)
        world = World([Daemon((), (("cpu", 500),)), Daemon((gpu,), (("cpu", 1000),))])
        add_node(world, "plain")
        add_node(world, "gpu", {"gpu": "yes"})
        world.deploy(workload(unit=(("cpu", 100),)), 40)
        assert placed(world) == {"plain": {"web": 9}, "gpu": {"web": 8}}
        world.scale("web", 0)
        world.deploy(workload("big"), 9)
        assert placed(world) == {"plain": {"big": 3}, "gpu": {"big": 2}}

    def test_requirements_and_machine_limits_hold(self) -> None:
        world = World()
        add_node(world, "a", {"zone": "1"})
        add_node(world, "b", {"zone": "2"})
        wanted = (Requirement("zone", Operator.IN, ("2",)),)
        world.deploy(workload("one", requirements=wanted, max_per_machine=1), 2)
        world.deploy(workload("other", requirements=wanted, max_per_machine=1), 1)
        assert placed(world) == {"a": {}, "b": {"one": 1}}
        assert world.pods() == Pods(2, 1)

    def test_a_gang_runs_whole_in_one_domain_or_not_at_all(self) -> None:
        world = World()
        for rack, names in (("r1", "abc"), ("r2", "de")):
            for name in names:
                add_node(world, name, {RACK: rack})
        add_node(world, "no rack")
        gang = workload("job", requirements=(Requirement(RACK, Operator.SAME, ("r2", "r3")),))
        world.deploy(gang, 9)
        assert world.pods("job") == Pods(9, 0)
        world.scale("job", 8)
        assert placed(world) == {"a": {}, "b": {}, "c": {}, "d": {"job": 4}, "e": {"job": 4}, "no rack": {}}
        world.remove("e")
        assert world.pods("job") == Pods(8, 0)
        assert (world.needs()[0].group, world.needs()[0].units) == ("job", 8)

    def test_a_gang_pushes_lesser_pods_off_where_it_then_fits_whole(self) -> None:
        world = World()
        for name in "ab":
            add_node(world, name, {RACK: "r"})
        world.deploy(workload(), 8)
        same = (Requirement(RACK, Operator.SAME),)
        world.deploy(workload("job", requirements=same, unit=(("cpu", 2000),)), 3)
        world.deploy(workload("large", requirements=same, priority=1, unit=(("cpu", 2000),)), 5)
        assert placed(world) == {"a": {"web": 4}, "b": {"web": 4}}
        world.deploy(workload("job", requirements=same, priority=1, unit=(("cpu", 2000),)), 3)
        assert placed(world) == {"a": {"job": 2}, "b": {"web": 2, "job": 1}}

    def test_hard_spread_keeps_domains_even_and_goes_on_when_one_gets_room(self) -> None:
        world = World()
        for name, zone in (("a", "1"), ("b", "1"), ("c", "2")):
            add_node(world, name, {ZONE: zone})
        world.deploy(workload("filler", requirements=(Requirement(ZONE, Operator.IN, ("2",)),), priority=1), 3)
        even = Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
        world.deploy(workload(spread=(even,)), 6)
        assert placed(world) == {"a": {"web": 2}, "b": {}, "c": {"filler": 3, "web": 1}}
        add_node(world, "d", {ZONE: "2"})
        assert placed(world) == {"a": {"web": 3}, "b": {}, "c": {"filler": 3, "web": 1}, "d": {"web": 2}}

    def test_what_is_more_important_goes_first_and_pushes_no_more_off_than_it_must(self) -> None:
        world = world_of("a")
        world.deploy(workload("mid"), 2)
        world.deploy(workload("low", priority=-1), 2)
        world.deploy(workload("top", priority=10), 1)
        assert placed(world) == {"a": {"mid": 2, "low": 1, "top": 1}}
        world.deploy(workload("too big", priority=11, unit=(("cpu", 5000),)), 1)
        world.deploy(workload("one a node", priority=12, max_per_machine=1), 2)
        assert placed(world) == {"a": {"mid": 2, "top": 1, "one a node": 1}}
        # In the order in which they came: nobody was moved for the second, which may not be there.
        assert list(world.nodes["a"].pods) == ["mid", "top", "one a node"]
        add_node(world, "b")
        assert world.pods() == Pods(1, 7)

    def test_equals_are_not_pushed_off(self) -> None:
        world = World()
        add_node(world, "a", {"zone": "1"})
        add_node(world, "b", {"zone": "2"})
        world.deploy(workload("mid"), 4)
        world.deploy(workload("low", priority=-1), 1)
        world.deploy(workload("late", requirements=(Requirement("zone", Operator.IN, ("1",)),)), 1)
        assert placed(world) == {"a": {"mid": 4}, "b": {"low": 1}}

    def test_the_demand_is_that_of_all_pods_that_have_requests(self) -> None:
        world = world_of("a")
        world.deploy(workload("one"), 3)
        world.deploy(workload("twin"), 4)
        world.deploy(workload("other", priority=5), 1)
        world.deploy(workload("gone"), 0)
        world.deploy(workload("bare", requested=False), 50)
        rows = {need.profile.priority: need for need in world.needs()}
        assert (rows[0].units, rows[0].aggregate, rows[5].units) == (7, (("cpu", 7000), ("memory", 7 * GIB)), 1)
        assert len(world.needs()) == 2

    def test_nodes_with_pods_that_have_no_request_are_named_with_the_highest_stakes(self) -> None:
        world = world_of("a", "b")
        world.deploy(workload("bare", requested=False, priority=3), 2)
        world.deploy(workload("dear", requested=False, interruption=PenaltyBucket.P_4), 1)
        assert world.unrequested_nodes() == (UnrequestedNode("a", 3, PenaltyBucket.P_4, PenaltyBucket.ZERO),)
        assert world.empty_nodes() == ("b",)


def state(machine: str, state: MachineState, cluster: str = "c", **fields: Any) -> pb.ShardMessage:
    update = pb.NodeStateUpdate(
        supersedes_key=f"node:{machine}",
        machine_id=machine,
        cluster_id=cluster,
        state=provider_pb2.MachineState.ValueType(state),
        node_name=machine,
        provider_id=f"sim://{machine}" if state >= S.IDLE else "",
        resources=provider_pb2.Resources(resources={"cpu": "4", "memory": "8Gi", "pods": "10"}),
    )
    for name, value in fields.items():
        setattr(update, name, value)
    return pb.ShardMessage(node_state_update=update)


def reclaim(instruction: str, *nodes: str, grace: int = 60, kind: Any = Kind.KIND_RECLAIM) -> pb.ShardMessage:
    return pb.ShardMessage(
        reclaim_instruction=pb.ReclaimInstruction(
            instruction_id=instruction, nodes=nodes, grace_period_seconds=grace, kind=kind
        )
    )


def withdrawal(instruction: str, *nodes: str) -> pb.ShardMessage:
    return pb.ShardMessage(reclaim_withdrawn=pb.ReclaimWithdrawn(instruction_id=instruction, nodes=nodes))


def request(request_id: str, machine: str = "m", cluster: str = "c") -> pb.ShardMessage:
    return pb.ShardMessage(
        bootstrap_request=pb.BootstrapRequest(
            request_id=request_id, cluster_id=cluster, machine_id=machine, node_name=machine
        )
    )


def kinds(frames: Frames) -> list[str]:
    return [str(frame.WhichOneof("payload")) for frame in frames]


def readiness(frames: Frames) -> list[tuple[str, str]]:
    """Machine and state of every readiness report."""
    reports = [frame.node_ready for frame in frames if frame.HasField("node_ready")]
    return [(each.machine_id, pb.NodeReadyReport.State.Name(each.state)[6:]) for each in reports]


def drained(frames: Frames) -> list[tuple[str, str]]:
    reports = [frame.node_drained for frame in frames if frame.HasField("node_drained")]
    return [(each.node_name, pb.NodeDrainedReport.Outcome.Name(each.outcome)[8:]) for each in reports]


class Mind(Cluster):
    """A cluster that is connected from the start, of which a test says only what comes."""

    def __init__(self, world: World | None = None, **habits: Any) -> None:
        super().__init__("c", world or World(), Habits(**habits), stamp=lambda: 7)
        self.opened(0.0)

    def hear(self, frame: pb.ShardMessage, now: float = 0.0) -> Frames:
        return self.received(frame, now)

    def bind(self, *machines: str) -> None:
        """These are nodes that have been Ready for a while."""
        for machine in machines:
            self.hear(state(machine, S.CONFIGURED))
        self.tick(5.0)


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
        assert (counts[What.ACKNOWLEDGED], counts[What.STRAY], counts[What.REFUSED]) == (1, 1, 1)

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
        assert (mind.log.counts[What.NODE_JOINED], mind.log.counts[What.NODE_READY]) == (1, 1)
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
        assert mind.log.counts[What.STRAY] == 3
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
        mind = Mind(blob=Blob(error="no template", answers=2))
        answers = [frame.bootstrap_response for frame in mind.hear(request("r"))]
        assert [(answer.error, answer.user_data) for answer in answers] == [("no template", b"")] * 2
        mind.habits = Habits(blob=Blob(answers=0))
        assert mind.hear(request("r")) == []

    def test_a_late_answer_comes_once_however_often_it_was_asked_for(self) -> None:
        mind = Mind(blob=Blob(delay_seconds=3.0))
        assert mind.hear(request("r"), 1.0) == mind.hear(request("r"), 2.0) == []
        assert kinds(mind.tick(4.0)) == ["bootstrap_response"]
        assert mind.tick(5.0) == []

    def test_rule_15_a_withdrawn_request_is_not_answered(self) -> None:
        mind = Mind(blob=Blob(delay_seconds=3.0))
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
        assert mind.log.counts[What.CORDONED] == 1

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


class StandIn:
    """Sessions and outboxes behind a gRPC server. What is whose, and what clusters are told, is the test's to say."""

    def __init__(self) -> None:
        self.outputs: list[says.Output] = []
        self.belongs: dict[tuple[Thing, str], str] = {}
        self.standing_orders: dict[str, pb.ReclaimInstruction] = {}
        self.states: list[pb.ShardMessage] = []
        self.frames_to_read = 1_000_000
        self._sessions = Sessions(self)
        self._outboxes: dict[str, Outbox] = {}
        self._closing: dict[int, asyncio.Future[says.Close]] = {}
        self._happened = asyncio.Event()

    # Books.

    def elsewhere(self, cluster: str) -> str:
        return ""

    def standing(self, cluster: str, thing: Thing, name: str) -> Standing:
        owner = self.belongs.get((thing, name))
        return Standing.UNKNOWN if owner is None else Standing.OURS if owner == cluster else Standing.FOREIGN

    def stands(self, instruction: str, node: str) -> bool:
        return instruction in self.standing_orders and node in self.standing_orders[instruction].nodes

    # The test's side.

    def seen(self, kind: type[Any]) -> list[Any]:
        return [output for output in self.outputs if isinstance(output, kind)]

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._happened.wait()

    def tell(self, cluster: str, frame: pb.ShardMessage) -> None:
        self._outboxes[cluster].put(frame, 0.0)
        self._stir()

    def own(self, cluster: str, *machines: str) -> None:
        for machine in machines:
            self.belongs[Thing.MACHINE, machine] = self.belongs[Thing.NODE, machine] = cluster
            self.states.append(state(machine, S.CONFIGURED, cluster))

    def order(self, cluster: str, frame: pb.ShardMessage) -> None:
        instruction = frame.reclaim_instruction
        self.belongs[Thing.INSTRUCTION, instruction.instruction_id] = cluster
        self.standing_orders[instruction.instruction_id] = instruction
        self.tell(cluster, frame)

    # The stream's side.

    async def session(self, _requests: object, context: Any) -> None:
        session = self._sessions.stream(peer_identity(context), 0.0)
        closing = self._closing[session.number] = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(self._read(session, context)), asyncio.create_task(self._write(session, context))]
        try:
            await asyncio.wait([*tasks, closing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._take(session.ended())
        if closing.done():
            await context.abort(grpc.StatusCode[closing.result().code], closing.result().reason)

    async def _read(self, session: says.Session, context: Any) -> None:
        while isinstance(data := await context.read(), bytes):
            self._take(session.read(data))
            self.frames_to_read -= 1
            await self.until(lambda: self.frames_to_read > 0)

    async def _write(self, session: says.Session, context: Any) -> None:
        await self.until(lambda: bool(session.cluster))
        outbox = self._outboxes[session.cluster]
        while True:
            await self.until(lambda: len(outbox) > 0)
            frame = outbox.take()
            assert frame is not None
            await context.write(frame.SerializeToString())
            outbox.sent(0.0)

    def _take(self, outputs: list[says.Output]) -> None:
        self.outputs += outputs
        for output in outputs:
            match output:
                case says.Opened(cluster=cluster):
                    outbox = self._outboxes.setdefault(cluster, Outbox())
                    orders = [
                        order
                        for order in self.standing_orders.values()
                        if self.belongs[Thing.INSTRUCTION, order.instruction_id] == cluster
                    ]
                    states = [frame for frame in self.states if frame.node_state_update.cluster_id == cluster]
                    outbox.connected(orders, [], states, 0.0)
                case says.Ended(cluster=cluster):
                    self._outboxes[cluster].disconnected()
                case says.Send(cluster=cluster, frame=frame):
                    self._outboxes[cluster].put(frame, 0.0)
                case says.RolledUp(cluster=cluster, rollup=rollup):
                    ack = pb.Acknowledgement(echo=str(rollup.timestamp_unix_nanos))
                    self._outboxes[cluster].put(pb.ShardMessage(ack=ack), 0.0)
                case says.Close(stream=stream):
                    self._closing[stream].set_result(output)
        self._stir()

    def _stir(self) -> None:
        self._happened.set()
        self._happened = asyncio.Event()


@asynccontextmanager
async def serving(shard: StandIn, tls: LiveTLS | None = None, port: int = 0) -> AsyncIterator[TCPAddress]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    service, method = SESSION.strip("/").split("/")
    handler: Any = grpc.stream_stream_rpc_method_handler(shard.session)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    bound = bind(server, TCPAddress("127.0.0.1", port), None if tls is None else tls.server_credentials())
    await server.start()
    try:
        yield TCPAddress("127.0.0.1", bound)
    finally:
        await server.stop(None)


@asynccontextmanager
async def running(*operators: SimOperator) -> AsyncIterator[None]:
    """They run; and where one fails, so does the test."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(operator.run()) for operator in operators]
        yield
        for task in tasks:
            task.cancel()


SOON = Waits(first=0.01, replaced=0.01)
QUICK = {"ready_seconds": 0.01, "rollup_seconds": 3600.0}


def operator(
    address: TCPAddress,
    kind: type[SimOperator] = SimOperator,
    waits: Waits = SOON,
    tls: LiveTLS | None = None,
    **habits: Any,
) -> SimOperator:
    return kind(Cluster("c", World(), Habits(**(QUICK | habits))), address, tls, waits)


class TestOperator:
    async def test_a_story_from_the_first_pod_to_the_last(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address)
            cluster, world = one.cluster, one.cluster.world
            world.deploy(workload(leave_seconds=0.01), 6)
            async with running(one):
                await one.until(lambda: cluster.acknowledged == world.version)
                assert shard.seen(says.RolledUp)[-1].rollup.needs == world.needs()

                shard.belongs[Thing.REQUEST, "r"] = "c"
                shard.tell("c", request("r", "a"))
                await shard.until(lambda: bool(shard.seen(says.BlobAnswered)))

                shard.own("c", "a", "b")
                for frame in shard.states:
                    shard.tell("c", frame)
                await shard.until(lambda: len(ready_machines(shard)) == 2)
                assert world.pods() == Pods(0, 6)

                world.scale("web", 4)
                await shard.until(lambda: shard.seen(says.RolledUp)[-1].rollup.needs == world.needs())
                shard.order("c", reclaim("i", "b"))
                await shard.until(lambda: bool(shard.seen(says.NodeDrained)))
                assert shard.seen(says.ReclaimAcked) == [says.ReclaimAcked("c", "i", 1)]
                assert shard.seen(says.NodeDrained) == [says.NodeDrained("c", "i", "b", empty=True, reason="")]
                assert world.pods() == Pods(0, 4)

                shard.tell("c", state("b", S.IDLE))
                await one.until(lambda: list(world.nodes) == ["a"])
            assert not cluster.connected
            assert cluster.log.counts[What.STRAY] == 0
            assert not shard.seen(says.Strayed)

    async def test_it_is_known_by_its_certificate(self, pki: "PKI") -> None:
        shard = StandIn()
        async with serving(shard, pki.live("bigfleet://shard/s")) as address:
            ours = operator(address, tls=pki.live("bigfleet://cluster/c", "client"))
            theirs = operator(address, tls=pki.live("bigfleet://cluster/d", "other"))
            async with running(ours, theirs):
                await ours.until(lambda: ours.cluster.acknowledged >= 0)
                await theirs.until(lambda: bool(theirs.endings))
        assert theirs.endings[0].code == "PERMISSION_DENIED"
        assert theirs.cluster.acknowledged == -1

    async def test_a_cut_stream_is_dialled_again_and_nothing_is_lost(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address)
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                shard.own("c", "m")
                for _ in range(3):
                    count = len(ready_machines(shard))
                    one.cut()
                    await shard.until(lambda: len(ready_machines(shard)) > count)  # noqa: B023 - awaited in the loop
        assert {str(ending) for ending in one.endings} == {"CANCELLED: cut on this side"}
        assert len(shard.seen(says.Opened)) == 4

    async def test_it_waits_for_a_shard_that_is_not_there_yet_or_any_more(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            pass
        one = operator(address)
        async with running(one):
            await one.until(lambda: len(one.endings) == 2)
            assert one.endings[0].code == "UNAVAILABLE"
            for _ in range(2):
                opened = len(shard.seen(says.Opened))
                async with serving(shard, port=address.port):
                    await shard.until(lambda: len(shard.seen(says.Opened)) > opened)  # noqa: B023 - as above
                await one.until(lambda: not one.cluster.connected)

    async def test_rule_21_a_replaced_operator_waits_as_long_as_it_is_told(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            older = operator(address, waits=Waits(first=0.01, replaced=3600.0))
            newer = operator(address, waits=Waits(first=0.01, replaced=0.01))
            async with running(older):
                await older.until(lambda: older.cluster.acknowledged >= 0)
                async with running(newer):
                    await older.until(lambda: bool(older.endings))
                    assert older.endings[0] == Ending("ABORTED", "replaced")
                    await newer.until(lambda: newer.cluster.acknowledged >= 0)
                    # Were it to dial as after any other end, it would be back long before this roll-up is answered.
                    for replicas in range(1, 20):
                        newer.cluster.world.deploy(workload(), replicas)
                        await newer.until(lambda: newer.cluster.acknowledged == newer.cluster.world.version)
        assert len(shard.seen(says.Opened)) == 2

    async def test_rule_21_a_shard_that_takes_no_frame_is_cut(self) -> None:
        shard = StandIn()
        shard.frames_to_read = 1
        async with serving(shard) as address:
            one = operator(address, waits=Waits(first=0.01, stalled=0.05))
            # More than either side keeps on its own: a gang by a name of 20 MB.
            one.cluster.world.deploy(workload("x" * 20_000_000, requirements=(Requirement(RACK, Operator.SAME),)), 1)
            async with running(one):
                await one.until(lambda: bool(one.endings))
        assert str(one.endings[0]) == "CANCELLED: no frame was taken for 0.05 s"

    async def test_how_a_stream_ended_is_known_whatever_was_being_written(self) -> None:
        """gRPC's own word would be INTERNAL in most of these."""
        shard = StandIn()
        async with serving(shard) as address:
            codes = {(await rogues.intrude(address, [rogues.GARBAGE] * 1000)).code for _ in range(20)}
        assert codes == {"INVALID_ARGUMENT"}

    async def test_a_stopped_operator_leaves_nothing_behind(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, blob=Blob(delay_seconds=3600.0))
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
            codes = [getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()]
            assert not [code for code in codes if code is not None and "sim/clusters" in code.co_filename]
            await shard.until(lambda: bool(shard.seen(says.Ended)))
        assert one._dialer._channel is None

    async def test_a_mistake_in_its_mind_ends_it_loudly(self) -> None:
        async with serving(StandIn()) as address:
            one = operator(address)
            one.cluster.received = lambda frame, now: 1 // 0  # type: ignore[assignment, method-assign, return-value]
            with pytest.raises(ExceptionGroup) as caught:
                await one.run()
        assert caught.group_contains(ZeroDivisionError)


def ready_machines(shard: StandIn) -> list[str]:
    return [each.machine for each in shard.seen(says.NodeReady) if each.state is says.Readiness.READY]


class TestRogues:
    async def test_one_that_does_not_read_still_speaks_and_hears_it_all_later(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.HalfOpen)
            other = SimOperator(Cluster("other", World()), address)
            assert isinstance(one, rogues.HalfOpen)
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                one.hears.clear()
                shard.own("c", "a", "b")
                for frame in shard.states:
                    shard.tell("c", frame)
                one.cluster.world.deploy(workload(), 1)
                await shard.until(lambda: len(shard.seen(says.RolledUp)) == 2)
                async with running(other):
                    await other.until(lambda: other.cluster.acknowledged >= 0)
                # One read was under way.
                assert len(one.cluster.machines) <= 1
                one.hears.set()
                await one.until(lambda: len(one.cluster.machines) == 2)

    async def test_one_that_does_not_write_still_hears(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.HalfOpen)
            assert isinstance(one, rogues.HalfOpen)
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                one.speaks.clear()
                shard.own("c", "m")
                shard.tell("c", shard.states[0])
                await one.until(lambda: one.cluster.log.counts[What.NODE_READY] == 1)
                assert not shard.seen(says.NodeReady)
                one.speaks.set()
                await shard.until(lambda: ready_machines(shard) == ["m"])

    async def test_of_rollups_that_wait_only_the_newest_is_sent(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.HalfOpen)
            assert isinstance(one, rogues.HalfOpen)
            world, counts = one.cluster.world, one.cluster.log.counts
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                one.speaks.clear()
                for replicas in range(1, 6):
                    world.deploy(workload(), replicas)
                    await one.until(lambda: counts[What.ROLLED_UP] == 1 + replicas)  # noqa: B023 - awaited here
                one.speaks.set()
                await one.until(lambda: one.cluster.acknowledged == world.version)
        # The first, the one in hand when it fell silent, and the last.
        assert len(shard.seen(says.RolledUp)) == 3

    async def test_what_an_earlier_session_did_not_get_to_say_does_not_come_before_the_hello_of_the_next(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.HalfOpen)
            assert isinstance(one, rogues.HalfOpen)
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                one.speaks.clear()
                shard.own("c", "a", "b")
                for frame in shard.states:
                    shard.tell("c", frame)
                await one.until(lambda: one.cluster.log.counts[What.NODE_READY] == 2)
                one.cut()
                await one.until(lambda: bool(one.endings))
                one.speaks.set()
                await shard.until(lambda: len(shard.seen(says.RolledUp)) == 2)
        assert [ending.code for ending in one.endings] == ["CANCELLED"]

    async def test_one_that_says_everything_twice_is_borne(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.Doubling)
            shard.own("c", "m")
            async with running(one):
                await shard.until(lambda: ready_machines(shard) == ["m", "m"])
                await one.until(lambda: one.cluster.log.counts[What.STRAY] == 1)
        stamps = [each.rollup.timestamp_unix_nanos for each in shard.seen(says.RolledUp)]
        assert stamps == [stamps[0]] * 2
        assert one.endings == one.endings.__class__()

    async def test_one_that_sends_the_newer_rollup_first(self) -> None:
        shard = StandIn()
        async with serving(shard) as address, running(operator(address, rogues.Reordering, rollup_seconds=0.01)):
            await shard.until(lambda: len(shard.seen(says.RolledUp)) >= 4)
        stamps = [each.rollup.timestamp_unix_nanos for each in shard.seen(says.RolledUp)][:4]
        assert stamps[1] < stamps[0] < stamps[3] < stamps[2]

    @pytest.mark.parametrize(
        ("frames", "code"),
        [
            ([rogues.GARBAGE], "INVALID_ARGUMENT"),
            ([rogues.hello("d"), rogues.GARBAGE], "INVALID_ARGUMENT"),
            ([rogues.rollup("d")], "INVALID_ARGUMENT"),
            ([rogues.hello("d"), rogues.hello("d")], "INVALID_ARGUMENT"),
            ([rogues.hello("d"), rogues.huge_rollup("d")], "RESOURCE_EXHAUSTED"),
        ],
        ids=["garbage", "garbage-after-hello", "no-hello", "two-hellos", "huge"],
    )
    async def test_what_no_operator_sends_ends_the_stream_and_no_other(self, frames: list[bytes], code: str) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            honest = operator(address)
            async with running(honest):
                await honest.until(lambda: honest.cluster.acknowledged >= 0)
                assert (await rogues.intrude(address, frames)).code == code
                honest.cluster.world.deploy(workload(), 1)
                await honest.until(lambda: honest.cluster.acknowledged == honest.cluster.world.version)
            assert {str(ending) for ending in honest.endings} <= {"CANCELLED: stopped"}
        assert not [each for each in shard.seen(says.RolledUp) if each.cluster == "d"]

    async def test_what_is_another_clusters_ends_the_stream(self) -> None:
        shard = StandIn()
        things = {Thing.REQUEST: "r", Thing.INSTRUCTION: "i", Thing.MACHINE: "m", Thing.NODE: "n"}
        shard.belongs = dict.fromkeys(things.items(), "c")
        frames = rogues.claims("c", request="r", instruction="i", machine="m", node="n")
        async with serving(shard) as address:
            endings = {
                kind: await rogues.intrude(address, [rogues.hello("d"), frame]) for kind, frame in frames.items()
            }
        assert {kind: ending.code for kind, ending in endings.items()} == dict.fromkeys(frames, "PERMISSION_DENIED")


class TestLoad:
    def test_quantiles_are_within_three_percent(self) -> None:
        histogram = Histogram()
        for micros in range(1, 100_001):
            histogram.add(micros)
        for share in (0.01, 0.5, 0.99):
            assert share * 100_000 <= histogram.quantile(share) <= share * 100_000 * 1.04
        assert (histogram.max, histogram.count) == (100_000, 100_000)
        assert histogram.quantile(1.0) == 100_000
        assert Histogram().quantile(0.5) == 0

    def test_what_was_sent_before_the_count_began_is_not_in_it(self) -> None:
        tally = Tally()
        early = pb.Acknowledgement(echo=str(time.time_ns()))
        tally.restart()
        tally.acknowledged(early)
        tally.acknowledged(pb.Acknowledgement(echo=str(time.time_ns())))
        tally.acknowledged(pb.Acknowledgement(rejection_reason="no"))
        assert (tally.acked, tally.latency.count, tally.refused, tally.refusal) == (1, 1, 1, "no")

    @pytest.mark.parametrize("rows", [1, 500])
    def test_a_rollup_put_together_from_parts_is_read_whole(self, rows: int) -> None:
        made = Rows(rows=rows, pods=2 * rows + 1, pod=UNIT, burst=5)
        head = capacity_pb2.ClusterCapacityNeeds(cluster_id="c").SerializeToString()
        plain, more, burst = (
            rollup_from_wire(pb.OperatorMessage.FromString(rollup_frame(head, part)).rollup)
            for part in (made.plain, made.more, made.burst)
        )
        assert plain.cluster_id == "c"
        assert plain.timestamp_unix_nanos <= more.timestamp_unix_nanos
        assert [sum(need.units for need in each.needs) for each in (plain, more, burst)] == [
            2 * rows + 1,
            2 * rows + 2,
            2 * rows + 6,
        ]
        assert len({need.key for need in plain.needs}) == rows
        assert burst.needs[-1].profile.max_per_machine == 1

    async def test_it_opens_sends_answers_and_counts(self, capsys: pytest.CaptureFixture[str]) -> None:
        shard = StandIn()
        shard.own("load-00000", "m")
        shard.belongs |= {(Thing.REQUEST, "r"): "load-00000", (Thing.INSTRUCTION, "i"): "load-00000"}
        shard.standing_orders["i"] = reclaim("i", "m").reclaim_instruction
        async with serving(shard) as address:
            options = Options(
                target=str(address), clusters=120, rate=400.0, seconds=0.5, changed=0.5, burst=2, burst_at=0.1
            )
            figures: Any = await Load(options).run()
        assert (figures["opened"]["streams"], figures["streams"], figures["configured"]) == (120, 120, 1)
        assert figures["sent"] == figures["acked"] > 120
        assert (figures["refused"], figures["unanswered"], figures["dropped"]) == (0, 0, {})
        assert figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"] <= figures["latency_ms"]["max"]
        assert figures["burst"] == {"pods": 2, "machines": 1, "seconds": {"half": 0.0, "nine_tenths": 0.0, "all": None}}
        assert ready_machines(shard) == ["m"]
        assert shard.seen(says.ReclaimAcked) == [says.ReclaimAcked("load-00000", "i", 1)]
        assert [each.empty for each in shard.seen(says.NodeDrained)] == [True]
        told = [len(each.rollup.needs) for each in shard.seen(says.RolledUp) if each.cluster == "load-00000"]
        assert told[-1] == told[0] + 1

    async def test_a_stream_that_is_dropped_is_counted_and_comes_back(self) -> None:
        shard, tally = StandIn(), Tally()
        async with serving(shard) as address, grpc.aio.insecure_channel(str(address)) as channel:
            loading = asyncio.create_task(LoadedCluster("c", channel, tally, b"", reports=True).run(0.0))
            await shard.until(lambda: bool(shard.seen(says.RolledUp)))
            await rogues.intrude(address, [rogues.hello("c"), rogues.GARBAGE])
            await shard.until(lambda: len(shard.seen(says.RolledUp)) == 2)
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        assert tally.dropped == {"ABORTED": 1}
        assert tally.sent == 2

    def test_the_command_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert shard_load._options(["--target", "h:1", "--pod", "cpu=500m", "--burst-at", "3"]) == Options(
            target="h:1", pod=(("cpu", 500),), burst_at=3.0
        )
        for wrong in (["--rows", "0"], ["--pod", "cpu"], ["--pod", "cpu=x"], ["--clusters", "-1"]):
            with pytest.raises(SystemExit):
                shard_load._options(["--target", "h:1", *wrong])
            assert wrong[0] in capsys.readouterr().err
