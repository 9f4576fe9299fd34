"""The operator's mind as a whole, with stand-ins for what carries out: when it rolls up, and whom it tells what."""

from datetime import UTC, datetime
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry

from bigfleet.kube.objects.kinds import Condition, Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus
from bigfleet.kube.recorder import Occurrence
from bigfleet.model.crd import CapacityRequest, CapacityRequestSpec, ObjectMeta, OwnerReference
from bigfleet.operator.bootstrap.answers import BootstrapAnswers
from bigfleet.operator.core import EARLY_SECONDS, Clocks, Core, Parts
from bigfleet.operator.mirrors.available_capacity import AvailableCapacities
from bigfleet.operator.mirrors.upcoming_nodes import UpcomingNodes
from bigfleet.operator.node_life.drain_work import DrainWork
from bigfleet.operator.node_life.left_nodes import LeftNodes
from bigfleet.operator.node_life.machines import KnownMachines
from bigfleet.operator.node_life.ready_reports import NodeReadyReports
from bigfleet.operator.rollup.acknowledge import Acknowledger
from bigfleet.telemetry.metrics import OperatorMetrics
from bigfleet.wire.parting import GONE
from bigfleet.wire.v1alpha1 import provider_pb2 as provider
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

INTERVAL = 10.0


class Stage:
    def __init__(self) -> None:
        self.now = 1000.0
        self.said: list[pb.OperatorMessage] = []
        self.events: list[Occurrence] = []
        clocks = Clocks(lambda: self.now, lambda: datetime(2026, 11, 15, tzinfo=UTC), lambda: int(self.now * 1e9))
        metrics = OperatorMetrics(CollectorRegistry())
        self.core = Core("c", INTERVAL, clocks, metrics, self.events.append, lambda: None)
        machines = KnownMachines("c")
        self.drains = MagicMock(DrainWork)
        self.bootstrap = MagicMock(BootstrapAnswers)
        self.left_nodes = MagicMock(LeftNodes)
        self.upcoming = MagicMock(UpcomingNodes)
        self.upcoming.due.return_value = float("inf")
        self.upcoming.tick.return_value = []
        self.available = MagicMock(AvailableCapacities)
        self.available.due.return_value = float("inf")
        self.acknowledger = MagicMock(Acknowledger)
        readiness = NodeReadyReports(machines, self.core.view.nodes, lambda _: None, lambda _: None)
        self.core.complete(
            Parts(
                machines,
                readiness,
                cast("LeftNodes", self.left_nodes),
                cast("BootstrapAnswers", self.bootstrap),
                cast("DrainWork", self.drains),
                cast("UpcomingNodes", self.upcoming),
                cast("AvailableCapacities", self.available),
                cast("Acknowledger", self.acknowledger),
            )
        )

    def open(self, *, synced: bool = True) -> None:
        if synced:
            self.core.synced()
        self.core.opened(self.said.append)

    def passes(self, seconds: float) -> None:
        """So much time, with every tick that falls due."""
        end = self.now + seconds
        while (due := self.core.due()) <= end:
            self.now = max(self.now, due)
            self.core.tick()
        self.now = end

    def kinds(self) -> list[str | None]:
        return [frame.WhichOneof("payload") for frame in self.said]

    def rollups(self) -> list[Any]:
        return [frame.rollup for frame in self.said if frame.HasField("rollup")]

    def acknowledge(self, **more: Any) -> None:
        echo = str(self.rollups()[-1].timestamp_unix_nanos)
        self.core.received(pb.ShardMessage(ack=pb.Acknowledgement(echo=echo, **more)))

    def hears(self, state: str, **more: Any) -> None:
        number = provider.MachineState.Value(f"MACHINE_STATE_{state.upper()}")
        update = pb.NodeStateUpdate(machine_id="m", cluster_id="c", state=number, **more)
        self.core.received(pb.ShardMessage(node_state_update=update))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def request(name: str = "r", priority: int = 0, cpu: str = "1") -> CapacityRequest:
    return CapacityRequest(
        metadata=ObjectMeta(name=name, namespace="team", uid=f"uid-{name}"),
        spec=CapacityRequestSpec(resources={"cpu": cpu}, priority=priority),
    )


