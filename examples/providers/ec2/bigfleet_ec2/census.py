"""All instances of this provider as they are now. Whoever waits for something looks here, and looks are shared.

A thousand machines on their way cost one DescribeInstances a `poll_seconds`, not a thousand.
"""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from bigfleet_ec2.cloud import Cloud

MACHINE, TOKEN, PROVIDER = "bigfleet:machine", "bigfleet:token", "bigfleet:provider"
"""The tags that say whose an instance is. They are set in the very call that makes it."""
CLUSTER, ORDER = "bigfleet:cluster", "bigfleet:order"
"""The tags that say what it is for: the first for people, the second for the agent in the instance."""

LIVE = ("pending", "running", "stopping", "stopped")
"""States of instances that must be paid for, or may be again."""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of an instance."""

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
        """The machine whose host it is."""
        return self.tags.get(MACHINE, "")

    @property
    def host(self) -> str:
        """The host's name: with the scheme before it, what AWS's cloud provider writes as a Node's providerID."""
        return f"/{self.zone}/{self.id}"

    def comes_from(self, token: str) -> bool:
        """Whether that Create made it. Tags can be taken off by hand, the client token cannot."""
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
    """Looks at all instances, at most once in so many seconds."""

    def __init__(self, cloud: Cloud, provider: str, seconds: float) -> None:
        self._cloud, self._provider, self._seconds = cloud, provider, seconds
        self._coming: asyncio.Task[Mapping[str, Instance]] | None = None
        self._tasks: set[asyncio.Task[Mapping[str, Instance]]] = set()
        self._last = float("-inf")

    async def look(self) -> Mapping[str, Instance]:
        """Every instance by its id, from a look that began after this was asked."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._look())
            self._tasks.add(self._coming)
            self._coming.add_done_callback(self._done)
        return await asyncio.shield(self._coming)

    async def close(self) -> None:
        """End what looks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(self) -> Mapping[str, Instance]:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._last + self._seconds - clock())
        # From here on the look has begun, and who asks now must get the next one.
        self._coming, self._last = None, clock()
        mine = [{"Name": f"tag:{PROVIDER}", "Values": [self._provider]}]
        pages = await self._cloud.pages("ec2", "describe_instances", Filters=mine, MaxResults=1000)
        return {instance.id: instance for page in pages for instance in instances(page)}

    def _done(self, task: asyncio.Task[Mapping[str, Instance]]) -> None:
        self._tasks.discard(task)
        # Everybody who waited may have gone by the time it fails.
        if not task.cancelled():
            task.exception()
