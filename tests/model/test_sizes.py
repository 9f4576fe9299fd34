import random

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.resources import Resources, largest
from bigfleet.model.sizes import neighbours

sizes_with_counts = st.dictionaries(
    st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(1, 2**44), min_size=1).map(
        lambda d: tuple(sorted(d.items()))
    ),
    st.integers(1, 250_000),
    min_size=1,
    max_size=30,
)


def box(cpu: int, memory: int) -> Resources:
    return (("cpu", cpu), ("memory", memory))


@given(sizes_with_counts, st.integers(1, 8))
def test_every_size_stands_in_one_group_and_there_are_no_more_than_asked(
    sizes: dict[Resources, int], limit: int
) -> None:
    groups = neighbours(sizes, limit)
    assert sorted(size for group in groups for size in group) == sorted(sizes)
    assert len(groups) == min(limit, len(sizes))


@given(sizes_with_counts, st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_groups_do_not_depend_on_the_order_of_the_sizes(
    sizes: dict[Resources, int], limit: int, rng: random.Random
) -> None:
    shuffled = list(sizes.items())
    rng.shuffle(shuffled)
    assert neighbours(dict(shuffled), limit) == neighbours(sizes, limit)


def test_few_enough_sizes_are_left_alone() -> None:
    sizes = {box(cpu, 1): 1 for cpu in range(1, 65)}
    assert neighbours(sizes, 64) == [[size] for size in sorted(sizes)]


def test_neighbours_share_and_strangers_do_not() -> None:
    narrow_and_tall = [box(100, 60_000), box(110, 64_000)]
    wide_and_flat = [box(15_000, 900), box(16_000, 1_000)]
    groups = neighbours(dict.fromkeys(narrow_and_tall + wide_and_flat, 1), 2)
    assert sorted(map(sorted, groups)) == sorted([sorted(narrow_and_tall), sorted(wide_and_flat)])


def test_a_common_size_is_kept_exact_before_rare_ones() -> None:
    sizes = {box(1_000, 1_000): 100_000, box(1_100, 1_100): 1, box(1_200, 1_200): 1}
    assert [box(1_000, 1_000)] in neighbours(sizes, 2)


def test_a_thousand_random_sizes_cost_little_more_in_sixty_four_rows() -> None:
    rng = random.Random(1)
    sizes = {
        box(int(100 * 2 ** rng.uniform(0, 7)), int(128 * 2 ** rng.uniform(0, 9))): rng.randrange(1, 50)
        for _ in range(1_000)
    }
    asked = {name: sum(dict(size)[name] * count for size, count in sizes.items()) for name in ("cpu", "memory")}
    counted = dict.fromkeys(asked, 0)
    for group in neighbours(sizes, 64):
        unit = dict(largest(group))
        for name in counted:
            counted[name] += unit[name] * sum(sizes[size] for size in group)
    for name, amount in asked.items():
        assert amount <= counted[name] <= 1.25 * amount
