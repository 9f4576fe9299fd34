"""What an author writes: one small class that makes, joins, empties and ends hosts.

The kit calls it and does the rest of the contract: fencing, repeats, time-outs, what is durable, what is shown. Every
method may be called again for the same job after a restart of the provider, so each must be idempotent by its token or
its host.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from enum import Enum

import msgspec

from bigfleet.model.machine import Call
from bigfleet.providerkit.offer import Offer, Shape


class BackendError(Exception):
    """The substrate refused or failed; its text becomes the machine's last_error, so it says what a person needs."""


class Job(msgspec.Struct, frozen=True):
    """One machine that the kit wants something done with.

    `token` names the Create that `host` comes from or shall come from, and is durable before the substrate hears of it:
    use it as the cloud's client token, or write it into a tag, so that `describe` can find the host by it.
    """

    machine: str
    shape: Shape
    token: str
    host: str = ""
    cluster: str = ""
    recovering: bool = False
    """Whether the machine comes out of Failed."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds after which a transition counts as failed."""

    create: float = 900.0
    configure: float = 1200.0
    drain: float = 600.0
    delete: float = 900.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"the limit of {name} must be a number of seconds above 0")


class Change(Enum):
    """What may happen to a machine though nobody asked."""

    TAKEN_BACK = "taken back"
    """The substrate wants it: it drains, and a notice that it is gone may follow."""
    BROKEN = "broken"
    """Its host is there and does not work."""
    GONE = "gone"
    """Its host is no more."""


class Notice(msgspec.Struct, frozen=True):
    """Something that happened to a machine by itself; `text` is for a person, `grace_seconds` for TAKEN_BACK.

    With `host` it says nothing of a machine that has another host by the time the news arrives.
    """

    machine: str
    change: Change
    text: str = ""
    grace_seconds: int = 120
    host: str = ""


Known = Callable[[], Mapping[str, str]]
"""Machines that have a host, and which, when asked."""


class Backend(ABC):
    """The substrate. `scheme` is the part of a Node's spec.providerID before `://`, a host is the part after it."""

    scheme: str
    limits: Limits = Limits()
    ready_poll_seconds: float = 2.0
    """How often `ready` is asked while a node is awaited."""
    refresh_seconds: float = 0.0
    """How often `offers` is asked again; 0 is never."""
    doubt_seconds: float = 900.0
    """How long after a Create that failed the substrate may still bring its host to light."""

    def has(self, method: str) -> bool:
        """Whether the author wrote this optional method."""
        return getattr(type(self), method) is not getattr(Backend, method)

    def limit(self, job: Job, call: Call) -> float:  # noqa: ARG002 - for authors to override
        """Seconds after which this transition counts as failed; a drain has its grace besides."""
        return float(getattr(self.limits, call.value.lower()))

    @abstractmethod
    async def offers(self) -> Iterable[Offer]:
        """Every machine there is to be had, the same ids each time."""

    async def create(self, job: Job) -> str:
        """Make a host under the job's token and return it once it is up, joined to no cluster.

        After a restart in the middle, `job.host` is what `describe` found under the token: wait for that one.
        """
        raise NotImplementedError

    @abstractmethod
    async def configure(self, job: Job, blob: bytes) -> None:
        """Hand the bootstrap blob to the host so that it joins the job's cluster. The blob is secret."""

    async def ready(self, job: Job) -> bool:  # noqa: ARG002 - for authors to override
        """Whether the node has joined and is Ready; asked until it is. Leave it out if `configure` waits for that."""
        return True

    @abstractmethod
    async def drain(self, job: Job, grace_seconds: int) -> None:
        """End what runs on the host within the grace, and wipe what the cluster left there, credentials included."""

    async def delete(self, job: Job) -> None:
        """End the host, or do nothing if it is gone. Leave it out if hosts cannot be deleted."""
        raise NotImplementedError

    async def describe(self, job: Job) -> str:
        """The host that was made under the job's token, or nothing. Needed by whoever has `create`."""
        raise NotImplementedError

    async def watch(self, known: Known) -> AsyncIterator[Notice]:  # noqa: ARG002 - for authors to override
        """What happens to hosts by itself, for as long as the provider runs. Leave it out if nothing does.

        `known()` is every machine that has a host, and which, as the kit has it now: what is among them and not there
        any more went while nobody looked.
        """
        nothing: tuple[Notice, ...] = ()
        for notice in nothing:
            yield notice

    async def close(self) -> None:  # noqa: B027 - many substrates have nothing to let go of
        """Let go of connections; called once, at the end."""
