"""What the core wants its shell to do: values, carried out in order."""

import msgspec

from bigfleet.shard.execution.effects import Ask
from bigfleet.shard.sessions.session import Code


class MakeCall(msgspec.Struct, frozen=True):
    """Make a provider's mutating call, and tell the core what came of it, whatever that is."""

    ask: Ask


class Look(msgspec.Struct, frozen=True):
    """Get the machine; where that fails, it is asked for again later."""

    machine: str
    provider: str


class WakeWriter(msgspec.Struct, frozen=True):
    """The cluster's outbox has something to send."""

    cluster: str


class DecideSoon(msgspec.Struct, frozen=True):
    """Do not wait for the next cycle that is due, if the rate allows."""


class EndStream(msgspec.Struct, frozen=True):
    """End a stream from this side."""

    stream: int
    code: Code
    reason: str


class StandDown(msgspec.Struct, frozen=True):
    """Another process is this shard: make no call, close all sessions, stay up and not ready (protocol.md 10)."""

    reason: str


Order = MakeCall | Look | WakeWriter | DecideSoon | EndStream | StandDown
