"""A write whose answer comes after what the watch has told of it."""

from collections.abc import Callable
from typing import Any, cast
from unittest.mock import MagicMock

import msgspec

from bigfleet.kube.client import Client
from bigfleet.kube.objects.kinds import Pod
from bigfleet.kube.recorder import Recorder
from bigfleet.model.crd import CapacityRequest, CapacityRequestSpec, ObjectMeta
from bigfleet.podcontroller.keeper import Keeper, Mode
from bigfleet.podcontroller.tables import Key, PodTable, RequestTable, Scope
from tests.podcontroller.stage import pod


def request(key: Key, cpu: str = "1") -> CapacityRequest:
    metadata = ObjectMeta(name=key[1], namespace=key[0], uid="u")
    return CapacityRequest(metadata=metadata, spec=CapacityRequestSpec(resources={"cpu": cpu}, priority=0))


class Stage:
    """One pod and its keeper, with an API server whose watch is faster than its answers."""

    def __init__(self) -> None:
        self.changed: list[Key] = []
        self.pods, self.requests = PodTable(lambda _key: None), RequestTable(self.changed.append)
        made = pod()
        made["metadata"]["uid"] = "pod-uid"
        self.pods.put(msgspec.convert(made, Pod))
        (self.key,) = self.pods.keys()
        self.told: Callable[[CapacityRequest], None] = lambda _request: None
        events = cast("Recorder", MagicMock(Recorder))
        scope = Scope(None, lambda _name: None)
        self.keeper = Keeper(cast("Client", self), Mode.ALL, self.pods, self.requests, scope, dict, events)

    async def create(self, *_: Any) -> CapacityRequest:
        return self._answer()

    async def patch(self, *_: Any, **__: Any) -> CapacityRequest:
        return self._answer()

    def _answer(self) -> CapacityRequest:
        written = request(self.key)
        self.told(written)
        return written


async def test_an_answer_is_known_before_the_watch_tells() -> None:
    stage = Stage()
    await stage.keeper.keep(stage.key)
    assert stage.requests.get(stage.key) is not None


async def test_a_request_deleted_before_its_creation_is_answered_is_known_to_be_gone() -> None:
    stage = Stage()

    def told(written: CapacityRequest) -> None:
        stage.requests.put(written)
        stage.requests.removed(written)

    stage.told = told
    await stage.keeper.keep(stage.key)
    assert stage.requests.get(stage.key) is None
    assert stage.changed == [stage.key] * 2


async def test_an_edit_told_before_our_patch_is_answered_is_looked_at() -> None:
    stage = Stage()
    stage.requests.put(request(stage.key, "7"))
    stage.told = lambda _written: stage.requests.put(request(stage.key, "9"))
    stage.changed.clear()
    await stage.keeper.keep(stage.key)
    made = stage.requests.get(stage.key)
    assert made is not None
    assert made.spec.resources == {"cpu": "9"}
    assert stage.changed == [stage.key]


async def test_a_request_that_is_not_in_a_list_before_its_creation_is_answered_is_looked_at_again() -> None:
    stage = Stage()
    stage.told = lambda _written: stage.requests.replaced([])
    await stage.keeper.keep(stage.key)
    assert stage.requests.get(stage.key) is None
    assert stage.changed == [stage.key]
