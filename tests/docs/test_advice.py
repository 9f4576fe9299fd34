"""The advice that an error gives about a lost or corrupt file is the advice of the page about that file."""

import pytest

from bigfleet.provider import epoch
from bigfleet.providerkit import store
from bigfleet.shard.persistence import journal
from bigfleet.sim.cloud import hosts
from tests.shared.command_line import ROOT


@pytest.mark.parametrize(
    ("advice", "page"),
    [
        (journal.RESTORE, "running-a-shard.md"),
        (epoch.RESTORE, "running-a-shard.md"),
        (store.RESTORE, "provider-author-guide.md"),
        (hosts.RESTORE, "simulated-cloud.md"),
    ],
)
def test_the_page_says_what_the_error_says(advice: str, page: str) -> None:
    assert advice in " ".join((ROOT / "docs" / page).read_text().split())
