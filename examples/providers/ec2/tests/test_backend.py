"""The backend against moto's EC2 and S3; where AWS itself must act, moto's own state is changed."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from bigfleet.providerkit import BackendError, Change, Job, Notice
from moto.ec2.exceptions import EC2ClientError

from bigfleet_ec2.backend import EC2

from .conftest import Guests, World, job

MACHINE = "m5-a-0"


@pytest.fixture
async def backend(world: World) -> AsyncIterator[EC2]:
    backend = world.backend()
    yield backend
    await backend.close()


async def _ready(backend: EC2, bound: Job) -> None:
    """Ask as the kit does."""
    while not await backend.ready(bound):
        pass


def _id(host: str) -> str:
    return host.rpartition("/")[2]


async def test_every_slot_is_offered_without_a_host(backend: EC2) -> None:
    offers = list(await backend.offers())
    assert [offer.id for offer in offers][:2] == ["m5-a-0", "m5-a-1"]
    assert len({offer.id for offer in offers}) == 24
    assert not any(offer.host for offer in offers)
    assert {offer.shape.capacity_type.label for offer in offers} == {"OnDemand", "Spot"}


async def test_an_instance_is_made_under_its_token_with_tags_and_a_locked_metadata_service(
    backend: EC2, world: World
) -> None:
    host = await backend.create(job(MACHINE, token="create-7"))
    made = world.instance(_id(host))
    assert host == f"/us-east-1a/{made['InstanceId']}"
    assert made["ClientToken"] == "create-7"
    assert world.tags(made["InstanceId"]) == {
        "Name": MACHINE,
        "bigfleet:machine": MACHINE,
        "bigfleet:token": "create-7",
        "bigfleet:provider": "test",
    }
    options = made["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", 1)
    assert options["InstanceMetadataTags"] == "enabled"
    assert made["IamInstanceProfile"]["Arn"].endswith("/guest")
    data = world.ec2.describe_instance_attribute(InstanceId=made["InstanceId"], Attribute="userData")
    script = base64.b64decode(data["UserData"]["Value"]).decode()
    assert script.startswith("#!/bin/bash\n")
    assert f"BIGFLEET_MACHINE={MACHINE}\n" in script
    assert len(script) < 16_384, "EC2 takes no more user data"


async def test_a_spot_pool_makes_spot_instances(backend: EC2, world: World) -> None:
    host = await backend.create(job("m5-a-spot-0"))
    assert world.instance(_id(host))["InstanceLifecycle"] == "spot"


async def test_an_instance_joins_and_leaves(backend: EC2, world: World, guests: Guests) -> None:
    host = await backend.create(job(MACHINE))
    bound = job(MACHINE, host, "blue")
    await backend.configure(bound, b"\0secret\xff")
    await _ready(backend, bound)
    assert guests.blobs == {_id(host): b"\0secret\xff"}
    assert world.tags(_id(host))["bigfleet:cluster"] == "blue"
    assert not [key for key in world.mail() if key.endswith("/bootstrap")], "the blob was left behind"
    await backend.drain(bound, 5)
    assert world.mail() == []
    assert not {"bigfleet:cluster", "bigfleet:order"} & set(world.tags(_id(host)))


async def test_the_blob_is_in_no_tag_and_no_user_data(backend: EC2, world: World) -> None:
    host = await backend.create(job(MACHINE))
    await backend.configure(job(MACHINE, host, "blue"), b"sesame")
    data = world.ec2.describe_instance_attribute(InstanceId=_id(host), Attribute="userData")
    assert "sesame" not in base64.b64decode(data["UserData"]["Value"]).decode() + str(world.tags(_id(host)))


async def test_an_instance_is_not_ready_before_its_agent_says_so(backend: EC2) -> None:
    host = await backend.create(job(MACHINE))
    bound = job(MACHINE, host, "blue")
    assert not await backend.ready(bound)
    await backend.configure(bound, b"blob")
    assert not await backend.ready(bound)


async def test_an_agent_that_could_not_join_says_why(backend: EC2, guests: Guests) -> None:
    guests.words["join"] = "failed"
    host = await backend.create(job(MACHINE))
    bound = job(MACHINE, host, "blue")
    await backend.configure(bound, b"blob")
    with pytest.raises(BackendError, match=f"{_id(host)}: the guest says so"):
        await _ready(backend, bound)


@pytest.mark.parametrize(
    ("word", "why"), [("", "no word from it 0.2 s after the grace"), ("failed", "the guest says so")]
)
async def test_an_instance_that_does_not_leave_is_terminated(world: World, guests: Guests, word: str, why: str) -> None:
    guests.words["leave"] = word
    backend = world.backend(leave_seconds=0.2)
    host = await backend.create(job(MACHINE))
    with pytest.raises(BackendError, match=f"{why}; it was terminated"):
        await backend.drain(job(MACHINE, host, "blue"), 0)
    assert world.instance(_id(host))["State"]["Name"] == "terminated"
    await backend.close()


async def test_delete_ends_the_instance_and_its_mail_and_may_be_repeated(backend: EC2, world: World) -> None:
    host = await backend.create(job(MACHINE))
    await backend.configure(job(MACHINE, host, "blue"), b"blob")
    await backend.delete(job(MACHINE, host))
    assert world.instance(_id(host))["State"]["Name"] == "terminated"
    assert world.mail() == []
    await backend.delete(job(MACHINE, host))


async def test_delete_of_an_instance_that_ec2_does_not_know_succeeds(backend: EC2) -> None:
    await backend.delete(job(MACHINE, "/us-east-1a/i-00000000000000000"))


async def test_describe_finds_the_instance_of_its_token_alone(backend: EC2, world: World) -> None:
    first = await backend.create(job(MACHINE, token="create-1"))
    second = await backend.create(job(MACHINE, token="create-2"))
    assert await backend.describe(job(MACHINE, token="create-1")) == first
    assert await backend.describe(job(MACHINE, token="create-2")) == second
    assert await backend.describe(job(MACHINE, token="create-3")) == ""
    assert await backend.describe(job("m5-a-1", token="create-1")) == ""


async def test_describe_finds_an_instance_that_lost_its_token_tag(backend: EC2, world: World) -> None:
    host = await backend.create(job(MACHINE))
    world.ec2.delete_tags(Resources=[_id(host)], Tags=[{"Key": "bigfleet:token"}])
    assert await backend.describe(job(MACHINE)) == host


async def test_describe_finds_no_instance_that_is_over_and_one_that_is_stopped(backend: EC2, world: World) -> None:
    host = await backend.create(job(MACHINE))
    world.ec2.stop_instances(InstanceIds=[_id(host)])
    assert await backend.describe(job(MACHINE)) == host
    await backend.delete(job(MACHINE, host))
    assert await backend.describe(job(MACHINE)) == ""


async def test_an_instance_that_goes_straight_to_terminated_is_an_error_with_its_reason(
    backend: EC2, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.moto.run_instances

    def dies(*arguments: Any, **options: Any) -> Any:
        reservation = run(*arguments, **options)
        reservation.instances[0].terminate()
        reservation.instances[0].state_reason.message = "Client.VolumeLimitExceeded: too many volumes"
        return reservation

    monkeypatch.setattr(world.moto, "run_instances", dies)
    with pytest.raises(BackendError, match=r"is terminated and never ran: Client\.VolumeLimitExceeded"):
        await backend.create(job(MACHINE))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("InsufficientInstanceCapacity", "the zone has none of this type left"),
        ("RequestLimitExceeded", "AWS throttles this account"),
        ("UnauthorizedOperation", "the provider.s credentials do not allow it"),
    ],
)
async def test_a_refusal_says_what_it_means(
    backend: EC2, world: World, monkeypatch: pytest.MonkeyPatch, code: str, text: str
) -> None:
    # Retries are tried, without their pauses.
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))

    def refuses(*arguments: Any, **options: Any) -> Any:
        raise EC2ClientError(code, "said the cloud")

    monkeypatch.setattr(world.moto, "run_instances", refuses)
    with pytest.raises(BackendError, match=f"run_instances: {text}.*: {code}: said the cloud"):
        await backend.create(job(MACHINE))


async def test_a_cloud_that_does_not_answer_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = world.backend(endpoint_url="http://127.0.0.1:1")
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    with pytest.raises(BackendError, match="EndpointConnectionError"):
        await backend.describe(job(MACHINE))
    await backend.close()


async def _first(backend: EC2, change: Change, known: Mapping[str, str] | None = None) -> Notice:
    async for notice in backend.watch(lambda: known or {}):
        if notice.change is change:
            return notice
    raise AssertionError("the watch ended")


async def test_an_instance_that_is_terminated_from_outside_is_gone(backend: EC2, world: World) -> None:
    host = await backend.create(job(MACHINE))
    world.ec2.terminate_instances(InstanceIds=[_id(host)])
    notice = await _first(backend, Change.GONE)
    assert (notice.machine, notice.host) == (MACHINE, host)
    assert "User initiated" in notice.text


async def test_an_instance_that_ec2_stops_showing_is_gone_after_some_looks(backend: EC2, world: World) -> None:
    host = await backend.create(job(MACHINE))
    world.moto.reservations.clear()
    notice = await _first(backend, Change.GONE, {MACHINE: host})
    assert (notice.machine, notice.host) == (MACHINE, host)


async def test_a_stopped_instance_is_broken(backend: EC2, world: World) -> None:
    host = await backend.create(job(MACHINE))
    world.ec2.stop_instances(InstanceIds=[_id(host)])
    assert (await _first(backend, Change.BROKEN)).host == host


async def test_a_spot_instance_that_aws_marks_is_taken_back(backend: EC2, world: World) -> None:
    # moto makes a spot request only for RequestSpotInstances; its instance is given our tags to stand for one of ours.
    tags = {"bigfleet:provider": "test", "bigfleet:machine": "m5-a-spot-0"}
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    made = world.ec2.request_spot_instances(
        LaunchSpecification={"ImageId": "ami-1", "InstanceType": "m5.large"},
        TagSpecifications=[{"ResourceType": "spot-instances-request", "Tags": pairs}],
    )["SpotInstanceRequests"][0]
    world.ec2.create_tags(Resources=[made["InstanceId"]], Tags=pairs)
    waiting = asyncio.create_task(_first(backend, Change.TAKEN_BACK))
    await backend._census.look()
    assert not waiting.done()
    world.moto.spot_instance_requests[made["SpotInstanceRequestId"]]._status_code = "marked-for-termination"
    notice = await waiting
    assert (notice.machine, notice.grace_seconds) == ("m5-a-spot-0", 120)
    assert _id(notice.host) == made["InstanceId"]


async def test_instances_of_another_provider_are_not_looked_at(backend: EC2, world: World) -> None:
    other = world.backend(name="other")
    await other.create(job(MACHINE))
    assert dict(await backend._census.look()) == {}
    assert await backend.describe(job(MACHINE)) == ""
    await other.close()


async def test_many_that_wait_share_looks(backend: EC2, world: World) -> None:
    calls = 0
    pages = backend._cloud.pages

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return await pages(*arguments, **options)

    backend._cloud.pages = counted  # type: ignore[method-assign]
    first, *others = await asyncio.gather(*(backend._census.look() for _ in range(50)))
    assert all(other is first for other in others)
    assert calls == 1
