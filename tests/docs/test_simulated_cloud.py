"""The page about the simulated cloud names every field of its file, each where it stands in the file."""

import re

import msgspec
import yaml

from bigfleet.sim.cloud.config import CloudConfig, Pool, StockOut
from tests.shared.command_line import ROOT

PAGE = (ROOT / "docs" / "simulated-cloud.md").read_text()
ROWS = re.findall(r"^\| (`.*?) \| (.*) \|$", PAGE, re.MULTILINE)


def fields(part: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(part)}


def named(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", text))


def test_the_table_has_the_fields_of_the_cloud_and_no_others() -> None:
    assert set().union(*(named(key) for key, _ in ROWS)) == fields(CloudConfig)


def test_the_row_of_pools_has_the_fields_of_a_pool_and_no_others() -> None:
    (row,) = [text for key, text in ROWS if key == "`pools`"]
    assert named(row) == fields(Pool)


def test_stock_outs_are_shown_in_their_pool() -> None:
    (example,) = re.findall(r"```yaml\n(pools:.*?)```", PAGE, re.DOTALL)
    (pool,) = yaml.safe_load(example)["pools"]
    assert [each.keys() for each in pool["stock_outs"]] == [fields(StockOut)] * 2
