"""All that a shard knows, by part. No rules: those are in the parts, and in what joins them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bigfleet.model.demand.need import NeedKey
from bigfleet.shard.core.lookups import Books
from bigfleet.shard.decision.durations import Timings
from bigfleet.shard.decision.engine_input import Picture
from bigfleet.shard.decision.give_back_rails import Rails
from bigfleet.shard.decision.holdouts import HoldOuts
from bigfleet.shard.demand.table import Demand, KeptDemand
from bigfleet.shard.execution import effects as does
from bigfleet.shard.execution.lifecycle import TAKEN_BACK, Execute
from bigfleet.shard.execution.recovery import Recovery
from bigfleet.shard.orders import Order
from bigfleet.shard.persistence.journal import Kept
from bigfleet.shard.persistence.pending_writes import Filing
from bigfleet.shard.sessions.available_capacity import AvailableCapacity
from bigfleet.shard.sessions.node_readiness import NodeReadiness
from bigfleet.shard.sessions.sender import Talk
from bigfleet.shard.sessions.session import Sessions
from bigfleet.shard.supply.machine_index import Holdings
from bigfleet.shard.supply.table import Supply
from bigfleet.telemetry.metrics import ShardMetrics


class Settings(NamedTuple):
    """What of the configuration the core goes by."""

    shard_id: str
    providers: tuple[str, ...]
    bootstrap_timeout: float
    ready_timeout: float
    paused: bool
    dry_run: bool = False


class Clocks(NamedTuple):
    """Running times go by `now`, which only grows; `wall` dates what others read."""

    now: Callable[[], float]
    wall: Callable[[], float]


class State:
    """The parts, as an earlier life left them."""

    def __init__(self, settings: Settings, epoch: int, kept: Kept, clocks: Clocks, metrics: ShardMetrics) -> None:
        self.settings, self.epoch, self.clocks, self.metrics = settings, epoch, clocks, metrics
        now = clocks.now()
        values, shift = kept.values, now - kept.written
        self.orders: list[Order] = []
        self.stood_down = ""
        self.durable = True
        """Whether the local file could be written when that was last tried."""
        self.next_binding = values.next_binding
        self.supply = Supply(settings.shard_id)
        self.demand = Demand(now, KeptDemand(values.next_arrival, tuple(kept.clusters.values())))
        self.holdouts = HoldOuts.restored(values.holdouts, now)
        self.rails = Rails(
            {cluster: since + shift for cluster, since in values.excess_since.items()},
            {machine_id: until + shift for machine_id, until in values.reclaim_holds.items()},
        )
        self.timings = Timings(values.drains, metrics)
        self.holdings = Holdings()
        self.books = Books(self)
        self.sessions = Sessions(self.books)
        self.available = AvailableCapacity()
        self.talk = Talk(self.supply, self.demand, self.holdings, self.available, self._order)
        self.execute = Execute(self.books, settings.bootstrap_timeout)
        self.readiness = NodeReadiness(settings.ready_timeout)
        self.readiness.restored(kept.ready)
        self.recovery = Recovery(self.books, self.execute.fenced)
        self.taken_back = {each.machine for each in kept.commitments.values() if each.reason == TAKEN_BACK}
        """Machines that their provider drains unasked: nobody else's until they are through."""
        self.picture = Picture(
            self.supply,
            self.demand,
            self.execute,
            self.holdouts,
            self.rails,
            self.timings.drains,
            self.readiness,
            self.taken_back,
        )
        self.short: Mapping[str, list[NeedKey]] = {}
        """The rows that the last decision left short, by cluster, first served first."""
        self.cost = 0.0
        """Dollars an hour of every machine that is paid for."""
        self.first_seen: dict[str, dict[NeedKey, int]] = {}
        """When each row of each cluster was first seen, in nanoseconds of the wall clock."""
        self.ends: list[does.Ended] = []
        self.recoveries: list[does.Ask] = []
        """Calls out of Failed since somebody last took them, for the audit log."""
        self.unready: dict[str, str] = {}
        """Empty machines whose node was not Ready in time, with their clusters: to be drained (protocol.md 16)."""
        self.filing = Filing(kept)
        # A file that is younger than the loss of the one before tells nothing of machines that were not listed since.
        self.had_file, self.started = kept.found and values.next_binding > 0, now
        self.unsettled_at_start: set[str] = set()
        self.pause_reason = values.pause_reason
        """Why an admin paused; such a pause outlives the process. One by flag is there as long as the flag."""
        self.paused = settings.paused or bool(values.pause_reason)

    def _order(self, order: Order) -> None:
        self.orders.append(order)
