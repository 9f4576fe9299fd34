import pytest

from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Operator, Profile, ProfileError, Requirement, Spread, WhenUnsatisfiable


def test_a_row_asks_for_as_many_units_as_its_scarcest_dimension_needs() -> None:
    aggregate = (("cpu", 10_000), ("memory", 7_000), ("only-in-the-sum", 99))
    assert Need(Profile(), aggregate, (("cpu", 2_000), ("memory", 1_000))).units == 7
    assert Need(Profile(), aggregate, (("cpu", 3_000),)).units == 4


def test_a_divisible_row_counts_as_one() -> None:
    assert Need(Profile(), (("cpu", 10_000),), ()).units == 1


def test_a_row_is_known_by_profile_group_and_unit() -> None:
    one = Need(Profile(priority=1), (("cpu", 4),), (("cpu", 2),), "g")
    assert one.key == Need(Profile(priority=1), (("cpu", 6),), (("cpu", 2),), "g").key
    for other in (
        Need(Profile(priority=2), (("cpu", 4),), (("cpu", 2),), "g"),
        Need(Profile(priority=1), (("cpu", 4),), (("cpu", 1),), "g"),
        Need(Profile(priority=1), (("cpu", 4),), (("cpu", 2),), "h"),
    ):
        assert other.key != one.key


@pytest.mark.parametrize(
    ("profile", "word"),
    [
        (Profile(requirements=(Requirement("rack", Operator.SAME),)), "SAME"),
        (Profile(spread=(Spread("zone", 1, WhenUnsatisfiable.DO_NOT_SCHEDULE),)), "spread"),
        (Profile(max_per_machine=1), "max_per_machine"),
    ],
)
def test_a_row_that_must_stay_whole_needs_a_unit(profile: Profile, word: str) -> None:
    with pytest.raises(ProfileError, match=rf"min_unit: is missing, but a need with {word}"):
        Need(profile, (("cpu", 1),), ())
