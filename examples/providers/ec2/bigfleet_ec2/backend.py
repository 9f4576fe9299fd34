"""EC2 as a backend: an instance is made under a client token, gets its orders by a tag, and is found by its tags."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from bigfleet.providerkit import Backend, BackendError, Change, Job, Known, Limits, Notice, Offer

from bigfleet_ec2.census import CLUSTER, LIVE, MACHINE, ORDER, PROVIDER, TOKEN, Census, Instance, instances
from bigfleet_ec2.cloud import Cloud, CloudError
from bigfleet_ec2.config import Capacity, Config, Pool
from bigfleet_ec2.mailbox import JOINED, LEFT, Mailbox
from bigfleet_ec2.userdata import user_data

# An instance counts as gone once so many looks in a row did not show it. What EC2 shows may lag behind what it did.
_MISSED_LOOKS = 5
# The time that AWS gives a spot instance between its warning and its end.
_WARNING_SECONDS = 120
# The longest tag that AWS takes.
_MOST_TAG_CHARACTERS = 256


class EC2(Backend):
    """The backend for the pools of one configuration."""

    scheme = "aws"
    limits = Limits(create=900.0, configure=1500.0, drain=600.0, delete=1200.0)
    # Short, because `ready` itself waits for the next look.
    ready_poll_seconds = 0.2

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pools = {pool.name: pool for pool in config.pools}
        self._cloud = Cloud(config)
        self._census = Census(self._cloud, config.name, config.poll_seconds)
        self._mailbox = Mailbox(self._cloud, config.guest)
        self._missed: dict[tuple[str, str], int] = {}

    async def offers(self) -> Iterable[Offer]:
        """Every slot of every pool."""
        return [offer for pool in self._config.pools for offer in pool.offers()]

    async def create(self, job: Job) -> str:
        """Start an instance, unless an earlier process of the provider has, and wait until it runs."""
        made = _instance(job.host)
        if not made:
            (instance,) = instances(await self._cloud.ec2("run_instances", **self._launch(job)))
            made = instance.id
        while True:
            found = (await self._census.look()).get(made)
            if found is None or found.state == "pending":
                continue
            if found.state == "running":
                return found.host
            raise BackendError(f"{made} is {found.state} and never ran: {found.reason}")

    async def configure(self, job: Job, blob: bytes) -> None:
        """Leave the blob for the agent and tell it to join."""
        instance, order = _instance(job.host), secrets.token_hex(8)
        await self._mailbox.leave(instance, order, blob)
        await self._tag(instance, {CLUSTER: job.cluster, ORDER: f"join {order}"})

    async def ready(self, job: Job) -> bool:
        """Whether the agent has said that its node is Ready."""
        instance = _instance(job.host)
        found = await self._running(instance)
        # The order is read from the tag, where it still is after a restart of the provider.
        verb, order, *_ = [*found.tags.get(ORDER, "").split(), "", ""]
        if verb != "join" or not await self._mailbox.answered(instance, order, JOINED):
            return False
        await self._mailbox.take_back(instance, order)
        return True

    async def drain(self, job: Job, grace_seconds: int) -> None:
        """Tell the agent to leave, and wait until it says that it has.

        An instance that does not say so is terminated, because only then is it certain that nothing of the cluster is
        left on it. The watch tells the kit that the instance is gone.
        """
        instance, order = _instance(job.host), secrets.token_hex(8)
        await self._tag(instance, {ORDER: f"leave {order} {grace_seconds}"})
        try:
            async with asyncio.timeout(grace_seconds + self._config.leave_seconds):
                await self._left(instance, order)
        except (TimeoutError, _StubbornError) as error:
            why = str(error) or f"{instance}: no word from it {self._config.leave_seconds:g} s after the grace"
            await self._cloud.ec2("terminate_instances", InstanceIds=[instance])
            raise BackendError(f"{why}; it was terminated, since it may still hold the cluster's credentials") from None
        await self._mailbox.clear(instance)
        await self._cloud.ec2("delete_tags", Resources=[instance], Tags=[{"Key": CLUSTER}, {"Key": ORDER}])

    async def delete(self, job: Job) -> None:
        """Terminate the instance and wait until it is terminated."""
        instance, asked, missed = _instance(job.host), False, 0
        while missed < _MISSED_LOOKS:
            asked = asked or await self._terminated(instance)
            found = (await self._census.look()).get(instance)
            if found is not None and found.state == "terminated":
                break
            missed = missed + 1 if found is None else 0
        await self._mailbox.clear(instance)

    async def describe(self, job: Job) -> str:
        """The live instance of this Create. If EC2 does not show it yet, the kit asks again for a while."""
        mine = {f"tag:{PROVIDER}": [self._config.name], f"tag:{MACHINE}": [job.machine]}
        filters = _filters({**mine, "instance-state-name": LIVE})
        pages = await self._cloud.pages("ec2", "describe_instances", Filters=filters)
        found = [each for page in pages for each in instances(page) if each.comes_from(job.token)]
        return min(found, key=lambda each: each.launched).host if found else ""

    async def watch(self, known: Known) -> AsyncIterator[Notice]:
        """Yield what happened to instances by itself, at each look again. The kit ignores what it knows already."""
        while True:
            seen = await self._census.look()
            for instance in seen.values():
                if notice := _notice(instance):
                    yield notice
            for notice in await self._interrupted(seen):
                yield notice
            for machine, host in self._lost(known(), seen):
                yield Notice(machine, Change.GONE, f"{_instance(host)} is not there any more", host=host)

    async def close(self) -> None:
        """End the looks and the calls to AWS."""
        await self._census.close()
        self._cloud.close()

    async def _interrupted(self, seen: Mapping[str, Instance]) -> list[Notice]:
        """A notice for each spot instance that AWS is about to interrupt."""
        if not any(instance.spot and instance.state == "running" for instance in seen.values()):
            return []
        mine = {f"tag:{PROVIDER}": [self._config.name], "state": ["active"]}
        pages = await self._cloud.pages("ec2", "describe_spot_instance_requests", Filters=_filters(mine))
        requests = [request for page in pages for request in page["SpotInstanceRequests"]]
        marked = [each.get("InstanceId", "") for each in requests if each["Status"]["Code"] == "marked-for-termination"]
        return [
            Notice(seen[each].machine, Change.TAKEN_BACK, f"AWS interrupts {each}", _WARNING_SECONDS, seen[each].host)
            for each in marked
            if each in seen
        ]

    def _lost(self, known: Mapping[str, str], seen: Mapping[str, Instance]) -> list[tuple[str, str]]:
        """Machines with their hosts that EC2 has not shown for some looks."""
        there = {instance.host for instance in seen.values()}
        self._missed = {each: self._missed.get(each, 0) + 1 for each in known.items() if each[1] not in there}
        return [each for each, times in self._missed.items() if times >= _MISSED_LOOKS]

    async def _running(self, instance: str) -> Instance:
        """The instance, which must be running or pending."""
        for _ in range(_MISSED_LOOKS):
            found = (await self._census.look()).get(instance)
            if found is not None:
                break
        else:
            raise BackendError(f"{instance} is not there any more")
        if found.state not in ("pending", "running"):
            raise BackendError(f"{instance} is {found.state}: {found.reason}")
        return found

    async def _left(self, instance: str, order: str) -> None:
        while True:
            await self._running(instance)
            try:
                if await self._mailbox.answered(instance, order, LEFT):
                    return
            except CloudError:
                raise
            except BackendError as error:
                raise _StubbornError(str(error)) from error

    async def _terminated(self, instance: str) -> bool:
        """Whether EC2 took the order to terminate. EC2 may not know a new instance yet."""
        try:
            await self._cloud.ec2("terminate_instances", InstanceIds=[instance])
        except CloudError as error:
            if error.code != "InvalidInstanceID.NotFound":
                raise
            return False
        return True

    async def _tag(self, instance: str, tags: Mapping[str, str]) -> None:
        pairs = [{"Key": key, "Value": _printable(value)[:_MOST_TAG_CHARACTERS]} for key, value in tags.items()]
        await self._cloud.ec2("create_tags", Resources=[instance], Tags=pairs)

    def _launch(self, job: Job) -> dict[str, Any]:
        pool = self._pool(job.machine)
        tags = {
            "Name": job.machine,
            MACHINE: job.machine,
            TOKEN: job.token,
            PROVIDER: self._config.name,
        }
        kinds = ["instance", "volume"]
        launch: dict[str, Any] = {
            "ImageId": pool.ami,
            "InstanceType": pool.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            # With the same client token AWS makes one instance, however often the call is repeated.
            "ClientToken": job.token,
            "Placement": {"AvailabilityZone": pool.zone},
            "UserData": user_data(self._config, job.machine),
            "IamInstanceProfile": {"Name": self._config.guest.instance_profile},
            "InstanceInitiatedShutdownBehavior": "terminate",
            # The agent reads its orders from the tags in the metadata. A hop limit of 1 keeps pods away from it.
            "MetadataOptions": {
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 1,
                "InstanceMetadataTags": "enabled",
            },
        }
        if pool.capacity is Capacity.SPOT:
            options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            launch["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
            kinds.append("spot-instances-request")
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        launch["TagSpecifications"] = [{"ResourceType": kind, "Tags": pairs} for kind in kinds]
        optional = {"SubnetId": pool.subnet, "SecurityGroupIds": list(pool.security_groups), "KeyName": pool.key}
        return launch | {key: value for key, value in optional.items() if value}

    def _pool(self, machine: str) -> Pool:
        pool = self._pools.get(machine.rpartition("-")[0])
        if pool is None:
            raise BackendError(f"machine {machine}: its pool is not in the configuration any more")
        return pool


class _StubbornError(BackendError):
    """The agent says that it could not leave its cluster."""


def _printable(value: str) -> str:
    """A text that a tag can hold. A cluster's id may contain any character, and a tag may not."""
    return "".join(c if c.isprintable() else "?" for c in value)


def _instance(host: str) -> str:
    return host.rpartition("/")[2]


def _filters(wanted: Mapping[str, Iterable[str]]) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": list(values)} for name, values in wanted.items()]


def _notice(instance: Instance) -> Notice | None:
    """The notice that an instance's state gives rise to, if any."""
    if instance.state == "terminated":
        text = f"{instance.id} is terminated: {instance.reason}"
        return Notice(instance.machine, Change.GONE, text, host=instance.host)
    if instance.state in ("stopping", "stopped"):
        text = f"{instance.id} is {instance.state}: {instance.reason}"
        return Notice(instance.machine, Change.BROKEN, text, host=instance.host)
    return None
