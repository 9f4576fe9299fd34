"""What an author writes: one small class that makes, joins, empties and ends hosts.

The kit calls the class and does the rest of the contract: fencing, repeats, time-outs, durable state, records. The kit
may call every method again for the same job after a restart of the provider, so every method must be idempotent: by the
job's token or by its host.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from enum import Enum

import msgspec

from bigfleet.model.machine import Call
from bigfleet.providerkit.offer import Offer, Shape

_DEFAULT_GRACE_SECONDS = 120


class BackendError(Exception):
    """The substrate refused or failed. The text becomes the machine's last_error, which a person reads."""


class Job(msgspec.Struct, frozen=True):
    """A machine for which a method of the backend is called."""

    machine: str
    """The machine's id."""
    shape: Shape
    token: str
    """Names the Create that makes or made the host. It is durable before `create` is called. Use it as the cloud's
    client token, or write it into a tag, so that `describe` can find the host by it.
    """
    host: str = ""
    """The host, as `create` or the offer named it. Empty until there is one."""
    cluster: str = ""
    """The cluster that the machine is bound to, if any."""
    recovering: bool = False
    """The call leads the machine out of Failed."""


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
    """What may happen to a machine without a call."""

    TAKEN_BACK = "taken back"
    """The substrate takes the host back. The kit drains the machine. A notice that the host is gone may follow."""
    BROKEN = "broken"
    """The host exists and does not work."""
    GONE = "gone"
    """The host does not exist any more."""


class Notice(msgspec.Struct, frozen=True):
    """Something that happened to a machine without a call."""

    machine: str
    change: Change
    text: str = ""
    """What happened, for a person."""
    grace_seconds: int = _DEFAULT_GRACE_SECONDS
    """Of TAKEN_BACK: how long running work may take to end."""
    host: str = ""
    """The host that the notice is about. The kit ignores the notice if the machine has another host by now."""


Known = Callable[[], Mapping[str, str]]
"""Returns every machine that has a host now, with its host."""


class Backend(ABC):
    """The substrate that hosts come from."""

    scheme: str
    """The part of a Node's spec.providerID before `://`. A host is the part after it."""
    limits: Limits = Limits()
    ready_poll_seconds: float = 2.0
    """Seconds between two calls of `ready` while the kit waits for a node."""
    refresh_seconds: float = 0.0
    """Seconds between two calls of `offers`; 0: it is called once."""
    doubt_seconds: float = 900.0
    """For how long after a failed Create its host may still appear. The kit looks for it and ends it."""

    def has(self, method: str) -> bool:
        """Whether the author wrote this optional method."""
        return getattr(type(self), method) is not getattr(Backend, method)

    def limit(self, job: Job, call: Call) -> float:  # noqa: ARG002 - for authors to override
        """Seconds after which this transition counts as failed. A drain has its grace on top."""
        return float(getattr(self.limits, call.value.lower()))

    @abstractmethod
    async def offers(self) -> Iterable[Offer]:
        """Every machine that can be had, with the same ids each time."""

    async def create(self, job: Job) -> str:
        """Make a host under the job's token, and return its name once it is up. It is in no cluster yet.

        If the provider was restarted in the middle of a Create, `job.host` is the host that `describe` found under the
        token: wait for that host and make no other.
        """
        raise NotImplementedError

    @abstractmethod
    async def configure(self, job: Job, blob: bytes) -> None:
        """Hand the bootstrap blob to the host so that it joins the job's cluster. The blob is secret."""

    async def ready(self, job: Job) -> bool:  # noqa: ARG002 - for authors to override
        """Whether the node has joined and is Ready. Asked until it is. Leave it out if `configure` waits for that."""
        return True

    @abstractmethod
    async def drain(self, job: Job, grace_seconds: int) -> None:
        """End what runs on the host within the grace, and wipe what the cluster left on it, credentials included."""

    async def delete(self, job: Job) -> None:
        """End the host, or do nothing if it is gone. Leave it out if hosts cannot be deleted."""
        raise NotImplementedError

    async def describe(self, job: Job) -> str:
        """The host that was made under the job's token, or an empty text. A backend with `create` must have this."""
        raise NotImplementedError

    async def watch(self, known: Known) -> AsyncIterator[Notice]:  # noqa: ARG002 - for authors to override
        """Yield a notice when something happens to a host without a call. Leave it out if nothing ever does.

        `known()` returns every machine that has a host now, with its host. Compare it with the substrate to notice
        hosts that vanished while the provider was down.
        """
        nothing: tuple[Notice, ...] = ()
        for notice in nothing:
            yield notice

    async def close(self) -> None:  # noqa: B027 - many substrates have nothing to let go of
        """Close connections. Called once, at the end."""
