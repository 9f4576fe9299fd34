"""The answers to what people ask of a running shard, from its parts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial

from bigfleet.engine.records import Verdict
from bigfleet.engine.verdicts import Verdicts
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.machine import MachineState
from bigfleet.shard.api.admin import ClusterStanding, ProviderStanding, ShardStatus
from bigfleet.shard.api.inspection import ToldCause
from bigfleet.shard.shell.shard import Shard

PAUSED_BY_FLAG = "--actuation-paused"
"""The reason of a pause that is there by flag."""


class Answers:
    """One shard's answers."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    # Needs.

    @property
    def cycle(self) -> int:
        """How many decisions were made since the shard's start."""
        return self._shard.decisions.cycle

    @property
    def decided_at_unix_nanos(self) -> int:
        """When the last decision was made."""
        return self._shard.decisions.decided_at_unix_nanos

    def reading(self) -> AbstractAsyncContextManager[None]:
        """While held, no decision is made."""
        return self._shard.reading()

    @property
    def cycle_seconds(self) -> float:
        """How long after a decision the next one comes if demand does not change."""
        return self._shard.cycle_seconds

    def verdict_rows(self, cluster: str) -> tuple[int, Iterator[tuple[Need, Verdict, ToldCause]]]:
        """How many needs one cluster, or all, have; what became of each need in serving order, and why."""
        decision = self._shard.last_decision
        if decision is None:
            return 0, iter(())
        verdicts = decision.verdicts
        rows = verdicts.of(cluster)
        return len(rows), (self._told(verdicts, row) for row in rows)

    def _told(self, verdicts: Verdicts, row: int) -> tuple[Need, Verdict, ToldCause]:
        """One need, what became of it, and why its pods wait."""
        core = self._shard.core
        need, verdict, causes, now = verdicts.need(row), verdicts[row], core.parts.causes, core.clocks.now()
        if verdict.satisfied:
            cause = causes.of_covered(verdict, verdicts.on_their_way(row), now)
        else:
            cause = causes.of_short(need, verdict, partial(verdicts.candidates, row), now)
        return need, verdict, ToldCause(cause.kind, cause.text, self._unix_nanos(cause.since))

    def _unix_nanos(self, at: float | None) -> int:
        """A time of the shard's own clock on the wall clock; 0 for None."""
        clocks = self._shard.core.clocks
        return 0 if at is None else int((clocks.wall() - (clocks.now() - at)) * 1e9)

    def owners(self, cluster: str, key: NeedKey) -> tuple[str, ...]:
        """Some of those who ask for the row."""
        return self._shard.core.parts.demand.owners(cluster, key)

    def arrival_unix_nanos(self, cluster: str, key: NeedKey) -> int:
        """When the row was first seen."""
        return self._shard.core.parts.demand.first_seen_unix_nanos(cluster, key)

    def unmet_age(self, cluster: str, key: NeedKey) -> int:
        """For how many decisions in a row the need has been short."""
        return self._shard.core.parts.shortfalls.age(cluster, key)

    def parked_age(self, cluster: str, key: NeedKey) -> int:
        """For how many decisions in a row nothing could be acquired for the need, whatever is free."""
        core = self._shard.core
        held = key.fingerprint in core.parts.holdouts.held_out(cluster, core.clocks.now())
        return self.unmet_age(cluster, key) if held or not core.parts.demand.live(cluster) else 0

    # The shard.

    def status(self) -> ShardStatus:
        """The state of the shard."""
        core, actuation = self._shard.core, self._shard.core.parts.actuation
        machines: Counter[MachineState] = Counter()
        for (state, _), count in core.parts.supply.counts().items():
            machines[state] += count
        return ShardStatus(
            shard_id=core.settings.shard_id,
            epoch=actuation.epoch,
            cycle=self.cycle,
            decided_at_unix_nanos=self.decided_at_unix_nanos,
            machines=machines,
            providers=tuple(map(self._provider, core.settings.providers)),
            in_flight=Counter(commitment.kind for commitment in core.parts.commitments),
            paused=(actuation.pause_reason or PAUSED_BY_FLAG) if actuation.paused else "",
            dry_run=actuation.dry_run,
            fenced=actuation.stood_down,
            engine=self._shard.compiler.walks.value,
            waits_for_engine=self._shard.compiler.must_wait(core.size),
            file_problem=actuation.file_problem,
            file_lost_unix_nanos=self._unix_nanos(actuation.file_lost_since),
        )

    def clusters(self) -> Iterable[ClusterStanding]:
        """Every cluster that the shard knows."""
        core, now = self._shard.core, self._shard.core.clocks.now()
        for cluster in sorted(core.parts.demand):
            rollup = core.parts.demand.rollup(cluster)
            kept = core.parts.demand.kept(cluster, now)
            yield ClusterStanding(
                id=cluster,
                connected=core.parts.demand.has_session(cluster),
                live=core.parts.demand.live(cluster),
                reported=rollup is not None,
                partial=kept is not None and kept.partial,
                forgotten=kept is not None and kept.forgotten,
                quarantined=core.parts.demand.quarantined(cluster),
                seconds_away=core.parts.demand.away_seconds(cluster, now),
                needs=0 if rollup is None else len(rollup.needs),
                needs_short=len(core.parts.shortfalls.of(cluster)),
                machines=len(core.parts.machine_index.of(cluster)),
            )

    async def pause(self, reason: str) -> bool:
        """Send nothing more to anybody. Returns whether the shard was paused before."""
        before = self._shard.core.pause(reason)
        await self._durably(undo=None if before else self._shard.core.resume)
        return before

    async def resume(self) -> bool:
        """Act again. Returns whether the shard was paused before."""
        reason = self._shard.core.parts.actuation.pause_reason or PAUSED_BY_FLAG
        before = self._shard.core.resume()
        await self._durably(undo=(lambda: self._shard.core.pause(reason)) if before else None)
        return before

    async def forget(self, cluster_id: str) -> int:
        """Withdraw a cluster's demand. Returns how many machines the cluster has."""
        # Forgetting cannot be undone, so the first write shows whether the file can be written.
        await self._shard.write_now()
        machines = self._shard.core.forget(cluster_id)
        await self._shard.write_now()
        self._shard.pump()
        return machines

    async def _durably(self, undo: Callable[[], object] | None) -> None:
        try:
            await self._shard.write_now()
        except OSError:
            if undo is not None:
                undo()
            raise
        finally:
            self._shard.pump()
            for calls in self._shard.calls.values():
                calls.nudge()

    def _provider(self, name: str) -> ProviderStanding:
        core, lists = self._shard.core, self._shard.lists[name]
        at = lists.listed_at
        return ProviderStanding(
            name=name,
            reachable=core.parts.supply.is_reachable(name),
            since_list=None if at is None else core.clocks.now() - at,
            last_error=lists.problem,
            machines=len(core.parts.supply.machines_of(name)),
        )
