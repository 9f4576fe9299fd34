"""A look at all instances of this provider. Everything that waits for an instance shares the looks.

A thousand machines in transition cost one DescribeInstances every `poll_seconds`, not a thousand.
"""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from bigfleet_ec2.cloud import Cloud

MACHINE, TOKEN, PROVIDER = "bigfleet:machine", "bigfleet:token", "bigfleet:provider"
"""The tags that say which provider, machine and Create an instance belongs to. The call that makes it sets them."""
CLUSTER, ORDER = "bigfleet:cluster", "bigfleet:order"
"""The tags that say what an instance is used for: the first for people, the second for the agent in the instance."""

LIVE = ("pending", "running", "stopping", "stopped")
"""The states of instances that cost money, or may cost money again."""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance, with the fields that the provider uses."""

    id: str
    state: str
    zone: str
    launched: datetime
    reason: str
    spot: bool
    client_token: str
    tags: Mapping[str, str]

    @property
    def machine(self) -> str:
        """The machine whose host the instance is."""
        return self.tags.get(MACHINE, "")

    @property
    def host(self) -> str:
        """The host's name. After the scheme `aws://` it is the providerID that AWS's cloud provider writes."""
        return f"/{self.zone}/{self.id}"

    def comes_from(self, token: str) -> bool:
        """Whether this Create made the instance. A person can remove a tag, but not the client token."""
        return token in (self.client_token, self.tags.get(TOKEN))


def instances(page: Mapping[str, Any]) -> Iterator[Instance]:
    """The instances in an answer of DescribeInstances or RunInstances."""
    for reservation in page.get("Reservations", [page]):
        for found in reservation.get("Instances", ()):
            said = found.get("StateReason", {}).get("Message") or found.get("StateTransitionReason", "")
            yield Instance(
                id=found["InstanceId"],
                state=found["State"]["Name"],
                zone=found["Placement"]["AvailabilityZone"],
                launched=found["LaunchTime"],
                reason=said or "no reason was given",
                spot=found.get("InstanceLifecycle") == "spot",
                client_token=found.get("ClientToken", ""),
                tags={tag["Key"]: tag["Value"] for tag in found.get("Tags", ())},
            )


class Census:
    """Looks at all instances, at most once every `seconds`."""

    def __init__(self, cloud: Cloud, provider: str, seconds: float) -> None:
        self._cloud, self._provider, self._seconds = cloud, provider, seconds
        self._coming: asyncio.Task[Mapping[str, Instance]] | None = None
        self._tasks: set[asyncio.Task[Mapping[str, Instance]]] = set()
        self._last = float("-inf")

    async def look(self) -> Mapping[str, Instance]:
        """Every instance by its id, from a look that begins after this call."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._look())
            self._tasks.add(self._coming)
            self._coming.add_done_callback(self._done)
        return await asyncio.shield(self._coming)

    async def close(self) -> None:
        """End the looks that are under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(self) -> Mapping[str, Instance]:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._last + self._seconds - clock())
        # The look begins here. Whoever asks from now on must get the next one.
        self._coming, self._last = None, clock()
        mine = [{"Name": f"tag:{PROVIDER}", "Values": [self._provider]}]
        pages = await self._cloud.pages("ec2", "describe_instances", Filters=mine, MaxResults=1000)
        return {instance.id: instance for page in pages for instance in instances(page)}

    def _done(self, task: asyncio.Task[Mapping[str, Instance]]) -> None:
        self._tasks.discard(task)
        # Perhaps nobody waits for the look any more, so its error is marked as seen.
        if not task.cancelled():
            task.exception()
