"""All that a shard knows, by part. This file puts the parts together and holds no rules.

Each part owns its facts; docs/adr/0020-rooms-and-owners.md lists them. Parts change only through the events of `Core`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

from bigfleet.shard.core.lookups import Lookups
from bigfleet.shard.core.startup import Startup
from bigfleet.shard.core.vanished import Vanished
from bigfleet.shard.decision.causes import Causes
from bigfleet.shard.decision.durations import Durations
from bigfleet.shard.decision.engine_input import EngineInput
from bigfleet.shard.decision.give_back_rails import GiveBackRails
from bigfleet.shard.decision.holdouts import HoldOuts
from bigfleet.shard.decision.shortfalls import Shortfalls
from bigfleet.shard.demand.table import Demand, KeptDemand
from bigfleet.shard.execution.actuation import Actuation
from bigfleet.shard.execution.commitment import Commitments
from bigfleet.shard.execution.lifecycle import TAKEN_BACK, Lifecycle
from bigfleet.shard.execution.operator_requests import OperatorRequests
from bigfleet.shard.execution.recovery import Recovery
from bigfleet.shard.orders import Order, WakeWriter
from bigfleet.shard.persistence.kept import Kept
from bigfleet.shard.persistence.pending_writes import PendingWrites
from bigfleet.shard.sessions.available_capacity import AvailableCapacity
from bigfleet.shard.sessions.node_readiness import NodeReadiness
from bigfleet.shard.sessions.sender import Sender
from bigfleet.shard.sessions.session import Sessions
from bigfleet.shard.supply.machine_index import MachineIndex
from bigfleet.shard.supply.table import Supply
from bigfleet.telemetry.metrics import ShardMetrics


class Settings(NamedTuple):
    """The part of the configuration that the core needs."""

    shard_id: str
    #: The names of the providers.
    providers: tuple[str, ...]
    #: How long an operator may take to send user data, in seconds.
    bootstrap_timeout: float
    #: How long a Node may be known not to be Ready, in seconds.
    ready_timeout: float
    #: Whether the shard is paused by flag.
    paused: bool
    #: Whether the shard decides without acting.
    dry_run: bool = False


class Clocks(NamedTuple):
    """The two clocks of a shard, in seconds."""

    #: A clock that only grows. Running times are measured by it.
    now: Callable[[], float]
    #: The wall clock. It dates what people and other programs read.
    wall: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Parts:
    """One of each part."""

    #: Whether this process may act: the pause, the dry run, the epoch, standing down, the local file.
    actuation: Actuation
    #: Every machine, as its provider last showed it.
    supply: Supply
    #: What every cluster asks for.
    demand: Demand
    #: Machines by the cluster that they are bound to or meant for.
    machine_index: MachineIndex
    #: The requests and instructions that operators have not answered.
    requests: OperatorRequests
    #: What the shard has decided to do with machines and has not seen done.
    commitments: Commitments
    #: What happens to commitments.
    lifecycle: Lifecycle
    #: The way out of Failed.
    recovery: Recovery
    #: The operators' sessions.
    sessions: Sessions
    #: The outboxes of all clusters.
    sender: Sender
    #: What clusters were told that they could still have.
    available: AvailableCapacity
    #: Whether Nodes have come up.
    readiness: NodeReadiness
    #: Machines, needs and shapes that are no candidates for a while.
    holdouts: HoldOuts
    #: What slows giving back.
    rails: GiveBackRails
    #: How long machines take from state to state.
    durations: Durations
    #: The needs that the last decision left short.
    shortfalls: Shortfalls
    #: Why the pods of a need wait.
    causes: Causes
    #: What the engine must hear of before the next decision.
    engine_input: EngineInput
    #: What the local file must hold next.
    pending_writes: PendingWrites
    #: What must not be done yet because the shard has just started.
    startup: Startup
    #: Bound machines that are gone, and of which no line was logged yet.
    vanished: Vanished
    #: What one part asks of the others.
    lookups: Lookups
    #: What the shell is to do next.
    orders: list[Order]

    @classmethod
    def restored(cls, settings: Settings, epoch: int, kept: Kept, clocks: Clocks, metrics: ShardMetrics) -> Self:
        """The parts as an earlier life left them."""
        now, values = clocks.now(), kept.values
        shift = now - kept.written
        orders: list[Order] = []
        fenced: set[str] = set()
        actuation = Actuation(
            epoch, dry_run=settings.dry_run, paused=settings.paused, pause_reason=values.pause_reason, now=now
        )
        supply = Supply(settings.shard_id, highest_number=max(0, values.next_binding - 1))
        supply.resume_taken_back(each.machine for each in kept.commitments.values() if each.reason == TAKEN_BACK)
        demand = Demand(now, KeptDemand(values.next_arrival, tuple(kept.clusters.values())))
        machine_index, available, requests = MachineIndex(), AvailableCapacity(), OperatorRequests()
        sender = Sender(
            supply, demand, machine_index, available, wake=lambda cluster: orders.append(WakeWriter(cluster))
        )
        readiness = NodeReadiness(settings.ready_timeout)
        readiness.restored(kept.ready)
        commitments = Commitments(requests)
        lookups = Lookups(supply, demand, machine_index, requests, commitments, sender, readiness, actuation)
        holdouts = HoldOuts.restored(values.holdouts, now)
        rails = GiveBackRails(
            {cluster: since + shift for cluster, since in values.excess_since.items()},
            {machine_id: until + shift for machine_id, until in values.reclaim_holds.items()},
        )
        durations = Durations(values.drains, metrics)
        return cls(
            actuation=actuation,
            supply=supply,
            demand=demand,
            machine_index=machine_index,
            requests=requests,
            commitments=commitments,
            lifecycle=Lifecycle(lookups, commitments, actuation, fenced, settings.bootstrap_timeout),
            recovery=Recovery(lookups, requests, actuation, fenced),
            sessions=Sessions(lookups),
            sender=sender,
            available=available,
            readiness=readiness,
            holdouts=holdouts,
            rails=rails,
            durations=durations,
            shortfalls=Shortfalls(),
            causes=Causes(supply, demand, holdouts, actuation, settings.providers),
            engine_input=EngineInput(supply, demand, commitments, holdouts, rails, durations.drains, readiness),
            pending_writes=PendingWrites(kept),
            # A file with no binding number is younger than the loss of the one before, so it tells nothing of machines
            # that were not listed since.
            startup=Startup(supply, settings.providers, kept.found and values.next_binding > 0, now),
            vanished=Vanished(),
            lookups=lookups,
            orders=orders,
        )
