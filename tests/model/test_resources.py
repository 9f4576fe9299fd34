import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.resources import (
    MAX_TOTAL,
    MAX_UNITS,
    ResourceError,
    Resources,
    demand,
    largest,
    quantities,
    supply,
    total,
)

names = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "pods"])
vectors = st.dictionaries(names, st.integers(1, MAX_UNITS), max_size=4).map(lambda d: tuple(sorted(d.items())))


def test_cpu_counts_in_millicores_bytes_in_kib_and_the_rest_in_ones() -> None:
    asked: dict[str, str | int] = {
        "cpu": "1.5",
        "memory": "1Gi",
        "ephemeral-storage": "10Mi",
        "hugepages-1Gi": "2Gi",
        "nvidia.com/gpu": 8,
    }
    assert demand(asked) == (
        ("cpu", 1500),
        ("ephemeral-storage", 10 * 1024),
        ("hugepages-1Gi", 2 * 1024**2),
        ("memory", 1024**2),
        ("nvidia.com/gpu", 8),
    )


def test_demand_rounds_up_and_supply_rounds_down() -> None:
    odd = {"cpu": "1500u", "memory": "1025", "nvidia.com/gpu": "1500m"}
    assert demand(odd) == (("cpu", 2), ("memory", 2), ("nvidia.com/gpu", 2))
    assert supply(odd) == (("cpu", 1), ("memory", 1), ("nvidia.com/gpu", 1))


def test_nothing_of_a_resource_is_no_entry() -> None:
    assert demand({"cpu": "0", "memory": 0}) == ()
    assert supply({"cpu": "900u"}) == ()


@pytest.mark.parametrize(
    ("asked", "name", "problem"),
    [
        ({"cpu": "-1"}, "cpu", "'-1' is negative"),
        ({"nvidia.com/gpu": "-1n"}, "nvidia.com/gpu", "'-1n' is negative"),
        ({"memory": "lots"}, "memory", "'lots' is no quantity"),
        ({"memory": "1Ei"}, "memory", "'1Ei' is more than 16Pi"),
        ({"": "1"}, "", "a resource name has 1 to 317 characters"),
        ({"x" * 400: "1"}, "x" * 64, "a resource name has 1 to 317 characters"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(asked: dict[str, str], name: str, problem: str) -> None:
    for read in (demand, supply):
        with pytest.raises(ResourceError) as caught:
            read(asked)
        assert caught.value.name == name
        assert problem in str(caught.value)


@given(vectors)
def test_a_vector_survives_being_written_as_quantities(vector: Resources) -> None:
    assert demand(quantities(vector)) == supply(quantities(vector)) == vector


def test_a_fleet_of_five_million_of_the_largest_machines_can_be_summed() -> None:
    machine = supply({"cpu": "1k", "memory": "24Ti", "ephemeral-storage": "100Ti"})
    fleet = total([(machine, 5_000_000)])
    assert dict(fleet)["memory"] == 24 * 2**30 * 5_000_000 < MAX_TOTAL
    assert demand(quantities(fleet), MAX_TOTAL) == fleet


def test_a_sum_that_cannot_be_counted_is_refused_by_name() -> None:
    assert total([((("cpu", MAX_UNITS),), 262_144)]) == (("cpu", MAX_TOTAL),)
    with pytest.raises(ResourceError, match="resource 'cpu': the sum is more than"):
        total([((("cpu", MAX_UNITS),), 262_145)])


@given(st.lists(st.tuples(vectors, st.integers(1, 9)), max_size=5))
def test_a_sum_holds_every_part_and_the_largest_unit_covers_every_part(parts: list[tuple[Resources, int]]) -> None:
    dimensions = {name for vector, _ in parts for name, _ in vector}
    sums, peaks = dict(total(parts)), dict(largest(vector for vector, _ in parts))
    assert sums.keys() == peaks.keys() == dimensions
    for name in dimensions:
        amounts = [(dict(vector).get(name, 0), times) for vector, times in parts]
        assert sums[name] == sum(amount * times for amount, times in amounts)
        assert peaks[name] == max(amount for amount, _ in amounts)
