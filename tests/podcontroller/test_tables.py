"""What is known of requests and namespaces, when news come late or twice."""

import msgspec

from bigfleet.kube.objects.kinds import Namespace
from bigfleet.model.crd import CapacityRequest, CapacityRequestSpec, ObjectMeta
from bigfleet.podcontroller.tables import Key, RequestTable, Scope


def request(uid: str, cpu: str = "1") -> CapacityRequest:
    metadata = ObjectMeta(name="cr", namespace="shop", uid=uid)
    return CapacityRequest(metadata=metadata, spec=CapacityRequestSpec(resources={"cpu": cpu}, priority=0))


def namespace(name: str) -> Namespace:
    return msgspec.convert({"metadata": {"name": name}}, Namespace)


def test_the_end_of_an_earlier_request_of_that_name_does_not_take_the_later_one() -> None:
    changed: list[Key] = []
    requests = RequestTable(changed.append)
    requests.put(request("first"))
    requests.put(request("second"))
    requests.removed(request("first"))
    found = requests.get(("shop", "cr"))
    assert found is not None
    assert found.uid == "second"
    requests.removed(request("second"))
    assert requests.get(("shop", "cr")) is None
    assert len(changed) == 3


def test_news_that_are_none_change_nothing() -> None:
    changed: list[Key] = []
    requests = RequestTable(changed.append)
    requests.put(request("a"))
    requests.put(request("a"))
    requests.replaced([request("a")])
    assert len(changed) == 1
    requests.replaced([])
    requests.removed(request("a"))
    assert len(changed) == 2
    assert requests.keys() == set()


def test_a_scope_tells_of_namespaces_that_come_and_go_once() -> None:
    changed: list[str] = []
    scope = Scope((), changed.append)
    assert not scope.covers("a")
    scope.replaced([namespace("a"), namespace("b")])
    scope.put(namespace("a"))
    scope.put(namespace("c"))
    scope.removed(namespace("b"))
    scope.removed(namespace("b"))
    scope.replaced([namespace("c"), namespace("d")])
    assert sorted(changed[:2]) == ["a", "b"]
    assert changed[2:4] == ["c", "b"]
    assert sorted(changed[4:]) == ["a", "d"]
    assert [scope.covers(name) for name in "abcd"] == [False, False, True, True]


def test_without_a_choice_every_namespace_is_in_scope() -> None:
    assert Scope(None, lambda name: None).covers("any")
