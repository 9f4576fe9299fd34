"""Reading objects: what is shared must not differ from what is read alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.kube.objects import decode, resources
from bigfleet.kube.objects.decode import Codec
from bigfleet.kube.objects.resources import CAPACITY_REQUESTS, Resource
from bigfleet.model.crd import CapacityRequest, ObjectMeta

ALL = [found for found in vars(resources).values() if isinstance(found, Resource)]

words = st.sampled_from(["a", "b", "ü"])
mappings = st.dictionaries(words, words, max_size=2)
times = st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5+02:00", None])
owners = st.fixed_dictionaries(
    {"apiVersion": words, "kind": words, "name": words, "uid": words},
    optional={"controller": st.booleans(), "blockOwnerDeletion": st.booleans()},
)
metadata = st.fixed_dictionaries(
    {"name": words},
    optional={
        "generateName": words,
        "namespace": words,
        "uid": words,
        "resourceVersion": words,
        "generation": st.integers(0, 5),
        "creationTimestamp": times,
        "deletionTimestamp": times,
        "labels": mappings,
        "annotations": mappings,
        "ownerReferences": st.lists(owners, max_size=2),
        "finalizers": st.lists(words, max_size=2),
        "managedFields": st.just([{"manager": "x"}]),
    },
)
requests = st.fixed_dictionaries(
    {
        "metadata": metadata,
        "spec": st.fixed_dictionaries(
            {"resources": mappings, "priority": st.integers(0, 3)}, optional={"maxPerNode": st.integers(1, 2)}
        ),
    },
    optional={
        "status": st.none() | st.fixed_dictionaries({"phase": st.sampled_from(["Pending", "Acknowledged"])}),
        "apiVersion": st.just("bigfleet.lucy.sh/v1alpha1"),
        "kind": st.just("CapacityRequest"),
    },
)


@given(st.lists(requests, min_size=1, max_size=10))
def test_sharing_changes_nothing(objects: list[dict[str, Any]]) -> None:
    codec = Codec(CAPACITY_REQUESTS)
    with pytest.MonkeyPatch.context() as patch:
        # So few that remembering begins anew under way.
        patch.setattr(decode, "_MOST_PARTS", 2)
        for obj in objects:
            raw = msgspec.json.encode(obj)
            assert codec.one(raw) == msgspec.json.decode(raw, type=CapacityRequest)


@pytest.mark.parametrize("part", ["labels", "spec", "status", "creationTimestamp"])
def test_a_bad_part_is_refused_each_time(part: str) -> None:
    obj: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"resources": {}, "priority": 1}, "status": {}}
    (obj if part in obj else obj["metadata"])[part] = ["bad"]
    codec = Codec(CAPACITY_REQUESTS)
    for _ in range(2):
        with pytest.raises(msgspec.ValidationError):
            codec.one(msgspec.json.encode(obj))


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_of_every_kind_one_can_tell_that_it_is_gone(resource: Resource[Any]) -> None:
    codec = Codec(resource)
    raw = msgspec.Raw(b'{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"5","labels":3},"spec":0}')
    tombstone = codec.tombstone(codec.metadata(raw))
    assert tombstone.metadata == ObjectMeta(name="a", namespace="ns", uid="u", resource_version="5")


def test_a_page_sets_aside_what_cannot_be_read() -> None:
    good = {"metadata": {"name": "good"}, "spec": {"resources": {}, "priority": 1}}
    bad = {"metadata": {"name": "bad", "namespace": "ns"}, "spec": {"resources": {}, "priority": "high"}}
    page = Codec(CAPACITY_REQUESTS).page(
        msgspec.json.encode({"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [bad, good]})
    )
    assert [obj.metadata.name for obj in page.objects] == ["good"]
    assert [(one.metadata.namespace, one.metadata.name) for one in page.unreadable] == [("ns", "bad")]
    assert page.unreadable[0].problem == "Expected `int`, got `str` - at `$.priority`"
    assert (page.metadata.resource_version, page.metadata.continue_) == ("5", "t")
