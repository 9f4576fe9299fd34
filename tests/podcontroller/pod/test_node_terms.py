"""Node selectors and affinities as alternatives of which each is a plain list of conditions."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.kube.objects.kinds import Pod
from bigfleet.model.demand.profile import Operator, Requirement
from bigfleet.model.labels import satisfies
from bigfleet.podcontroller.pod.complaints import APPROXIMATE, UNTRANSLATABLE
from bigfleet.podcontroller.pod.label_sets import holds, written
from bigfleet.podcontroller.pod.node_terms import MAX_TERMS, Places, places

Condition = tuple[str, str, tuple[str, ...]]
Term = list[Condition]


def pod(
    selector: dict[str, str] | None = None, terms: list[Term] | None = None, fields: dict[int, Term] | None = None
) -> Pod:
    spec: dict[str, Any] = {"nodeSelector": selector or {}}
    if terms is not None:
        required = {
            "nodeSelectorTerms": [
                {"matchExpressions": plain(term), "matchFields": plain((fields or {}).get(i, []))}
                for i, term in enumerate(terms)
            ]
        }
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return msgspec.convert({"metadata": {"name": "a"}, "spec": spec}, Pod)


def plain(term: Term) -> list[dict[str, Any]]:
    return [{"key": key, "operator": operator, "values": list(values)} for key, operator, values in term]


def conditions(found: Places) -> list[Term]:
    return [[(r.key, r.operator, r.values) for r in written(box)] for box in found.alternatives]


def is_in(key: str, *values: str) -> Condition:
    return (key, "In", values)


EXACT: list[tuple[str, dict[str, str], list[Term] | None, list[Term]]] = [
    ("nothing asked", {}, None, [[]]),
    ("a selector", {"zone": "a", "arch": "arm64"}, None, [[is_in("arch", "arm64"), is_in("zone", "a")]]),
    ("one term", {}, [[is_in("zone", "b", "a")]], [[is_in("zone", "a", "b")]]),
    (
        "every operator",
        {},
        [[("a", "NotIn", ("1",)), ("b", "Exists", ()), ("c", "DoesNotExist", ())]],
        [[("a", "NotIn", ("1",)), ("b", "Exists", ()), ("c", "DoesNotExist", ())]],
    ),
    (
        "selector and term hold together",
        {"arch": "arm64"},
        [[is_in("zone", "a")]],
        [[is_in("arch", "arm64"), is_in("zone", "a")]],
    ),
    ("a selector narrows a term", {"zone": "a"}, [[is_in("zone", "a", "b")]], [[is_in("zone", "a")]]),
    ("two lists on one label are cut", {}, [[is_in("z", "a", "b"), is_in("z", "b", "c")]], [[is_in("z", "b")]]),
    ("a list without what is excluded", {}, [[is_in("z", "a", "b"), ("z", "NotIn", ("a",))]], [[is_in("z", "b")]]),
    (
        "present, but not that",
        {},
        [[("z", "Exists", ()), ("z", "NotIn", ("a",))]],
        [[("z", "Exists", ()), ("z", "NotIn", ("a",))]],
    ),
    (
        "alternatives in the values of one label are one list",
        {},
        [[is_in("z", "a")], [is_in("z", "b")]],
        [[is_in("z", "a", "b")]],
    ),
    (
        "with all else equal",
        {},
        [[is_in("z", "a"), is_in("t", "x")], [is_in("t", "x"), is_in("z", "b")]],
        [[is_in("t", "x"), is_in("z", "a", "b")]],
    ),
    (
        "a narrower alternative adds nothing",
        {},
        [[is_in("z", "a"), is_in("t", "x")], [is_in("z", "a")]],
        [[is_in("z", "a")]],
    ),
    (
        "a wider alternative takes its place",
        {},
        [[is_in("z", "a")], [is_in("z", "a"), is_in("t", "x")]],
        [[is_in("z", "a")]],
    ),
    ("present or missing is anything", {}, [[("z", "Exists", ())], [("z", "DoesNotExist", ())]], [[]]),
    ("not a or not b is anything", {}, [[("z", "NotIn", ("a",))], [("z", "NotIn", ("b",))]], [[]]),
    ("an empty term matches nothing", {}, [[], [is_in("z", "a")]], [[is_in("z", "a")]]),
    (
        "an impossible alternative is none",
        {"z": "a"},
        [[is_in("z", "b")], [is_in("t", "x")]],
        [[is_in("t", "x"), is_in("z", "a")]],
    ),
    (
        "a chain of joins",
        {},
        [
            [is_in("z", "a"), is_in("t", "x")],
            [is_in("z", "b"), is_in("t", "y")],
            [is_in("z", "b"), is_in("t", "x")],
            [is_in("z", "a"), is_in("t", "y")],
        ],
        [[is_in("t", "x", "y"), is_in("z", "a", "b")]],
    ),
    (
        "a comparison picks among listed values",
        {},
        [[is_in("gen", "3", "5", "7", "x"), ("gen", "Gt", ("4",))]],
        [[is_in("gen", "5", "7")]],
    ),
    ("also the selector's", {"gen": "3"}, [[("gen", "Lt", ("4",))]], [[is_in("gen", "3")]]),
    (
        "another node's name excluded",
        {},
        [[is_in("z", "a"), ("kubernetes.io/hostname", "NotIn", ("n1",))]],
        [[is_in("z", "a")]],
    ),
    ("every node has a host name", {}, [[("kubernetes.io/hostname", "Exists", ())]], [[]]),
]


@pytest.mark.parametrize(
    ("selector", "terms", "expected"), [case[1:] for case in EXACT], ids=[case[0] for case in EXACT]
)
def test_what_can_be_said_exactly(selector: dict[str, str], terms: list[Term] | None, expected: list[Term]) -> None:
    found = places(pod(selector, terms))
    assert conditions(found) == expected
    assert found.complaints == ()


def test_alternatives_that_cannot_be_one_keep_the_pods_order_and_are_reported() -> None:
    found = places(pod(terms=[[is_in("z", "a"), is_in("t", "x")], [is_in("z", "b"), is_in("t", "y")]]))
    assert conditions(found) == [[is_in("t", "x"), is_in("z", "a")], [is_in("t", "y"), is_in("z", "b")]]
    (complaint,) = found.complaints
    assert complaint.reason == APPROXIMATE
    assert "2 alternatives" in complaint.note


def test_joined_alternatives_stand_where_the_first_of_them_stood() -> None:
    ways = [[is_in("z", "a"), is_in("t", "x")], [is_in("z", "b"), is_in("t", "y")], [is_in("z", "c"), is_in("t", "x")]]
    found = places(pod(terms=ways))
    assert conditions(found) == [[is_in("t", "x"), is_in("z", "a", "c")], [is_in("t", "y"), is_in("z", "b")]]


def test_listed_or_missing_cannot_be_one() -> None:
    found = places(pod(terms=[[is_in("z", "a")], [("z", "DoesNotExist", ())]]))
    assert len(found.alternatives) == 2
    assert found.complaints


@pytest.mark.parametrize(
    ("terms", "about"),
    [
        ([[("gen", "Gt", ("4",))]], "compares gen with Gt or Lt"),
        ([[("gen", "Lt", ("4",)), is_in("z", "a")]], "compares gen with Gt or Lt"),
        ([[("gen", "Gt", ("4",)), ("gen", "NotIn", ("9",))]], "compares gen"),
        ([[is_in("z", "a"), is_in("z", "b")]], "contradict"),
        ([[]], "contradict"),
        ([[("z", "Exists", ()), ("z", "DoesNotExist", ())]], "contradict"),
        ([[is_in("gen", "1", "2"), ("gen", "Gt", ("4",))]], "contradict"),
        ([[("kubernetes.io/hostname", "DoesNotExist", ())]], "contradict"),
        ([[("z", "Resembles", ("a",))]], "contradict"),
    ],
)
def test_what_cannot_be_said_at_all_is_reported(terms: list[Term], about: str) -> None:
    found = places(pod(terms=terms))
    assert found.alternatives == ()
    (complaint,) = found.complaints
    assert complaint.reason == UNTRANSLATABLE
    assert about in complaint.note


def test_of_alternatives_those_that_can_be_said_are_taken_and_the_loss_is_reported() -> None:
    found = places(pod(terms=[[("gen", "Gt", ("4",))], [is_in("z", "a")]]))
    assert conditions(found) == [[is_in("z", "a")]]
    assert [complaint.reason for complaint in found.complaints] == [APPROXIMATE]


@pytest.mark.parametrize("bound", ["", "4.0", " 4", "1_0", "9" * 30, "٤"])
def test_a_comparison_with_no_number_matches_nothing(bound: str) -> None:
    assert places(pod(terms=[[is_in("gen", "5"), ("gen", "Gt", (bound,))]])).alternatives == ()
    assert places(pod(terms=[[is_in("gen", "5"), ("gen", "Lt", (bound,))]])).alternatives == ()


NAMED: Term = [("metadata.name", "In", ("node-7",))]


@pytest.mark.parametrize(
    "pinned",
    [
        pod(terms=[[]], fields={0: NAMED}),
        pod(terms=[[is_in("z", "a")]], fields={0: NAMED}),
        pod({"kubernetes.io/hostname": "node-7"}),
        pod(terms=[[is_in("kubernetes.io/hostname", "node-7", "node-8")]]),
    ],
)
def test_a_pod_that_names_its_node_asks_for_no_machine_and_nobody_is_told(pinned: Pod) -> None:
    assert places(pinned) == Places(())


def test_a_pod_that_may_also_go_elsewhere_asks_for_that() -> None:
    found = places(pod(terms=[[], [is_in("z", "a")]], fields={0: NAMED}))
    assert conditions(found) == [[is_in("z", "a")]]
    assert found.complaints


def test_a_field_that_excludes_a_node_says_nothing_of_new_machines() -> None:
    found = places(pod(terms=[[]], fields={0: [("metadata.name", "NotIn", ("node-7",))]}))
    assert conditions(found) == [[]]


def test_a_thousand_alternatives_are_bounded_and_reported() -> None:
    found = places(pod(terms=[[is_in(f"k{i}", "a")] for i in range(1000)]))
    assert len(found.alternatives) == MAX_TERMS
    assert found.complaints


KEYS, VALUES = ("gen", "zone", "type"), ("1", "2", "3")
condition_values = st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(tuple)
drawn = st.one_of(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["In", "NotIn"]), condition_values),
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["Exists", "DoesNotExist"]), st.just(())),
)
comparing = st.tuples(st.sampled_from(KEYS), st.sampled_from(["Gt", "Lt"]), st.sampled_from(VALUES).map(lambda v: (v,)))
nodes = st.dictionaries(st.sampled_from(KEYS), st.sampled_from((*VALUES, "4", "many")))
selectors = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2)


def meets(condition: Condition, labels: dict[str, str]) -> bool:
    """One condition as Kubernetes' documentation has it, with nothing of ours."""
    key, operator, values = condition
    have = labels.get(key)
    if operator in {"Gt", "Lt"}:
        if have is None or not have.isdigit():
            return False
        return int(have) > int(values[0]) if operator == "Gt" else int(have) < int(values[0])
    return {
        "In": have in values,
        "NotIn": have not in values,
        "Exists": have is not None,
        "DoesNotExist": have is None,
    }[operator]


