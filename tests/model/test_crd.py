"""The structs of the three kinds: JSON and YAML in, the same out, and errors that name what is wrong and where."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.crd import (
    API_VERSION,
    AvailableCapacity,
    AvailableCapacityList,
    AvailableCapacitySpec,
    CapacityRequest,
    CapacityRequestList,
    CapacityRequestSpec,
    CapacityRequestStatus,
    CoLocation,
    LabelSelector,
    ListMeta,
    ManifestError,
    NodeRef,
    NodeTemplate,
    ObjectMeta,
    OwnerReference,
    SelectorRequirement,
    Taint,
    TopologySpreadConstraint,
    UpcomingNode,
    UpcomingNodeList,
    UpcomingNodeSpec,
    UpcomingNodeStatus,
    load_manifests,
)

EXAMPLES = sorted(
    file
    for folder in ("capacity-requests", "status")
    for file in (Path(__file__).parents[2] / "examples" / folder).glob("*.yaml")
)

MANIFEST = """
apiVersion: bigfleet.lucy.sh/v1alpha1
kind: CapacityRequest
metadata: {name: web-0, namespace: shop}
spec:
  priority: 1000
  resources: {cpu: 500m, memory: 1Gi}
"""

names = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=8)
maybe_names = st.none() | names
int32 = st.integers(-(2**31), 2**31 - 1)
positive = st.integers(1, 2**31 - 1)
amounts = st.integers(0, 2**63 - 1) | st.sampled_from(["0", "500m", "1.5Gi", "1e3", ""])
resources = st.dictionaries(names, amounts, max_size=3)
labels = st.dictionaries(names, names, max_size=3)
times = st.none() | st.datetimes(
    datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))])
)


def some(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3).map(tuple)


requirements = some(
    st.builds(
        SelectorRequirement,
        key=names,
        operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        values=some(names),
    )
)
taints = some(st.builds(Taint, key=names, effect=st.sampled_from(["NoSchedule", "NoExecute"]), value=names))
metadata = st.builds(
    ObjectMeta,
    name=names,
    generate_name=names,
    namespace=names,
    uid=names,
    resource_version=names,
    generation=st.integers(0, 2**40),
    creation_timestamp=times,
    deletion_timestamp=times,
    labels=labels,
    annotations=labels,
    owner_references=some(
        st.builds(OwnerReference, api_version=names, kind=names, name=names, uid=names, controller=st.booleans())
    ),
    finalizers=some(names),
)
objects = st.one_of(
    st.builds(
        CapacityRequest,
        metadata=metadata,
        spec=st.builds(
            CapacityRequestSpec,
            requirements=requirements,
            resources=resources,
            priority=int32,
            interruption_penalty=amounts,
            reclamation_penalty=amounts,
            topology_spread=some(
                st.builds(
                    TopologySpreadConstraint,
                    topology_key=names,
                    max_skew=positive,
                    when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
                )
            ),
            co_location=st.none()
            | st.builds(
                CoLocation,
                topology_key=names,
                label_selector=st.builds(LabelSelector, match_labels=labels, match_expressions=requirements),
            ),
            max_per_node=st.none() | positive,
        ),
        status=st.none()
        | st.builds(CapacityRequestStatus, phase=st.sampled_from(["Pending", "Acknowledged"]), acknowledged_at=times),
    ),
    st.builds(
        AvailableCapacity,
        metadata=metadata,
        spec=st.builds(
            AvailableCapacitySpec,
            requirements=requirements,
            resources=resources,
            available_count=st.none() | st.integers(0, 2**31 - 1),
            availability=st.sampled_from([None, "None", "High"]),
            cost=maybe_names,
            node_template=st.none() | st.builds(NodeTemplate, labels=labels, taints=taints),
            supports_atomic_provisioning=st.none() | st.booleans(),
            estimated_provisioning_time=maybe_names,
        ),
    ),
    st.builds(
        UpcomingNode,
        metadata=metadata,
        spec=st.builds(UpcomingNodeSpec, resources=resources, labels=labels, taints=taints),
        status=st.none()
        | st.builds(
            UpcomingNodeStatus,
            phase=st.sampled_from([None, "Provisioning", "Failed"]),
            node_ref=st.none() | st.builds(NodeRef, name=names),
            provider_id=names,
            last_error=names,
            provisioning_start_time=times,
            estimated_ready_time=times,
        ),
    ),
)


@given(objects)
def test_whatever_is_encoded_decodes_to_the_same(thing: CapacityRequest | AvailableCapacity | UpcomingNode) -> None:
    assert msgspec.json.decode(msgspec.json.encode(thing), type=type(thing)) == thing


@given(objects)
def test_kind_and_version_are_always_written(thing: CapacityRequest | AvailableCapacity | UpcomingNode) -> None:
    written = json.loads(msgspec.json.encode(thing))
    assert (written["apiVersion"], written["kind"]) == (API_VERSION, type(thing).__name__)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_comes_back_as_it_was_written(path: Path) -> None:
    written = [json.loads(msgspec.json.encode(thing)) for thing in load_manifests(path.read_text(), path.name).values()]
    assert written == [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def test_the_examples_are_enough_for_a_table_worth_looking_at() -> None:
    things = [thing for path in EXAMPLES for thing in load_manifests(path.read_text(), path.name).values()]
    requests = [thing for thing in things if isinstance(thing, CapacityRequest)]
    assert {type(thing) for thing in things} == {CapacityRequest, AvailableCapacity, UpcomingNode}
    assert 40 <= len(requests) <= 60
    assert len({(request.metadata.namespace, request.metadata.name) for request in requests}) == len(requests)
    assert len({request.metadata.namespace for request in requests}) >= 5


def test_a_request_from_the_api_server_is_read_and_what_we_do_not_know_is_left_out() -> None:
    request = msgspec.json.decode(
        b"""{"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest",
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-03-02T09:14:05Z", "managedFields": [{"manager": "kubectl"}]},
        "spec": {"priority": -5, "resources": {"cpu": "500m", "nvidia.com/gpu": 1}, "interruptionPenalty": "0.50",
            "requirements": [{"key": "zone", "operator": "In", "values": ["a", "b"], "weight": 3}],
            "topologySpread": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
            "coLocation": {"topologyKey": "rack", "labelSelector": {"matchLabels": {"run": "a"}}},
            "maxPerNode": 1, "tomorrow": {}},
        "status": {"phase": "Acknowledged", "acknowledgedAt": "2026-03-02T09:14:15Z"}}""",
        type=CapacityRequest,
    )
    assert request == CapacityRequest(
        metadata=ObjectMeta(
            name="web-0",
            namespace="shop",
            uid="u",
            resource_version="7",
            generation=1,
            creation_timestamp=datetime(2026, 3, 2, 9, 14, 5, tzinfo=UTC),
        ),
        spec=CapacityRequestSpec(
            priority=-5,
            resources={"cpu": "500m", "nvidia.com/gpu": 1},
            interruption_penalty="0.50",
            requirements=(SelectorRequirement("zone", "In", ("a", "b")),),
            topology_spread=(TopologySpreadConstraint("zone", 1, "DoNotSchedule"),),
            co_location=CoLocation("rack", LabelSelector(match_labels={"run": "a"})),
            max_per_node=1,
        ),
        status=CapacityRequestStatus("Acknowledged", datetime(2026, 3, 2, 9, 14, 15, tzinfo=UTC)),
    )


def test_names_in_json_are_those_of_kubernetes() -> None:
    node = UpcomingNode(
        metadata=ObjectMeta(name="m-1"),
        spec=UpcomingNodeSpec(resources={"cpu": 1}),
        status=UpcomingNodeStatus(phase="Ready", provider_id="sim://m-1", node_ref=NodeRef("n")),
    )
    assert json.loads(msgspec.json.encode(node)) == {
        "apiVersion": API_VERSION,
        "kind": "UpcomingNode",
        "metadata": {"name": "m-1"},
        "spec": {"resources": {"cpu": 1}},
        "status": {"phase": "Ready", "providerID": "sim://m-1", "nodeRef": {"name": "n"}},
    }


@pytest.mark.parametrize("type_", [CapacityRequestList, AvailableCapacityList, UpcomingNodeList])
def test_a_page_of_a_list_tells_where_the_next_one_begins(type_: Any) -> None:
    page = msgspec.json.decode(
        b'{"kind": "L", "metadata": {"resourceVersion": "9", "continue": "abc", "remainingItemCount": 3}, "items": []}',
        type=type_,
    )
    assert page == type_(ListMeta(resource_version="9", continue_="abc", remaining_item_count=3), ())


def test_a_status_of_nothing_is_pending_and_says_so() -> None:
    status = msgspec.json.decode(b"{}", type=CapacityRequestStatus)
    assert msgspec.json.encode(status) == b'{"phase":"Pending"}'


def test_what_decides_a_profile_can_be_hashed_and_nothing_can_be_changed() -> None:
    (request,) = load_manifests(MANIFEST + "  requirements: [{key: zone, operator: Exists}]", "web.yaml").values()
    assert isinstance(request, CapacityRequest)
    assert hash((request.spec.requirements, request.spec.topology_spread)) != hash(((), ()))
    with pytest.raises(AttributeError):
        request.spec.priority = 7  # type: ignore[misc]  # the point of the test


def test_manifests_come_in_order_and_empty_documents_count_but_yield_nothing() -> None:
    text = f"# only a comment\n---\n{MANIFEST}---\n---\n{MANIFEST.replace('web-0', 'web-1')}---\n"
    found = load_manifests(text, "web.yaml")
    assert {number: thing.metadata.name for number, thing in found.items()} == {1: "web-0", 3: "web-1"}
    assert load_manifests("", "empty.yaml") == {}
    with pytest.raises(ManifestError, match=r"^web\.yaml: document 4: kind: "):
        load_manifests(text + "kind: Pod", "web.yaml")


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        (("priority: 1000", "priority: high"), "spec.priority", "Expected `int`, got `str`"),
        (("priority: 1000", "priority: 2147483648"), "spec.priority", "<= 2147483647"),
        (("  priority: 1000\n", ""), "spec", "missing required field `priority`"),
        (("cpu: 500m", "cpu: 0.5"), "spec.resources[cpu]", "got `float`; put it in quotes"),
        (("memory: 1Gi", "memory: [1]"), "spec.resources[memory]", "got `array`"),
        (("memory: 1Gi", "memory: 9223372036854775808"), "spec.resources[memory]", "9223372036854775807"),
        (("shop}", "shop, labels: {a: b, on-call: yes}}"), "metadata.labels[on-call]", "`bool`; put it in quotes"),
        (("shop}", "shop, creationTimestamp: today}"), "metadata.creationTimestamp", "RFC3339"),
        (("shop}", "shop, creationTimestamp: 2026-03-02T09:14:05}"), "metadata.creationTimestamp", "timezone"),
        (("name: web-0, ", ""), "metadata.name", "give it a name, or generateName"),
        (("kind: CapacityRequest", "kind: Deployment"), "kind", "'Deployment' is none of CapacityRequest,"),
        (("kind: CapacityRequest", "kind: [a]"), "kind", "['a'] is none of CapacityRequest,"),
        (("kind: CapacityRequest\n", ""), "kind", "None is none of CapacityRequest,"),
        (("v1alpha1", "v2"), "apiVersion", "'bigfleet.lucy.sh/v2' is not bigfleet.lucy.sh/v1alpha1"),
        (("spec:", "spec:\n  maxPerNode: 0"), "spec.maxPerNode", ">= 1"),
        (("spec:", "spec:\n  requirements: zone"), "spec.requirements", "Expected `array`"),
        (
            ("spec:", "spec:\n  requirements: [{key: a, operator: Exists}, {key: b, operator: Same}]"),
            "spec.requirements[1].operator",
            "Invalid enum value 'Same': write one of DoesNotExist, Exists, In, NotIn",
        ),
        (
            ("spec:", "spec:\n  coLocation: {topologyKey: a, labelSelector: {matchLabels: {b: c, d: 1}}}"),
            "spec.coLocation.labelSelector.matchLabels[d]",
            "put it in quotes",
        ),
        (("spec:", "status: {phase: Gone}\nspec:"), "status.phase", "write one of Acknowledged, Pending"),
    ],
)
def test_a_malformed_manifest_is_refused_by_source_document_and_field(
    change: tuple[str, str], field: str, words: str
) -> None:
    assert change[0] in MANIFEST
    with pytest.raises(ManifestError) as caught:
        load_manifests(f"{MANIFEST}---\n{MANIFEST.replace(*change)}", "web.yaml")
    error = caught.value
    assert (error.source, error.document, error.field) == ("web.yaml", 2, field)
    assert words in error.reason
    assert str(error) == f"web.yaml: document 2: {field}: {error.reason}"


def test_the_wrong_key_of_a_mapping_is_named_though_more_is_wrong_elsewhere() -> None:
    text = MANIFEST.replace("shop}", "shop, labels: {good: a, bad: 1}}").replace("1000", "high").replace("500m", "0.5")
    with pytest.raises(ManifestError) as caught:
        load_manifests(text, "web.yaml")
    assert caught.value.field == "metadata.labels[bad]"


def test_broken_yaml_is_refused_by_source_document_and_line() -> None:
    with pytest.raises(ManifestError, match=r"^web\.yaml: document 2: line 10: ") as caught:
        load_manifests(f"{MANIFEST}---\nspec: [", "web.yaml")
    assert caught.value.document == 2


@pytest.mark.parametrize("text", ["- a", "a", "7"])
def test_a_document_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(ManifestError, match=r"^web\.yaml: document 1: holds no mapping"):
        load_manifests(text, "web.yaml")


def test_an_error_is_one_short_printable_line_whatever_the_manifest_holds() -> None:
    for kind in (r'"\e[31mred\n"', "K" * 100_000):
        with pytest.raises(ManifestError) as caught:
            load_manifests(f"kind: {kind}", "web.yaml")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 300


@given(st.text(max_size=60) | st.text("-:?[]{}&*!|>'\"%@`#,\n ab1.", max_size=60))
def test_any_text_gives_manifests_or_a_manifest_error(text: str) -> None:
    try:
        things = load_manifests(text, "fuzz.yaml")
    except ManifestError as error:
        assert str(error).startswith("fuzz.yaml: ")
    else:
        assert things == {}
