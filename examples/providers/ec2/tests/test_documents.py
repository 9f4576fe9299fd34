"""What the README points at can be used as it stands."""

import json
import re
from pathlib import Path

import boto3
import pytest

import bigfleet_ec2
from bigfleet_ec2.config import load

from .conftest import REGION, World

ROOT = Path(__file__).parent.parent


def test_the_example_configuration_can_be_used() -> None:
    assert [pool.count for pool in load(ROOT / "pools.example.yaml").pools] == [200, 1000]


@pytest.mark.parametrize("name", ["guest", "provider"])
def test_a_policy_is_one_that_iam_takes(world: World, name: str) -> None:
    document = (ROOT / "iam" / f"{name}.json").read_text().replace("ACCOUNT", "123456789012").replace("BUCKET", "b")
    iam = boto3.client("iam", endpoint_url=world.endpoint, region_name=REGION)
    made = iam.create_policy(PolicyName=name, PolicyDocument=document)
    iam.delete_policy(PolicyArn=made["Policy"]["Arn"])
    iam.close()


def test_the_policy_allows_every_call_of_the_program() -> None:
    code = "".join(path.read_text() for path in Path(bigfleet_ec2.__file__).parent.glob("*.py"))
    called = set(re.findall(r'(?:\.ec2\(|"ec2", )\s*"([a-z]+_[a-z_]+)"', code))
    assert {"run_instances", "describe_spot_instance_requests"} <= called
    policy = json.loads((ROOT / "iam" / "provider.json").read_text())
    actions = [each["Action"] for each in policy["Statement"]]
    allowed = {action for each in actions for action in ([each] if isinstance(each, str) else each)}
    assert {f"ec2:{''.join(map(str.capitalize, name.split('_')))}" for name in called} <= allowed
