"""The configuration file: the examples are good, and every mistake is named with what fits."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigfleet.providerkit.server.main import ConfigError
from bigfleet.sim.cloud.reading import MAX_BYTES, load, read

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "cloud").glob("*.yaml"))
POOL: dict[str, Any] = {
    "name": "a",
    "instance_type": "m.8",
    "zone": "eu-1a",
    "capacity_type": "OnDemand",
    "count": 10,
    "resources": {"cpu": 8, "memory": "32Gi"},
}


def refusal(document: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read(json.dumps(document), "cloud.yaml")
    return str(caught.value)


def pool(**changes: object) -> dict[str, Any]:
    return {"pools": [{**POOL, "name": "first"}, {**POOL, "name": "second", **changes}]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_good(path: Path) -> None:
    assert load(path).pools


def test_there_is_an_example_of_each_kind() -> None:
    clouds = {path.stem: load(path) for path in EXAMPLES}
    assert sum(pool.count for pool in clouds["laptop"].pools) < 200
    assert any(pool.stock_outs for pool in clouds["spot-and-stock-outs"].pools)
    assert clouds["conformance"].faults
    assert sum(pool.count for pool in clouds["conformance"].pools) >= 24
    assert clouds["bare-metal"].metal


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"pool": []}, "cloud.yaml: 'pool' is not known here; is it 'pools'?"),
        ({"pools": []}, "cloud.yaml: pools: Expected `array` of length >= 1"),
        ({**pool(), "seed": "x"}, "cloud.yaml: seed: Expected `int`, got `str`"),
        ({**pool(), "latency": {"creat": 5}}, "cloud.yaml: latency: 'creat' is not known here; is it 'create'?"),
        (
            {**pool(), "timeouts": {"zzz": 5}},
            "cloud.yaml: timeouts: 'zzz' is not known here; there are create, configure, drain, delete, late_hosts",
        ),
        ({**pool(), "timeouts": {"create": 0}}, "cloud.yaml: timeouts: create: must be above 0"),
        ({**pool(), "failures": {"create": {"error": 0.6, "late": 0.6}}}, "the rates add up to more than 1"),
        ({**pool(), "failures": {"drain": {"late": 0.6}}}, "failures.drain: 'late' is not known here"),
        (
            {**pool(), "rate_limits": {"create": {"per_second": 1, "exceeded": "explode"}}},
            "cloud.yaml: rate_limits.create.exceeded: Invalid enum value 'explode': write one of wait, fail",
        ),
        ({"pools": [POOL, POOL]}, "cloud.yaml: pools: two are named 'a'; rename one"),
        (pool(capacity_type="BareMetal"), "cloud.yaml: pools: BareMetal cannot be deleted"),
        (pool(count=0), "cloud.yaml: pool 'second': count: Expected `int` >= 1"),
        (pool(count=999_999), "cloud.yaml: pools: 1000009 machines in all, at most 1000000 are taken"),
        (pool(rack=3), "cloud.yaml: pool 'second': 'rack' is not known here; is it 'racks'?"),
        (pool(racks=11), "cloud.yaml: pool 'second': racks: 11 are more than the 10 machines"),
        (pool(name="Big Pool"), "cloud.yaml: pool 'Big Pool': name: has 1 to 50 characters of a-z, 0-9 and -"),
        (pool(zone=""), "cloud.yaml: pool 'second': zone: is empty"),
        (pool(latency={"join": {"median": 3}}), "cloud.yaml: pool 'second': latency.join: {'median': 3}"),
        (pool(latency={"join": "soon"}), "cloud.yaml: pool 'second': latency.join: 'soon' is no length of time"),
        (pool(capacity_type="spot"), "write one of BareMetal, Reserved, OnDemand, Spot"),
        (pool(capacity_type="Spot"), "pool 'second': interruption_probability: must be above 0 for Spot"),
        (pool(interruption_probability=1), "pool 'second': interruption_probability: must be below 1"),
        (pool(interruption_probability=1.5), "pool 'second': interruption_probability: Expected `float` <= 1.0"),
        (pool(labels={"topology.kubernetes.io/zone": "x"}), "is made from other fields; leave it out"),
        (pool(resources={"cpu": "lots"}), "pool 'second': shape 'm.8' in 'eu-1a': "),
        (pool(price_per_hour=-1), "pool 'second': shape 'm.8' in 'eu-1a': "),
        (pool(stock_outs=[{"from": "2h", "to": "1h"}]), "pool 'second': stock_outs[0]: to: must come after from"),
        (pool(stock_outs=[{"from": "2h"}]), "pool 'second': stock_outs[0]: Object missing required field `to`"),
        ({"pools": ["x"]}, "cloud.yaml: pool 1: Expected `object`, got `str`"),
        ([1], "cloud.yaml: must hold one document, a mapping with `pools`"),
    ],
)
def test_a_mistake_is_named_with_what_fits(document: object, said: str) -> None:
    assert said in refusal(document)


def test_text_that_is_no_yaml_is_named_by_line() -> None:
    with pytest.raises(ConfigError, match=r"cloud\.yaml: line \d: "):
        read("pools:\n  - {", "cloud.yaml")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    big, binary = tmp_path / "big.yaml", tmp_path / "binary.yaml"
    big.write_text("#" * (MAX_BYTES + 1))
    binary.write_bytes(b"\xff\xfe")
    for path, said in (
        (big, "is larger than"),
        (binary, "is not UTF-8"),
        (tmp_path / "none", "No such file"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(ConfigError, match=f"{path.name}: {said}"):
            load(path)


def test_a_pool_speaks_for_itself_where_it_says_something_and_the_cloud_elsewhere() -> None:
    document = {**pool(latency={"create": 7}), "latency": {"create": 5, "join": 6}}
    cloud = read(json.dumps(document), "cloud.yaml")
    first, second = (cloud.latency_of(pool) for pool in cloud.pools)
    assert [first["create"].at(0.5), first["join"].at(0.5)] == [5, 6]
    assert [second["create"].at(0.5), second["join"].at(0.5)] == [7, 6]
    assert second["wipe"].at(0.5) > 0


def test_machines_fill_their_racks_evenly_and_share_a_shape_in_each() -> None:
    cloud = read(json.dumps({"pools": [{**POOL, "racks": 4, "family": "m"}], "region": "eu-1"}), "cloud.yaml")
    shapes = list(cloud.pools[0].shapes(cloud.region))
    assert [len(numbers) for _, numbers in shapes] == [2, 3, 2, 3]
    assert sorted(number for _, numbers in shapes for number in numbers) == list(range(10))
    assert shapes[0][0].labels == {
        "topology.bigfleet.lucy.sh/rack": "a-r0000",
        "topology.kubernetes.io/region": "eu-1",
        "node.bigfleet.lucy.sh/family": "m",
    }
