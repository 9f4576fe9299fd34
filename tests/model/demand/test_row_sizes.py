import random

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Profile
from bigfleet.model.demand.row_sizes import neighbours
from bigfleet.model.resources import Resources, largest, total

size_lists = st.lists(
    st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(1, 2**44), min_size=1).map(
        lambda d: tuple(sorted(d.items()))
    ),
    min_size=1,
    max_size=30,
    unique=True,
)


def box(cpu: int, memory: int) -> Resources:
    return (("cpu", cpu), ("memory", memory))


@given(size_lists, st.integers(1, 8))
def test_every_size_stands_in_one_group_and_there_are_no_more_than_asked(sizes: list[Resources], limit: int) -> None:
    groups = neighbours(sizes, limit)
    assert sorted(size for group in groups for size in group) == sorted(sizes)
    assert 1 <= len(groups) <= limit


@given(size_lists, st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_groups_do_not_depend_on_the_order_of_the_sizes(
    sizes: list[Resources], limit: int, rng: random.Random
) -> None:
    shuffled = list(sizes)
    rng.shuffle(shuffled)
    assert neighbours(shuffled, limit) == neighbours(sizes, limit)


def test_few_enough_sizes_are_left_alone() -> None:
    sizes = {box(cpu, 1) for cpu in range(1, 65)}
    assert neighbours(sizes, 64) == [[size] for size in sorted(sizes)]


def test_as_many_groups_are_made_as_allowed_while_sizes_differ() -> None:
    assert len(neighbours({box(cpu, 1) for cpu in range(1, 66)}, 64)) == 64


def test_neighbours_share_and_strangers_do_not() -> None:
    narrow_and_tall = [box(100, 60_000), box(110, 64_000)]
    wide_and_flat = [box(15_000, 900), box(16_000, 1_000)]
    groups = neighbours(narrow_and_tall + wide_and_flat, 2)
    assert sorted(map(sorted, groups)) == sorted([sorted(narrow_and_tall), sorted(wide_and_flat)])


def test_small_sizes_are_told_apart_as_well_as_large_ones() -> None:
    groups = neighbours([box(100, 1), box(200, 1), box(16_000, 1), box(16_100, 1)], 3)
    assert [box(100, 1)] in groups
    assert [box(200, 1)] in groups


def test_a_size_without_a_dimension_does_not_share_with_one_that_has_it() -> None:
    plain, with_gpu = (("cpu", 1000),), (("cpu", 1000), ("gpu", 1))
    assert neighbours([plain, with_gpu, (("cpu", 1100),)], 2) == [[plain, (("cpu", 1100),)], [with_gpu]]


def test_a_thousand_random_sizes_ask_for_little_more_in_sixty_four_rows() -> None:
    rng = random.Random(1)
    sizes = {
        box(int(100 * 2 ** rng.uniform(0, 7)), int(128 * 2 ** rng.uniform(0, 9))): rng.randrange(1, 50)
        for _ in range(1_000)
    }
    asked = dict(total(sizes.items()))
    counted = dict.fromkeys(asked, 0)
    for group in neighbours(sizes, 64):
        unit = largest(group)
        units = Need(Profile(), total((size, sizes[size]) for size in group), unit).units
        for name, amount in unit:
            counted[name] += units * amount
    for name, amount in asked.items():
        assert amount <= counted[name] <= 1.15 * amount
