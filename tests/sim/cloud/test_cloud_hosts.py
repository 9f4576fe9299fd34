"""The hosts that exist: by token, with their tags, and in a file that outlives whoever opened it."""

import sqlite3
from pathlib import Path

import pytest

from bigfleet.providerkit.store import StateError
from bigfleet.sim.cloud.hosts import Hosts, beside, existing, machine_of


def test_a_token_makes_one_host() -> None:
    hosts = Hosts()
    ref = hosts.launch("create-1", "pool-a-000001")
    assert hosts.launch("create-1", "pool-a-000001") == ref == hosts.find("create-1")
    assert machine_of(ref) == "pool-a-000001"
    assert list(hosts) == [ref]
    assert hosts.find("create-2") == ""


def test_a_reference_is_never_used_again() -> None:
    hosts = Hosts()
    seen = set()
    for n in range(5):
        ref = hosts.launch(f"create-{n}", "m")
        seen.add(ref)
        hosts.terminate(ref)
    assert len(seen) == 5
    assert list(hosts) == []


def test_tags_are_kept_as_long_as_the_host() -> None:
    hosts = Hosts()
    ref = hosts.launch("create-1", "m")
    assert hosts.cluster(ref) == ""
    hosts.tag(ref, "shop")
    assert hosts.cluster(ref) == "shop"
    hosts.terminate(ref)
    assert hosts.cluster(ref) is None


@pytest.mark.parametrize("ref", ["", "i-m-", "i-m-x", "i-m-99999999999999999999999"])
def test_a_reference_of_somebody_else_names_no_host(ref: str) -> None:
    hosts = Hosts()
    hosts.launch("create-1", "m")
    assert hosts.cluster(ref) is None


def test_a_host_that_ended_exists_no_more_and_no_other_has_its_reference() -> None:
    hosts = Hosts()
    ref = hosts.launch("create-1", "m")
    hosts.terminate(ref)
    assert list(hosts) == []
    assert hosts.find("create-1") == ""
    assert hosts.cluster(ref) is None
    assert hosts.launch("create-2", "m") != ref


def test_hosts_outlive_who_made_them_and_can_be_read_meanwhile(tmp_path: Path) -> None:
    path = beside(tmp_path / "cloud.state")
    hosts = Hosts(path)
    first, second = hosts.launch("create-1", "a"), hosts.launch("create-2", "b")
    hosts.tag(second, "shop")
    assert existing(path) == [first, second]
    # Not closed: as after kill -9.
    again = Hosts(path)
    assert list(again) == [first, second]
    assert again.cluster(second) == "shop"
    again.terminate(first)
    again.close()
    hosts.close()
    assert existing(path) == [second]


def test_files_that_are_no_cloud_are_refused(tmp_path: Path) -> None:
    other, text = tmp_path / "other.db", tmp_path / "text"
    with sqlite3.connect(other) as file:
        file.execute("CREATE TABLE something (x)")
    file.close()
    text.write_text("no database at all, but long enough to have a header" * 40)
    for path in (other, text):
        with pytest.raises(StateError, match=path.name):
            Hosts(path)
        with pytest.raises(StateError, match=path.name):
            existing(path)
    with pytest.raises(StateError, match="is not there"):
        existing(tmp_path / "none")


@pytest.mark.parametrize("keep", [True, False])
def test_hosts_that_are_gone_while_machines_are_known_stop_the_start(tmp_path: Path, *, keep: bool) -> None:
    path = beside(tmp_path / "cloud.state")
    if keep:
        path.touch()
    problem = "is corrupt: it is empty" if keep else "is gone"
    with pytest.raises(StateError, match=f"{path}: {problem}, but the state beside it knows machines; restore both"):
        Hosts(path, has_machines=True)
    assert path.exists() is keep
    Hosts(path).close()
    Hosts(path, has_machines=True).close()
