"""A day of churn and failures, and what must be true of it; `day` itself sees that no law breaks on the way."""

import pytest

from tests.shard.rig.day import Story, day
from tests.shard.rig.day_fleet import CLUSTERS

# A day is half a minute of work, on a machine that may be busy.
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("compiled_engine")]

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


def test_a_day_in_which_everything_goes_wrong_ends_at_rest_with_every_cluster_served() -> None:
    """Twenty-four hours of seed 3, after which the fleet came to rest, stayed at rest, and went home."""
    story: Story = day(3)
    assert [each for each in HAPPENS if not story.happened[each]] == []
    assert story.lives > 24
    # Actions ended in every way.
    assert [each for each in ENDS if not story.outcomes[each]] == []
    assert {made.cluster for made in story.made if made.call == "Configure"} == set(CLUSTERS)


def test_a_seed_makes_the_same_day_each_time_and_another_one_another() -> None:
    once = day(7, hours=1.0)
    assert day(7, hours=1.0) == once
    assert day(8, hours=1.0).made != once.made