def node(name: str = "m", *, ready: bool = True) -> Node:
    condition = Condition(type="Ready", status="True" if ready else "False")
    return Node(
        metadata=ObjectMeta(name=name, uid="u", creation_timestamp=datetime(2026, 11, 15, tzinfo=UTC)),
        spec=NodeSpec(provider_id="sim://i-1"),
        status=NodeStatus(conditions=(condition,)),
    )


def test_hello_comes_first_with_our_features_and_a_roll_up_follows(stage: Stage) -> None:
    stage.core.view.requests.put(request())
    stage.open()
    assert stage.kinds() == ["hello", "rollup"]
    hello = stage.said[0].hello
    assert (hello.cluster_id, hello.protocol_version) == ("c", "v1alpha1")
    assert list(hello.features) == ["node_ready", "node_drained"]
    assert len(stage.rollups()[0].needs) == 1


def test_rule_24_nothing_is_rolled_up_before_the_caches_are_whole(stage: Stage) -> None:
    stage.open(synced=False)
    stage.core.view.requests.put(request(priority=5000))
    stage.passes(60)
    assert stage.kinds() == ["hello"]
    stage.core.synced()
    stage.passes(0)
    assert stage.kinds() == ["hello", "rollup"]
    stage.drains.resumed.assert_called_once()


def test_roll_ups_come_at_their_interval_with_rising_stamps_and_stop_with_the_session(stage: Stage) -> None:
    stage.open()
    stage.passes(3.5 * INTERVAL)
    stamps = [rollup.timestamp_unix_nanos for rollup in stage.rollups()]
    assert len(stamps) == 4
    assert stamps == sorted(set(stamps))
    stage.core.closed("cut")
    stage.passes(10 * INTERVAL)
    assert len(stage.rollups()) == 4


def test_what_is_urgent_does_not_wait_but_is_not_a_flood_either(stage: Stage) -> None:
    stage.open()
    stage.passes(5)
    for number in range(50):
        stage.core.view.requests.put(request(f"r{number}", priority=5000))
    stage.passes(0)
    assert len(stage.rollups()) == 2
    stage.core.view.requests.put(request("another", priority=5000))
    stage.passes(EARLY_SECONDS / 2)
    assert len(stage.rollups()) == 2
    stage.passes(EARLY_SECONDS)
    assert len(stage.rollups()) == 3


def test_requests_are_acknowledged_once_the_shard_took_the_roll_up_that_held_them(stage: Stage) -> None:
    stage.core.view.requests.put(request("early"))
    stage.open()
    stage.core.view.requests.put(request("late"))
    stage.acknowledger.acknowledge.assert_not_called()
    stage.acknowledge()
    (waiting,) = stage.acknowledger.acknowledge.call_args.args
    assert [each.name for each in waiting] == ["early"]
    stage.available.rolled_up.assert_called_once()


def test_rule_20_a_refused_roll_up_acknowledges_nothing(stage: Stage) -> None:
    stage.core.view.requests.put(request())
    stage.open()
    stage.core.received(pb.ShardMessage(ack=pb.Acknowledgement(rejection_reason="too little")))
    stage.core.received(pb.ShardMessage(ack=pb.Acknowledgement(echo="12345")))
    stage.acknowledger.acknowledge.assert_not_called()


def test_rule_23_rows_count_as_covered_only_while_the_shard_has_taken_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def judge(covered: Any, *_: object) -> list[Any]:
        asked.append(covered)
        return []

    monkeypatch.setattr(stage.core.rollups, "judge", judge)
    stage.core.view.requests.put(request("a"))
    stage.open()
    (row,) = stage.core.view.requests.needs()
    stage.acknowledge()
    stage.core.view.requests.put(request("b", priority=7))
    stage.passes(INTERVAL)
    assert asked == [None, {row.key}]
    stage.core.received(pb.ShardMessage(ack=pb.Acknowledgement(rejection_reason="too little")))
    stage.passes(INTERVAL)
    assert asked[2:] == [None]
    short = pb.NeedKey(profile_fingerprint=row.key.fingerprint, min_unit={"cpu": "1"})
    stage.acknowledge(short_needs=[short])
    stage.passes(INTERVAL)
    assert row.key not in asked[3]
    assert len(asked[3]) == 1


