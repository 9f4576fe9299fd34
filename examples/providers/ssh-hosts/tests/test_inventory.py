"""What an inventory may say."""

from pathlib import Path
from typing import Any

import pytest
from bigfleet.providerkit import ConfigError

from bigfleet_ssh_hosts.inventory import load

from .conftest import Rack

EXAMPLE = Path(__file__).parent.parent / "inventory.example.yaml"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"id": "Upper"}, "an id is a DNS name"),
        ({"id": "$(reboot)"}, "an id is a DNS name"),
        ({"address": "-oProxyCommand=sh"}, "address '-oProxyCommand=sh'"),
        ({"address": "host; reboot"}, "address 'host; reboot'"),
        ({"user": "-l"}, "user"),
        ({"port": 0}, "port"),
        ({"price_per_hour": -1.0}, "price"),
        ({"resources": {"cpu": "lots"}}, "resources"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_host_that_cannot_be_used_is_refused_with_its_field(rack: Rack, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text.replace("$(", r"\$\(")):
        load(rack.write(hosts=[{**rack.content["hosts"][0], **changes}]))


def test_no_host_is_there_twice(rack: Rack) -> None:
    with pytest.raises(ConfigError, match="'r01-n00': is there twice"):
        load(rack.write(hosts=[rack.content["hosts"][0]] * 2))


@pytest.mark.parametrize("name", ["known_hosts", "identity_file"])
def test_a_file_that_is_not_there_is_named(rack: Rack, name: str) -> None:
    with pytest.raises(ConfigError, match="nowhere: the inventory names it, and it is not a file"):
        load(rack.write(ssh={**rack.content["ssh"], name: "nowhere"}))


def test_host_keys_cannot_be_done_without(rack: Rack) -> None:
    with pytest.raises(ConfigError, match="known_hosts"):
        load(rack.write(ssh={}))


def test_files_are_looked_for_beside_the_inventory(rack: Rack) -> None:
    assert load(rack.inventory).ssh.known_hosts == str(rack.folder / "known_hosts")


def test_the_example_inventory_can_be_used(tmp_path: Path) -> None:
    for name in ("known_hosts", "id_ed25519"):
        (tmp_path / name).touch()
    (tmp_path / "inventory.yaml").write_text(EXAMPLE.read_text())
    hosts = load(tmp_path / "inventory.yaml").hosts
    assert [host.id for host in hosts] == ["ams1-r01-n01", "ams1-r01-n02", "ams1-r02-n01"]
