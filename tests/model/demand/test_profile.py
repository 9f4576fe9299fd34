import subprocess
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Profile, ProfileError, Requirement, Spread, WhenUnsatisfiable

ZONE = "topology.kubernetes.io/zone"

plain = st.builds(
    lambda key, operator, values: Requirement(key, operator, tuple(values)),
    st.sampled_from(["a", "b", ZONE]),
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.lists(st.sampled_from("xyz"), min_size=1),
)
bare = st.builds(Requirement, st.sampled_from("ab"), st.sampled_from([Operator.EXISTS, Operator.SAME]))
spreads = st.builds(Spread, st.sampled_from("ab"), st.integers(1, 3), st.sampled_from(WhenUnsatisfiable))
profiles = st.builds(
    lambda requirements, spread, priority, interruption, reclamation, limit: Profile(
        requirements=tuple(requirements),
        spread=tuple(spread),
        priority=priority,
        interruption=interruption,
        reclamation=reclamation,
        max_per_machine=limit,
    ),
    st.lists(plain | bare, max_size=4),
    st.lists(spreads, max_size=2),
    st.integers(-2, 2),
    st.sampled_from(PenaltyBucket),
    st.sampled_from(PenaltyBucket),
    st.integers(0, 2),
)

# Pinned for ever: stored state and other programs hold these.
PINNED = [
    (Profile(), "cec587414ab92ba000f0325b4993e2d4"),
    (
        Profile(
            requirements=(
                Requirement(ZONE, Operator.IN, ("eu-1b", "eu-1a")),
                Requirement("bigfleet.lucy.sh/capacity-type", Operator.NOT_IN, ("Spot",)),
            ),
            priority=1_000_000,
            interruption=PenaltyBucket.PINNED,
            reclamation=PenaltyBucket.P_65536,
        ),
        "deafde4ba1040cf65cc02186b50a1e59",
    ),
    (
        Profile(
            requirements=(Requirement("rack", Operator.SAME), Requirement("gpu", Operator.EXISTS)),
            spread=(Spread(ZONE, 1, WhenUnsatisfiable.SCHEDULE_ANYWAY),),
            priority=-5,
            max_per_machine=1,
        ),
        "30e25a4faeeb36f6a4f22b4bcc6e9bf8",
    ),
    (Profile(requirements=(Requirement("größe", Operator.IN, ("€", "😀")),)), "325cbf6330acac9ca2ef25664dca08b0"),
]


@pytest.mark.parametrize(("profile", "fingerprint"), PINNED)
def test_fingerprints_of_old_releases_still_hold(profile: Profile, fingerprint: str) -> None:
    assert profile.fingerprint == fingerprint


def test_another_process_computes_the_same_fingerprint() -> None:
    code = "from bigfleet.model.demand.profile import Profile; print(Profile(priority=7).fingerprint)"
    other = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": "3"}
    )
    assert other.stdout.strip() == Profile(priority=7).fingerprint


@given(profiles, st.randoms())
def test_order_and_repetition_of_parts_change_nothing(profile: Profile, random: Random) -> None:
    requirements = [
        Requirement(r.key, r.operator, tuple(random.sample(r.values, len(r.values)))) for r in profile.requirements
    ] * 2
    spread = list(profile.spread) * 2
    random.shuffle(requirements)
    random.shuffle(spread)
    other = Profile(
        requirements=tuple(requirements),
        spread=tuple(spread),
        priority=profile.priority,
        interruption=profile.interruption,
        reclamation=profile.reclamation,
        max_per_machine=profile.max_per_machine,
    )
    assert other == profile
    assert other.fingerprint == profile.fingerprint


def parts(p: Profile) -> tuple[object, ...]:
    return (p.requirements, p.spread, p.priority, p.interruption, p.reclamation, p.max_per_machine)


@given(profiles, profiles)
def test_profiles_are_equal_exactly_when_their_fingerprints_are(one: Profile, other: Profile) -> None:
    assert (parts(one) == parts(other)) == (one.fingerprint == other.fingerprint)


def test_same_is_told_from_the_requirements_on_single_machines() -> None:
    same = Requirement("rack", Operator.SAME, ("r1",))
    assert Profile(requirements=(same, Requirement("gpu", Operator.EXISTS))).same == (same,)
    assert Profile().same == ()


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Requirement("", Operator.EXISTS), "key"),
        (lambda: Requirement("a", Operator.IN), "values"),
        (lambda: Requirement("a", Operator.NOT_IN), "values"),
        (lambda: Requirement("a", Operator.EXISTS, ("x",)), "values"),
        (lambda: Requirement("a", Operator.DOES_NOT_EXIST, ("x",)), "values"),
        (lambda: Spread("", 1, WhenUnsatisfiable.DO_NOT_SCHEDULE), "topology_key"),
        (lambda: Spread("a", 0, WhenUnsatisfiable.DO_NOT_SCHEDULE), "max_skew"),
        (lambda: Profile(priority=2**31), "priority"),
        (lambda: Profile(max_per_machine=-1), "max_per_machine"),
    ],
)
def test_a_part_that_cannot_be_is_refused_by_name(make: object, field: str) -> None:
    assert callable(make)
    with pytest.raises(ProfileError) as caught:
        make()
    assert caught.value.field == field
