"""The shell around the core: cycles, providers and the local file. It carries out the core's orders, decides nothing.

Clocks and threads are given from outside, so that a simulation drives the same shard with a clock that jumps.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import structlog

from bigfleet.engine.available import Available, available
from bigfleet.engine.engine import Decision, Engine
from bigfleet.engine.records import Policy
from bigfleet.engine.tables.validate import RecordError
from bigfleet.shard.core.core import Core
from bigfleet.shard.core.decisions import Decisions
from bigfleet.shard.decision.engine_input import EngineUpdate
from bigfleet.shard.orders import DecideSoon, EndStream, GetMachine, MakeCall, StandDown, WakeWriter
from bigfleet.shard.persistence.audit_log import AuditError, Record
from bigfleet.shard.persistence.journal import JournalError
from bigfleet.shard.persistence.kept import Batch
from bigfleet.shard.shell.engine_compiler import EngineCompiler
from bigfleet.shard.shell.gauges import Gauges, Machines, Rows, count
from bigfleet.shard.shell.provider_calls import Caller, ProviderCalls
from bigfleet.shard.shell.provider_lists import ProviderGets, ProviderLists, Reader
from bigfleet.shard.shell.session_streams import SessionStreams
from bigfleet.telemetry.traces import Tracing

_log = structlog.get_logger("bigfleet.shard")

T = TypeVar("T")

EARLY_SECONDS = 0.5
"""A cycle does not begin sooner than this after the one before, nor sooner than that one took."""

STOP_SECONDS = 4.0
"""How long the shard waits, when it stops, for calls on their way."""

_RECORDS_A_TURN = 500
"""How many machines are made into records between two turns of the event loop."""

_GOODBYE_SECONDS = 2.0
"""How long the shard waits, when it stops, for streams to end."""


class Client(Caller, Reader, Protocol):
    """All six calls of a provider."""


class File(Protocol):
    """The local file."""

    def write(self, batch: Batch, now: float, wall: float) -> None:
        """Make it durable, or raise JournalError."""


class Log(Protocol):
    """The audit log."""

    def append(self, records: list[Record]) -> None:
        """Write them down, or raise AuditError."""


class Times(Protocol):
    """How often things are done."""

    @property
    def cycle_interval(self) -> float:
        """Seconds between cycles."""

    @property
    def full_list_interval(self) -> float:
        """Seconds between full lists."""

    @property
    def provider_concurrency(self) -> int:
        """Calls to one provider at a time."""


class Threads(Protocol):
    """Runs what blocks."""

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]:
        """Its result, without holding up the event loop."""


class Outside(Protocol):
    """What the shell needs of the world besides providers."""

    @property
    def file(self) -> File:
        """The local file."""

    @property
    def log(self) -> Log:
        """The audit log."""

    @property
    def threads(self) -> Threads:
        """Where blocking work runs."""

    @property
    def tracing(self) -> Tracing:
        """Where spans go."""

    async def raise_epoch(self, floor: int) -> int:
        """Take an epoch above the floor, durably, and have every later call carry it."""


class Shard:
    """One running shard."""

    def __init__(
        self, core: Core, decisions: Decisions, clients: Mapping[str, Client], outside: Outside, times: Times
    ) -> None:
        self.core, self.decisions, self._outside, self._times = core, decisions, outside, times
        self.engine = Engine()
        self.compiler = EngineCompiler(times.cycle_interval)
        self._gauges = Gauges(core.metrics)
        self.streams = SessionStreams(core, self.pump)
        self.calls = {
            name: ProviderCalls(core, client, times.provider_concurrency, self._called(name), outside.tracing)
            for name, client in clients.items()
        }
        self.gets = {name: ProviderGets(core, name, client, self._listed) for name, client in clients.items()}
        self.lists = {
            name: ProviderLists(
                core,
                name,
                client,
                interval=times.cycle_interval,
                full_interval=times.full_list_interval,
                after=self._listed,
            )
            for name, client in clients.items()
        }
        #: Set after every decision; whoever waits for one clears it.
        self.decided = asyncio.Event()
        #: The last decision; its verdicts are valid while `reading` is held.
        self.last_decision: Decision | None = None
        self._deciding = asyncio.Lock()
        self._told_to_wait = False
        self._writing = asyncio.Lock()
        self._raising = asyncio.Lock()
        self._soon = asyncio.Event()
        self._stopping = asyncio.Event()

    @property
    def cycle_seconds(self) -> float:
        """How long after a decision the next one comes if demand does not change."""
        return self._times.cycle_interval

    async def run(self) -> None:
        """Work until `stop`. Then wait for calls on their way, and write down what is known."""
        async with asyncio.TaskGroup() as tasks:
            services = [
                *(lists.run() for lists in self.lists.values()),
                *(gets.run() for gets in self.gets.values()),
                *(calls.run() for calls in self.calls.values()),
                self.streams.tick(),
            ]
            running = [tasks.create_task(service) for service in services]
            self.pump()
            await self._cycles()
            await self._drain()
            for task in running:
                task.cancel()

    def stop(self) -> None:
        """Begin no new action, and end."""
        self._stopping.set()
        self._soon.set()

    def pump(self) -> None:
        """Carry out what the core ordered."""
        while orders := self.core.take_orders():
            for order in orders:
                match order:
                    case MakeCall(call=call):
                        self.calls[call.provider].put(call)
                    case GetMachine(machine=machine, provider=provider):
                        if provider in self.gets:
                            self.gets[provider].want(machine)
                    case WakeWriter(cluster=cluster):
                        self.streams.wake(cluster)
                    case DecideSoon():
                        self._soon.set()
                    case EndStream():
                        self.streams.end(order)
                    case StandDown(reason=reason):
                        for calls in self.calls.values():
                            calls.stop()
                        self.streams.shut(f"this shard has stood down: {reason}")

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """While held, no decision is made and verdicts stay valid."""
        async with self._deciding:
            yield

    async def write_now(self) -> None:
        """Write down what is known; OSError where that cannot be done."""
        try:
            await self._write(())
        except JournalError as error:
            raise OSError(str(error)) from error

    # Cycles.

    async def _cycles(self) -> None:
        clock, last, took = self.core.clocks.now, float("-inf"), 0.0
        while not self._stopping.is_set():
            gap = max(EARLY_SECONDS, took)
            await self._wait(last + gap - clock())
            if not self._soon.is_set():
                await self._wait(last + self._times.cycle_interval - clock(), self._soon)
            if self._stopping.is_set():
                break
            self._soon.clear()
            last = clock()
            await self._cycle()
            took = clock() - last

    async def _wait(self, seconds: float, other: asyncio.Event | None = None) -> None:
        """Wait so long, or until the shard stops or the other event comes."""
        if seconds <= 0 or self._stopping.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # `stop` sets both events.
                await (other or self._stopping).wait()

    async def _cycle(self) -> None:
        core, metrics, tracing = self.core, self.core.metrics, self._outside.tracing
        clock, started = core.clocks.now, core.clocks.now()
        with tracing.span("cycle", number=self.decisions.cycle + 1):
            with tracing.span("reconcile"):
                core.tick()
                self.pump()
            if self._waits_for_compiler():
                return
            async with self._deciding:
                update, more = core.begin_update(started), True
                while more:
                    more = core.add_machines(update, _RECORDS_A_TURN)
                    await asyncio.sleep(0)
                metrics.cycle_phase_duration.of("reconcile").observe(clock() - started)
                due = core.due_for_offers(started)
                with tracing.span("decide", machines=len(update.records), clusters=len(update.needs)):
                    decision, free, counts = await self._outside.threads(
                        self._decide, update, self.decisions.policy(), due
                    )
                for phase, seconds in self.engine.spent._asdict().items():
                    metrics.cycle_phase_duration.of(phase).observe(seconds)
                acted = clock()
                self.last_decision = decision
                begun, records = self.decisions.decided(decision, started)
            core.offer(free)
            self._gauges.show(*counts)
            with tracing.span("execute", actions=len(begun)):
                # The log comes before the actions begin, so that it has them whatever happens next.
                await self._report([*records, *self.decisions.happened()])
                await self._begin(begun)
                self.pump()
            metrics.cycle_phase_duration.of("execute").observe(clock() - acted)
        metrics.cycle_duration.observe(clock() - started)
        self.decided.set()

    async def compile_engine(self) -> None:
        """Have the engine compiled, in processes and threads of the machine, and swap it in between two decisions."""
        await self.compiler.run(self._between_decisions)

    async def _between_decisions(self, change: Callable[[], None]) -> None:
        async with self._deciding:
            change()
        self._soon.set()

    def _waits_for_compiler(self) -> bool:
        """Whether the fleet is too large for the engine as it runs now. The log says so once."""
        why = self.compiler.must_wait(self.core.size)
        if why and not self._told_to_wait:
            _log.warning("decisions_wait_for_engine", reason=why)
        self._told_to_wait = bool(why)
        return bool(why)

    def _decide(
        self, update: EngineUpdate, policy: Policy, due: list[str]
    ) -> tuple[Decision, Mapping[str, list[Available]], tuple[Machines, Rows]]:
        """In a thread: tell the engine what changed, have it decide, and ask what some clusters could still have."""
        for error in _tell(self.engine, update):
            self.core.metrics.machines_rejected.of("structural").inc()
            _log.warning("machine_refused", machine=error.machine_id, error=str(error))
        decision = self.engine.decide(policy, int(self.core.clocks.now()), self.core.parts.supply.highest_number + 1)
        return decision, available(self.engine, due), count(self.engine)

    async def _begin(self, machine_ids: list[str]) -> None:
        """Make the commitments of these machines durable, then begin them. If the write fails, none begins."""
        try:
            await self._write(machine_ids)
        except JournalError as error:
            if self.core.file_unwritten(str(error)):
                _log.error("local_file_unwritable", error=str(error), advice="no action starts until it can be written")
            return
        if self.core.file_written():
            _log.info("local_file_writable")
        self.core.begin(machine_ids)

    async def _report(self, records: list[Record]) -> None:
        metrics = self.core.metrics
        metrics.action_queue_depth.set(sum(calls.waiting for calls in self.calls.values()))
        metrics.execute_inflight.set(len(self.core.parts.commitments))
        if not records:
            return
        try:
            await self._outside.threads(self._outside.log.append, records)
        except AuditError as error:
            _log.error("audit_log_unwritable", error=str(error), records=len(records))

    async def _drain(self) -> None:
        """Wait for calls on their way, then for streams, and write down what is known."""
        for calls in self.calls.values():
            calls.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*(calls.idle() for calls in self.calls.values()))
        self.streams.shut("the shard is shutting down")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self.streams.gone()
        try:
            await self._write(())
        except JournalError as error:
            _log.error("local_file_unwritable", error=str(error), advice="the next start settles every machine by Get")
        await self._report(self.decisions.happened())

    def _called(self, name: str) -> Callable[[], None]:
        def after() -> None:
            self.lists[name].hurry()
            self.pump()

        return after

    async def _listed(self) -> None:
        """A List or a Get has ended. First the epoch is raised above every one that was seen (protocol rule 10)."""
        supply, actuation = self.core.parts.supply, self.core.parts.actuation
        # Lists and Gets end at any time, and two must not raise the epoch at once.
        async with self._raising:
            if supply.highest_epoch >= actuation.epoch and not actuation.stood_down:
                self.core.epoch_raised(await self._outside.raise_epoch(supply.highest_epoch))
        for name, calls in self.calls.items():
            if supply.has_listed(name):
                calls.open()
        self.pump()

    async def _write(self, machine_ids: Iterable[str]) -> None:
        """Write down what is known. Where that fails, the commitments of these machines end before they began."""
        clocks = self.core.clocks
        # Batches are written one at a time, in the order in which they were taken.
        async with self._writing:
            batch = self.core.take_batch()
            try:
                await self._outside.threads(self._outside.file.write, batch, clocks.now(), clocks.wall())
            except JournalError:
                self.core.unwritten(batch, machine_ids)
                raise


def _tell(engine: Engine, update: EngineUpdate) -> list[RecordError]:
    """Give the update to the engine. Returns the records that it refused; it no longer knows their machines."""
    refused: list[RecordError] = []
    records = update.records
    engine.inventory.remove(update.removed)
    while True:
        try:
            engine.inventory.apply(records)
            break
        except RecordError as error:
            refused.append(error)
            records = [record for record in records if record.machine.id != error.machine_id]
            engine.inventory.remove([error.machine_id])
    for cluster in update.clusters:
        engine.set_cluster(cluster)
    for name, (needs, arrivals) in update.needs.items():
        engine.needs.replace(name, needs, arrivals)
    return refused