def fits(selector: dict[str, str], terms: list[Term], labels: dict[str, str]) -> bool:
    own = all(labels.get(key) == value for key, value in selector.items())
    return own and any(term and all(meets(condition, labels) for condition in term) for term in terms)


@given(selectors, st.lists(st.lists(drawn, max_size=4), min_size=1, max_size=5), st.lists(nodes, max_size=20))
def test_without_comparisons_the_alternatives_hold_exactly_the_nodes_that_fit(
    selector: dict[str, str], terms: list[Term], clusters: list[dict[str, str]]
) -> None:
    found = places(pod(selector, terms))
    for labels in clusters:
        assert any(holds(box, labels) for box in found.alternatives) == fits(selector, terms, labels)


@given(
    selectors, st.lists(st.lists(drawn | comparing, max_size=4), min_size=1, max_size=5), st.lists(nodes, max_size=20)
)
def test_whatever_is_asked_for_every_machine_given_will_do(
    selector: dict[str, str], terms: list[Term], clusters: list[dict[str, str]]
) -> None:
    found = places(pod(selector, terms))
    for labels in clusters:
        for box in found.alternatives:
            asked = [Requirement(r.key, OPERATORS[r.operator], r.values) for r in written(box)]
            if all(satisfies(labels, requirement) for requirement in asked):
                assert fits(selector, terms, labels)
                assert holds(box, labels)


OPERATORS = {operator.label: operator for operator in Operator}
