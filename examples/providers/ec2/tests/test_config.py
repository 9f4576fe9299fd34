"""What a configuration may say."""

from typing import Any

import pytest
from bigfleet.providerkit import ConfigError

from bigfleet_ec2.config import load

from .conftest import World


def _pool(world: World, **changes: Any) -> dict[str, Any]:
    return {**world.content["pools"][0], **changes}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"capacity": "spot"}, "interruption_probability"),
        ({"price_per_hour": -1.0}, "price"),
        ({"resources": {}, "allocatable": {}}, "resources"),
        ({"name": "Upper"}, "name"),
        ({"count": 0}, "count"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_pool_that_cannot_be_offered_is_refused_with_its_field(
    world: World, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        load(world.write(pools=[_pool(world, **changes)]))


def test_two_pools_never_share_a_machine_id(world: World) -> None:
    with pytest.raises(ConfigError, match="is there twice"):
        load(world.write(pools=[_pool(world), _pool(world)]))
    with pytest.raises(ConfigError, match="rename it"):
        load(world.write(pools=[_pool(world, name="m5"), _pool(world, name="m5-1")]))


def test_a_file_that_is_not_there_or_no_yaml_is_named(world: World) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: No such file"):
        load(world.folder / "nowhere.yaml")
    world.config.write_text("pools: [")
    with pytest.raises(ConfigError, match=r"pools\.yaml: is not YAML"):
        load(world.config)


def test_anchors_have_a_place(world: World) -> None:
    assert load(world.write(**{"x-common": {"ami": "ami-1"}})).name == "test"
