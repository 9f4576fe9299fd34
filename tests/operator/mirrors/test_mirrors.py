"""UpcomingNodes and AvailableCapacity: which phase, when an object goes, and that only changes are written."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.errors import ApiError, NotFoundError, UnreachableError
from bigfleet.kube.objects.names import MANAGED_BY, OPERATOR
from bigfleet.kube.objects.resources import AVAILABLE_CAPACITIES, UPCOMING_NODES, Resource
from bigfleet.model.crd import NodeRef
from bigfleet.operator.mirrors.available_capacity import AvailableCapacities
from bigfleet.operator.mirrors.mirror import Mirror, object_name
from bigfleet.operator.mirrors.upcoming_nodes import LEFT_SECONDS, UpcomingNodes
from bigfleet.operator.waiting import SETTLED_SECONDS
from bigfleet.wire.parting import GONE
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import provider_pb2 as provider
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

WALL = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Writes:
    """An API server that takes applies and deletes, and shows what it has to the mirror as a watch would."""

    def __init__(self, resource: Resource[Any]) -> None:
        self._resource = resource
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.refuse = 0
        self.unanswered = 0
        """So many writes take effect, and nobody hears so."""
        self.gate = asyncio.Event()
        """What answers wait for, once the write has taken effect."""
        self.gate.set()
        self.mirror: Mirror[Any] = Mirror(cast("Client", self), resource, lambda *_: None)

    async def patch(
        self, _resource: object, name: str, body: Any, subresource: str = "", *, content: Patch, manager: str
    ) -> Any:
        assert (content, manager) == (Patch.APPLY, OPERATOR)
        self.calls.append(f"{subresource or 'apply'} {name}")
        if self.refuse:
            self.refuse -= 1
            raise ApiError("patch", name, "try later", code=500)
        if subresource and name not in self.objects:
            raise NotFoundError("patch", name)
        there = self.objects.setdefault(name, {"metadata": {"name": name, "uid": f"uid-{name}"}})
        for key, value in json.loads(msgspec.json.encode(body)).items():
            if key == "metadata":
                there["metadata"] |= value
            else:
                there[key] = value
        answer = self.shown(name)
        if self.unanswered:
            self.unanswered -= 1
            raise UnreachableError("patch", name, "timed out")
        await self.gate.wait()
        return answer

    async def delete(self, _resource: object, name: str, uid: str = "") -> None:
        self.calls.append(f"delete {name}")
        if name not in self.objects:
            raise NotFoundError("delete", name)
        assert uid == f"uid-{name}"
        self.lose(name)

    def lose(self, name: str) -> None:
        """Somebody else deletes it."""
        gone = self.shown(name)
        del self.objects[name]
        self.mirror.removed(gone)

    def shown(self, name: str) -> Any:
        return msgspec.convert(self.objects[name], self._resource.type)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def update(state: str, machine: str = "m-1", **more: Any) -> pb.NodeStateUpdate:
    number = provider.MachineState.Value(f"MACHINE_STATE_{state.upper()}")
    resources = provider.Resources(resources={"cpu": "8"})
    return pb.NodeStateUpdate(machine_id=machine, cluster_id="c", state=number, resources=resources, **more)


class Stage:
    def __init__(self) -> None:
        self.server = Writes(UPCOMING_NODES)
        self.ready: set[str] = set()
        self.wall = WALL
        self.nodes = self.fresh()

    def fresh(self) -> UpcomingNodes:
        return UpcomingNodes(self.server.mirror, self.ready.__contains__, lambda: self.wall)

    async def hears(self, state: str, now: float = 0.0, **more: Any) -> str:
        """The phase that is shown after it; nothing, where the object is gone."""
        self.nodes.heard(update(state, **more), now)
        return await self.phase()

    async def phase(self, machine: str = "m-1") -> str:
        await settle()
        return str(self.server.objects.get(machine, {}).get("status", {}).get("phase", ""))


@pytest.fixture
async def stage() -> Any:
    stage = Stage()
    running = asyncio.create_task(stage.server.mirror.run())
    yield stage
    running.cancel()
    await asyncio.wait([running])


@pytest.fixture
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigfleet.operator.mirrors.mirror._FIRST_RETRY", 0.0)


async def test_the_walk_in_and_out(stage: Stage) -> None:
    assert await stage.hears("speculative") == "Provisioning"
    assert await stage.hears("creating") == "Provisioning"
    assert await stage.hears("idle") == "Launched"
    assert await stage.hears("configuring") == "Registered"
    assert await stage.hears("configured", provider_id="sim://i-1") == "Registered"
    stage.ready.add("m-1")
    stage.nodes.node_changed("m-1", 0.0)
    assert await stage.phase() == "Ready"
    status = stage.server.objects["m-1"]["status"]
    assert (status["nodeRef"], status["providerID"]) == ({"name": "m-1"}, "sim://i-1")
    assert await stage.hears("draining") == "Draining"
    assert await stage.hears("idle", 10.0) == "Drained"
    assert await stage.hears("deleting", 20.0) == "Drained"
    assert stage.nodes.due() == 10.0 + LEFT_SECONDS
    stage.nodes.tick(10.0 + LEFT_SECONDS)
    assert await stage.phase() == ""


async def test_a_node_that_is_not_ready_any_more_is_registered(stage: Stage) -> None:
    stage.ready.add("m-1")
    assert await stage.hears("configured") == "Ready"
    stage.ready.clear()
    stage.nodes.node_changed("m-1", 0.0)
    assert await stage.phase() == "Registered"


async def test_failed_says_why(stage: Stage) -> None:
    assert await stage.hears("failed", last_error="no such image") == "Failed"
    assert stage.server.objects["m-1"]["status"]["lastError"] == "no such image"


async def test_one_that_is_lost_is_shown_as_failed_for_a_while(stage: Stage) -> None:
    stage.ready.add("m-1")
    await stage.hears("configured")
    assert await stage.hears("failed", 10.0, last_error=GONE) == "Failed"
    stage.nodes.tick(9.0 + LEFT_SECONDS)
    assert await stage.phase() == "Failed"
    stage.nodes.tick(10.0 + LEFT_SECONDS)
    assert await stage.phase() == ""


async def test_what_never_came_in_goes_at_once(stage: Stage) -> None:
    assert await stage.hears("idle") == "Launched"
    assert await stage.hears("speculative") == ""


async def test_a_machine_that_comes_back_within_the_five_minutes_is_on_its_way_again(stage: Stage) -> None:
    await stage.hears("draining")
    assert await stage.hears("idle") == "Drained"
    assert await stage.hears("configuring") == "Registered"
    stage.nodes.tick(2 * LEFT_SECONDS)
    assert await stage.phase() == "Registered"


async def test_nothing_is_written_for_what_is_so_already(stage: Stage) -> None:
    await stage.hears("configuring")
    assert stage.server.calls == ["apply m-1", "status m-1"]
    await stage.hears("configuring")
    stage.server.mirror.put(stage.server.shown("m-1"))
    await settle()
    assert stage.server.calls == ["apply m-1", "status m-1"]


async def test_a_new_life_writes_nothing_anew_and_remembers_the_way_out(stage: Stage) -> None:
    await stage.hears("draining")
    stage.server.calls.clear()
    stage.nodes = stage.fresh()
    assert await stage.hears("draining") == "Draining"
    assert stage.server.calls == []
    assert await stage.hears("idle") == "Drained"


async def test_what_somebody_deletes_or_edits_comes_back(stage: Stage) -> None:
    await stage.hears("configuring")
    stage.server.lose("m-1")
    assert await stage.phase() == "Registered"
    stage.server.objects["m-1"]["status"]["phase"] = "Ready"
    stage.server.mirror.put(stage.server.shown("m-1"))
    assert await stage.phase() == "Registered"


@pytest.mark.usefixtures("retries_at_once")
async def test_what_somebody_deletes_while_our_write_is_answered_comes_back(stage: Stage) -> None:
    stage.server.gate.clear()
    await stage.hears("configuring")
    stage.server.mirror.put(stage.server.shown("m-1"))
    stage.server.lose("m-1")
    stage.server.gate.set()
    assert await stage.phase() == "Registered"


@pytest.mark.parametrize("listed", [False, True])
async def test_what_is_dropped_after_a_write_without_an_answer_goes_when_it_shows(stage: Stage, listed: bool) -> None:
    stage.server.unanswered = 1
    await stage.hears("idle")
    stage.nodes.heard(update("speculative"), 0.0)
    await settle()
    shown = stage.server.shown("m-1")
    if listed:
        stage.server.mirror.replaced([shown])
    else:
        stage.server.mirror.put(shown)
    await settle()
    assert stage.server.objects == {}


async def test_what_the_shard_does_not_name_after_a_connect_is_garbage(stage: Stage) -> None:
    await stage.hears("configuring")
    await stage.hears("configuring", machine="m-2")
    stage.nodes = stage.fresh()
    stage.nodes.opened(100.0)
    stage.nodes.heard(update("configuring", machine="m-2"), 101.0)
    assert stage.nodes.tick(100.0 + SETTLED_SECONDS - 1) == []
    assert await stage.phase() == "Registered"
    assert [each.metadata.name for each in stage.nodes.tick(100.0 + SETTLED_SECONDS)] == ["m-1"]
    assert await stage.phase() == ""
    assert await stage.phase("m-2") == "Registered"


async def test_what_drained_while_nobody_listened_is_named_for_its_node(stage: Stage) -> None:
    stage.ready.add("m-1")
    await stage.hears("configured", node_name="node-1")
    await stage.hears("draining", node_name="node-1")
    assert await stage.hears("idle", node_name="node-1") == "Drained"
    stage.nodes = stage.fresh()
    stage.nodes.opened(100.0)
    (found,) = stage.nodes.tick(100.0 + SETTLED_SECONDS)
    assert found.status is not None
    assert found.status.node_ref == NodeRef("node-1")
    assert await stage.phase() == "Drained"
    stage.nodes.tick(100.0 + SETTLED_SECONDS + LEFT_SECONDS)
    assert await stage.phase() == ""


async def test_a_machine_that_comes_back_has_a_start_of_its_own(stage: Stage) -> None:
    await stage.hears("draining")
    await stage.hears("idle")
    stage.wall = WALL + timedelta(minutes=2)
    await stage.hears("configuring")
    assert stage.server.objects["m-1"]["status"]["provisioningStartTime"] == "2026-11-15T12:02:00Z"


async def test_what_is_refused_is_tried_by_one_at_a_time(stage: Stage) -> None:
    stage.server.refuse = 10**6
    for number in range(50):
        stage.nodes.heard(update("configuring", provider_id=f"sim://{number}"), 0.0)
        await settle()
    assert len([task for task in asyncio.all_tasks() if "_again" in repr(task)]) == 1


async def test_without_a_session_nothing_is_garbage(stage: Stage) -> None:
    await stage.hears("configuring")
    stage.nodes.opened(0.0)
    stage.nodes.closed()
    stage.nodes.tick(10_000.0)
    assert await stage.phase() == "Registered"


@pytest.mark.usefixtures("retries_at_once")
async def test_a_write_that_fails_is_made_again(stage: Stage) -> None:
    stage.server.refuse = 2
    assert await stage.hears("configuring") == "Registered"


@pytest.mark.parametrize(
    ("text", "name"), [("m-1", "m-1"), ("a.b-c", "a.b-c"), ("UP/down", "up-down-"), ("", "x-"), ("x" * 300, "x" * 200)]
)
def test_every_machine_has_a_name_of_its_own(text: str, name: str) -> None:
    made = object_name(text)
    assert made.startswith(name)
    assert len(made) <= 253
    assert object_name(text + "!") != made


class TestAvailable:
    async def said(
        self, *updates: pb.AvailableCapacityUpdate
    ) -> tuple[Writes, AvailableCapacities, asyncio.Task[None]]:
        server = Writes(AVAILABLE_CAPACITIES)
        running = asyncio.create_task(server.mirror.run())
        available = AvailableCapacities(server.mirror)
        available.opened(0.0)
        for each in updates:
            available.heard(each)
        await settle()
        return server, available, running

    def update(self, profile: str, **more: Any) -> pb.AvailableCapacityUpdate:
        requirement = capacity_pb2.NodeSelectorRequirement(
            key="zone", operator=capacity_pb2.NodeSelectorRequirement.OPERATOR_IN, values=["eu-1a"]
        )
        fields = {
            "available_count": 4,
            "confidence": pb.AvailableCapacityUpdate.CONFIDENCE_HIGH,
            "cost_per_hour": 0.384,
        }
        return pb.AvailableCapacityUpdate(
            supersedes_key=f"available:{profile}", requirements=[requirement], **{**fields, **more}
        )

    async def test_what_can_be_had_is_shown(self) -> None:
        server, _, running = await self.said(self.update("f00", eta_seconds=0, atomic=True))
        running.cancel()
        assert server.objects["profile-f00"]["spec"] == {
            "requirements": [{"key": "zone", "operator": "In", "values": ["eu-1a"]}],
            "availableCount": 4,
            "availability": "High",
            "cost": "0.384",
            "nodeTemplate": {"labels": {"zone": "eu-1a"}},
            "supportsAtomicProvisioning": True,
            "estimatedProvisioningTime": "0s",
        }
        assert server.objects["profile-f00"]["metadata"]["labels"] == {MANAGED_BY: OPERATOR}

    @pytest.mark.parametrize("told", ["edited", "deleted", "not listed"])
    async def test_what_the_watch_tells_before_our_write_is_answered_is_put_right(self, told: str) -> None:
        server, available, running = await self.said()
        server.gate.clear()
        available.heard(self.update("f00"))
        await settle()
        match told:
            case "edited":
                server.objects["profile-f00"]["spec"]["availableCount"] = 99
                server.mirror.put(server.shown("profile-f00"))
            case "deleted":
                server.lose("profile-f00")
            case _:
                server.objects.clear()
                server.mirror.replaced([])
        server.gate.set()
        await settle()
        running.cancel()
        assert server.objects["profile-f00"]["spec"]["availableCount"] == 4

    async def test_profiles_that_are_asked_for_no_more_go(self) -> None:
        server, available, running = await self.said(self.update("f00"), self.update("f01"))
        available.rolled_up({"f01"})
        await settle()
        assert list(server.objects) == ["profile-f01"]
        server.objects["profile-old"] = {"metadata": {"name": "profile-old", "uid": "uid-profile-old"}, "spec": {}}
        server.mirror.put(server.shown("profile-old"))
        available.tick(1000.0)
        await settle()
        running.cancel()
        assert list(server.objects) == ["profile-f01"]
