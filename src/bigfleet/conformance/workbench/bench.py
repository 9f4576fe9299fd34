"""What a check is given: the target, machines on lease, shards of its own, and random numbers that can be repeated."""

import itertools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bigfleet.conformance.errors import NotApplicableError, NotCheckedError
from bigfleet.conformance.workbench.faults import Fault, how_to_offer
from bigfleet.conformance.workbench.handle import Handle
from bigfleet.conformance.workbench.hosts import HostList
from bigfleet.conformance.workbench.pool import Pool
from bigfleet.conformance.workbench.records import IDLE, SPECULATIVE
from bigfleet.conformance.workbench.requests import NO_TOKEN, Shard, Token
from bigfleet.conformance.workbench.target import Target
from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

if TYPE_CHECKING:
    from bigfleet.conformance.checks.durability import Restart

_LONGEST_QUIET_SECONDS = 2.0
_QUIET_FRACTION = 20

LARGE_FLEET = 10_000
"""A provider with more machines than this must have cursors, and one with as many can be checked for scale."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the probes found out about the target."""

    machines: int
    """How many machines List shows."""
    ordinary: int
    """How many of them the suite may use and have no fault."""
    deletable: bool
    """Delete is implemented."""
    cursors: bool
    """List returns a revision."""
    spot: int
    """How many machines are spot."""
    faults: tuple[str, ...]
    """The faults that machines are offered with."""
    tls: bool
    launched: bool
    """The suite started the provider, and may kill it."""

    @property
    def round_trip(self) -> tuple[Call, ...]:
        """The calls that lead a machine from Idle through its whole life and back to Idle."""
        bound = (Call.CONFIGURE, Call.DRAIN)
        return (*bound, Call.DELETE, Call.CREATE) if self.deletable else bound

    @property
    def cursor_need(self) -> str:
        """A sentence that says whether a provider of this size must have cursors."""
        verdict = "needed" if self.machines > LARGE_FLEET else "not needed"
        return f"{self.machines:,} machines: cursors {verdict} (bound {LARGE_FLEET:,})"


@dataclass(slots=True)
class Bench:
    """What one check works with."""

    id: str
    """The behaviour under check."""
    target: Target
    pool: Pool
    facts: Facts
    rng: random.Random
    shard: Callable[[], Shard]
    """Makes a shard in whose name calls are sent."""
    restart: "Restart | None" = None
    hosts: HostList | None = None
    notes: list[str] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def quiet_seconds(self) -> float:
        """How long the suite watches something that must not change."""
        return min(_LONGEST_QUIET_SECONDS, self.target.settle_seconds / _QUIET_FRACTION)

    def cluster(self) -> str:
        """The name of a cluster that nothing else in the run uses."""
        return f"conformance-{self.id.lower()}-{next(self._numbers)}"

    def stranger(self) -> str:
        """The id of a machine that no provider has."""
        return f"{self.shard().id}-no-such-machine-{self.id.lower()}-{next(self._numbers)}"

    def tokens(self, count: int) -> list[Token]:
        """Tokens for identical calls that are sent at once: no token for each.

        Over TLS a call needs a token, so the calls then have fresh tokens of one shard, and some of them may be fenced.
        """
        if not self.facts.tls:
            return [NO_TOKEN] * count
        shard = self.shard()
        return [shard.next() for _ in range(count)]

    @asynccontextmanager
    async def idle(self) -> AsyncIterator[Handle]:
        """One Idle machine."""
        async with self.pool.lease(1, IDLE) as (handle,):
            yield handle

    @asynccontextmanager
    async def several(self, least: int, most: int) -> AsyncIterator[tuple[Handle, ...]]:
        """At least `least` Idle machines, and up to `most` if there are so many."""
        async with self.pool.lease(max(least, min(most, self.pool.usable())), IDLE) as handles:
            yield handles

    @asynccontextmanager
    async def speculative(self) -> AsyncIterator[Handle]:
        """One Speculative machine."""
        if not self.facts.deletable:
            raise NotApplicableError("needs a Speculative machine to come back to, and Delete is UNIMPLEMENTED here")
        async with self.pool.lease(1, SPECULATIVE) as (handle,):
            yield handle

    @asynccontextmanager
    async def faulty(self, fault: Fault) -> AsyncIterator[Handle]:
        """One machine with this fault: Speculative for a fault of Create, Idle for any other."""
        self.offered(fault)
        state = SPECULATIVE if fault.startswith("create") else IDLE
        async with self.pool.lease(1, state, fault) as (handle,):
            yield handle

    def offered(self, *faults: Fault) -> list[Fault]:
        """Those of the faults that a machine is offered with. Raises if there is none, and says what to do."""
        # Without Delete no machine is ever Speculative, so nothing is ever created or deleted.
        possible = [fault for fault in faults if self.facts.deletable or not fault.startswith(("create", "delete"))]
        if not possible:
            raise NotApplicableError("nothing is created or deleted here: Delete is UNIMPLEMENTED")
        offered = [fault for fault in possible if fault in self.facts.faults]
        if not offered:
            raise NotCheckedError("fault", how_to_offer(*possible))
        return offered


def sample(rng: random.Random, records: Sequence[pb.Machine], count: int) -> list[pb.Machine]:
    """At most so many of the records, drawn at random."""
    return rng.sample(list(records), min(count, len(records)))
