"""A day of churn and failures, and what must be true of it; `day` itself sees that no law breaks on the way."""

import pytest

from tests.shard.rig.day import CLUSTERS, Story, day

# A day is half a minute of work, on a machine that may be busy.
pytestmark = pytest.mark.timeout(900)

HAPPENS = (
    "scaled",
    "session dropped",
    "session replaced",
    "operator refuses",
    "operator is slow",
    "operator is silent",
    "operator short-lived",
    "operator never ready",
    "operator never drains",
    "operator deaf",
    "sim down",
    "metal down",
    "crash",
    "restart",
    "pause",
    "disk full",
    "file lost",
    "host broken",
    "host gone",
    "cluster forgotten",
)
ENDS = (
    *(f"{kind} success" for kind in ("Bootstrap", "Provision", "Preempt", "Reclaim", "Delete")),
    *(f"Provision {outcome}" for outcome in ("failed", "bootstrap_error", "dropped", "exhausted", "refused")),
    *(f"Reclaim {outcome}" for outcome in ("failed", "dropped", "given_up")),
    "Delete failed",
)


@pytest.fixture(scope="module")
def story() -> Story:
    """Twenty-four hours of seed 1, after which the fleet came to rest, stayed at rest, and went home."""
    return day(1)


def test_everything_that_can_go_wrong_did(story: Story) -> None:
    assert [each for each in HAPPENS if not story.happened[each]] == []
    assert story.lives > 24


def test_actions_ended_in_every_way(story: Story) -> None:
    assert [each for each in ENDS if not story.outcomes[each]] == []


def test_every_cluster_was_served(story: Story) -> None:
    assert {made.cluster for made in story.made if made.call == "Configure"} == set(CLUSTERS)


def test_a_seed_makes_the_same_day_each_time_and_another_one_another() -> None:
    once = day(7, hours=1.0)
    assert day(7, hours=1.0) == once
    assert day(8, hours=1.0).made != once.made
