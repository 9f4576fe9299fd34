"""What the core wants its shell to do: values, carried out in order."""

import msgspec

from bigfleet.shard.execution.effects import ProviderCall
from bigfleet.shard.sessions.outputs import Code


class MakeCall(msgspec.Struct, frozen=True):
    """Make a mutating call to a provider, and tell the core in every case what came of it."""

    call: ProviderCall


class GetMachine(msgspec.Struct, frozen=True):
    """Get the machine. Where the Get fails, the core orders it again later."""

    machine: str
    provider: str


class WakeWriter(msgspec.Struct, frozen=True):
    """The cluster's outbox has something to send."""

    cluster: str


class DecideSoon(msgspec.Struct, frozen=True):
    """Decide before the next cycle is due, if cycles are not too close together."""


class EndStream(msgspec.Struct, frozen=True):
    """End a stream from this side."""

    stream: int
    code: Code
    reason: str


class StandDown(msgspec.Struct, frozen=True):
    """Another process is this shard: make no call, close all sessions, stay up and not ready (protocol rule 10)."""

    reason: str


Order = MakeCall | GetMachine | WakeWriter | DecideSoon | EndStream | StandDown
