"""What a check works with: the target, machines on lease, shards of its own, and chance that can be replayed."""

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

LARGE_FLEET = 10_000
"""A provider with more machines than this must have cursors, and one with as many can be checked for scale."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the probes found."""

    machines: int
    ordinary: int
    deletable: bool
    cursors: bool
    spot: int
    faults: tuple[str, ...]
    tls: bool
    launched: bool

    @property
    def round_trip(self) -> tuple[Call, ...]:
        """The calls that lead from Idle back to Idle through everything this provider can do."""
        bound = (Call.CONFIGURE, Call.DRAIN)
        return (*bound, Call.DELETE, Call.CREATE) if self.deletable else bound

    @property
    def cursor_need(self) -> str:
        """Whether a provider of this size must have cursors, in a sentence."""
        verdict = "needed" if self.machines > LARGE_FLEET else "not needed"
        return f"{self.machines:,} machines: cursors {verdict} (bound {LARGE_FLEET:,})"


@dataclass(slots=True)
class Bench:
    """One check's workplace."""

    id: str
    target: Target
    pool: Pool
    facts: Facts
    rng: random.Random
    shard: Callable[[], Shard]
    restart: "Restart | None" = None
    hosts: HostList | None = None
    notes: list[str] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def quiet_seconds(self) -> float:
        """How long something is watched that must not change."""
        return min(2.0, self.target.settle_seconds / 20)

    def cluster(self) -> str:
        """The name of a cluster that nothing else in the run uses."""
        return f"conformance-{self.id.lower()}-{next(self._numbers)}"

    def stranger(self) -> str:
        """The id of a machine that no provider has."""
        return f"{self.shard().id}-no-such-machine-{self.id.lower()}-{next(self._numbers)}"

    def tokens(self, count: int) -> list[Token]:
        """Tokens for calls that are sent at once and differ in nothing: none at all, or, where TLS forbids that, fresh
        ones of one shard, of which some may then be fenced.
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
        """As many Idle machines as there are between these bounds."""
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
        """One machine with this fault, Speculative for faults of Create and Idle for the others."""
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
    """Some of the records, the same for the same seed."""
    return rng.sample(list(records), min(count, len(records)))
