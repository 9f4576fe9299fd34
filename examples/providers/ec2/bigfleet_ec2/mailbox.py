"""Messages between the provider and the agent in an instance, as objects in S3: the blob, and the agent's answer.

Each instance has a folder that only it may read and write, by its role's policy. Each order has a folder in that one.
"""

from bigfleet.providerkit import BackendError

from bigfleet_ec2.cloud import Cloud
from bigfleet_ec2.config import Guest

BLOB = "bootstrap"
JOINED, LEFT, FAILED = "joined", "left", "failed"
"""The agent's answers: the node is Ready; nothing of the cluster is left; the order failed, and why."""

_MOST_ANSWER_BYTES = 500
# The most objects that S3 deletes in one call.
_MOST_DELETED = 1000


class Mailbox:
    """The messages in one bucket."""

    def __init__(self, cloud: Cloud, guest: Guest) -> None:
        self._cloud, self._guest = cloud, guest

    def folder(self, instance: str) -> str:
        """The instance's folder. The policy of its role names it by `${aws:userid}`."""
        return f"{self._guest.prefix}{self._guest.role_id}:{instance}/"

    async def leave(self, instance: str, order: str, blob: bytes) -> None:
        """Leave the blob for the agent. The bucket encrypts it."""
        key = f"{self.folder(instance)}{order}/{BLOB}"
        await self._cloud.s3("put_object", Bucket=self._guest.bucket, Key=key, Body=blob)

    async def answered(self, instance: str, order: str, word: str) -> bool:
        """Whether the agent has given this answer. BackendError with its reason if the order failed."""
        folder = f"{self.folder(instance)}{order}/"
        listed = await self._cloud.s3("list_objects_v2", Bucket=self._guest.bucket, Prefix=folder)
        words = {found["Key"].removeprefix(folder) for found in listed.get("Contents", ())}
        if FAILED in words:
            said = await self._cloud.read(self._guest.bucket, f"{folder}{FAILED}", _MOST_ANSWER_BYTES)
            raise BackendError(f"{instance}: {' '.join(said.decode(errors='replace').split()) or 'it failed'}")
        return word in words

    async def take_back(self, instance: str, order: str) -> None:
        """Delete the blob of an order."""
        await self._cloud.s3("delete_object", Bucket=self._guest.bucket, Key=f"{self.folder(instance)}{order}/{BLOB}")

    async def clear(self, instance: str) -> None:
        """Delete everything in the instance's folder."""
        pages = await self._cloud.pages(
            "s3", "list_objects_v2", Bucket=self._guest.bucket, Prefix=self.folder(instance)
        )
        keys = [{"Key": found["Key"]} for page in pages for found in page.get("Contents", ())]
        for start in range(0, len(keys), _MOST_DELETED):
            some = {"Objects": keys[start : start + _MOST_DELETED], "Quiet": True}
            answer = await self._cloud.s3("delete_objects", Bucket=self._guest.bucket, Delete=some)
            for problem in answer.get("Errors", ()):
                raise BackendError(f"delete_objects: {problem.get('Key')}: {problem.get('Message')}")