def test_rule_23_a_pod_that_two_raises_did_not_place_gets_an_event_and_its_row_no_third(stage: Stage) -> None:
    reason = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    owner = OwnerReference(api_version="v1", kind="Pod", name="p", uid="uid-p", controller=True)
    stage.core.view.requests.put(
        CapacityRequest(
            metadata=ObjectMeta(name="r", namespace="team", uid="uid-r", owner_references=(owner,)),
            spec=CapacityRequestSpec(resources={"cpu": "1"}, priority=0),
        )
    )
    stage.core.view.pods.put(
        Pod(
            metadata=ObjectMeta(name="p", namespace="team", uid="uid-p"),
            spec=PodSpec(),
            status=PodStatus(phase="Pending", conditions=(reason,)),
        )
    )
    stage.open()
    for _ in range(30):
        stage.acknowledge()
        stage.passes(INTERVAL)
    assert stage.rollups()[0].needs[0].aggregate_resources == {"cpu": "1"}
    assert stage.rollups()[-1].needs[0].aggregate_resources == {"cpu": "3"}
    (event,) = stage.events
    assert (event.regarding.kind, event.regarding.name, event.reason) == ("Pod", "p", "CapacityDoesNotHelp")


def test_a_node_is_reported_and_ready_is_said_once(stage: Stage) -> None:
    stage.open()
    stage.hears("configured", provider_id="sim://i-1", node_name="m")
    stage.core.view.nodes.put(node(ready=False))
    stage.core.view.nodes.put(node())
    stage.core.view.nodes.put(node())
    said = [frame.node_ready.state for frame in stage.said if frame.HasField("node_ready")]
    kinds = pb.NodeReadyReport
    assert said == [kinds.STATE_ABSENT, kinds.STATE_NOT_READY, kinds.STATE_READY]
    assert stage.core.is_ready("m")


def test_one_that_is_lost_leaves_a_node_behind(stage: Stage) -> None:
    stage.open()
    stage.hears("failed", last_error="out of memory", provider_id="sim://i-1")
    stage.left_nodes.left.assert_not_called()
    stage.hears("failed", last_error=GONE, provider_id="sim://i-1")
    stage.left_nodes.left.assert_called_once_with("m", "sim://i-1")


def test_rule_23_a_machine_that_no_session_names_any_more_does_not_count_as_moving(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def judge(_covered: object, moving: bool, _now: float) -> list[Any]:
        asked.append(moving)
        return []

    monkeypatch.setattr(stage.core.rollups, "judge", judge)
    stage.open()
    stage.hears("configuring")
    stage.passes(INTERVAL)
    stage.core.closed("cut")
    stage.core.opened(stage.said.append)
    assert asked == [False, True, False]


def test_a_machine_of_another_cluster_is_none_of_ours(stage: Stage) -> None:
    stage.open()
    update = pb.NodeStateUpdate(machine_id="m", cluster_id="other", state=provider.MACHINE_STATE_CONFIGURED)
    stage.core.received(pb.ShardMessage(node_state_update=update))
    stage.upcoming.heard.assert_not_called()


def test_each_frame_goes_to_whom_it_concerns(stage: Stage) -> None:
    stage.open()
    for frame in (
        pb.ShardMessage(bootstrap_request=pb.BootstrapRequest(request_id="b")),
        pb.ShardMessage(bootstrap_withdrawn=pb.BootstrapWithdrawn(request_id="b")),
        pb.ShardMessage(reclaim_instruction=pb.ReclaimInstruction(instruction_id="i")),
        pb.ShardMessage(reclaim_withdrawn=pb.ReclaimWithdrawn(instruction_id="i")),
        pb.ShardMessage(available_capacity=pb.AvailableCapacityUpdate(supersedes_key="available:f")),
        pb.ShardMessage(),
    ):
        stage.core.received(frame)
    for called in (
        stage.bootstrap.asked,
        stage.bootstrap.withdrawn,
        stage.drains.instructed,
        stage.drains.withdrawn,
        stage.available.heard,
    ):
        called.assert_called_once()


def test_rule_20_a_request_that_cannot_be_counted_gets_an_event_that_names_the_field(stage: Stage) -> None:
    stage.core.view.requests.put(request("bad", cpu="9E"))
    (event,) = stage.events
    assert (event.regarding.kind, event.regarding.name, event.reason) == ("CapacityRequest", "bad", "RequestRefused")
    assert "spec.resources[cpu]" in event.note
