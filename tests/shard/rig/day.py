"""A day of the real shard in a closed loop: churn and failures of every kind, then quiet, then nothing is wanted.

`day` raises AssertionError where a machine leaks, a transition sticks or the shard does not come to rest. The same seed
makes the same day.
"""

import asyncio
import logging
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import grpc
import msgspec
import structlog

from bigfleet.engine.records import Kind
from bigfleet.providerkit.backend import Change
from bigfleet.shard.demand.table import AWAY_SECONDS
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.execution.steps import CALL_SECONDS, CALLING, DRAIN_SLACK_SECONDS, Step
from bigfleet.shard.supply.stamps import number_of
from bigfleet.sim import clock
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.habits import BlobAnswers, Habits
from bigfleet.sim.clusters.world import World
from bigfleet.sim.direct import Trouble
from tests.shard.rig.day_fleet import (
    CLUSTERS,
    CYCLE,
    EMPTY_HOURS,
    HOUR,
    LOOK,
    NEVER,
    PUT_OFF,
    QUIET_HOURS,
    SETTLE_HOURS,
    STRANGERS,
    TOO_BIG,
    UNSATISFIABLE,
    WORKLOADS,
    S,
    clouds,
)
from tests.shard.rig.virtual import Made, Operator, Rig, Times, rigged


class Story(NamedTuple):
    """What a day came to."""

    happened: Counter[str]
    """What went wrong on purpose, and how often."""
    outcomes: Counter[str]
    """How actions ended, as `kind outcome`."""
    made: list[Made]
    """Every mutating call."""
    lives: int


class Day:
    """One day on one rig."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.rng = random.Random(seed)
        self.happened: Counter[str] = Counter()
        self._down: set[str] = set()
        self._stormy = True
        self._calm_since = 0.0

    # Churn.

    async def churn(self, hours: float) -> None:
        """Change demand and break things until the time is over; what is broken is then mended."""
        events: list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]] = [
            (30.0, self._scale),
            (3.0, self._drop_session),
            (2.0, self._misbehave),
            (1.0, self._go_deaf),
            (0.7, self._outage),
            (1.0, self._crash),
            (0.4, self._restart),
            (0.3, self._pause),
            (0.4, self._break_disk),
            (0.1, self._lose_file),
            (2.0, self._break_host),
            (1.0, self._slip),
            (0.2, self._forget),
        ]
        self.rig.fate, self.rig.work_seconds = self._fate, self._work
        ends = _now() + hours * HOUR
        weights, makers = zip(*events, strict=True)
        async with asyncio.TaskGroup() as troubles:
            begun = []
            while (wait := self.rng.expovariate(sum(weights) / HOUR)) < ends - _now():
                await asyncio.sleep(wait)
                (make,) = self.rng.choices(makers, weights)
                begun.append(troubles.create_task(make()))
            await asyncio.sleep(ends - _now())
            for task in begun:
                task.cancel()
        self._mend()

    def _mend(self) -> None:
        self._stormy = False
        self._down.clear()
        self.rig.disk.broken = False
        for operator in self.rig.operators.values():
            operator.online, operator.mutes = True, frozenset()
            operator.cluster.habits = _habits(operator.cluster.id)
            if operator.line is not None:
                operator.line.takes.set()
        for sky in self.rig.skies.values():
            sky.calm()
        self._start()
        if self.rig.core.parts.actuation.paused:
            self.rig.core.resume()

    async def _scale(self) -> None:
        world = self._some_operator().cluster.world
        name = self.rng.choice(list(WORKLOADS))
        most = WORKLOADS[name][1] * (3 if self.rng.random() < 0.1 else 1)
        replicas = 0 if self.rng.random() < 0.15 else self.rng.randint(0, most)
        self.happened["scaled"] += 1
        world.scale(name, replicas)

    async def _drop_session(self) -> None:
        operator = self._some_operator()
        self.happened["session dropped"] += 1
        operator.leave()
        await asyncio.sleep(self.rng.choice((5.0, 50.0, 200.0, 900.0)))
        operator.online = True

    async def _misbehave(self) -> None:
        operator, cluster = (some := self._some_operator()), some.cluster
        kind = self.rng.choice(("refuses", "is slow", "is silent", "short-lived", "never ready", "never drains"))
        self.happened[f"operator {kind}"] += 1
        blob = {
            "refuses": BlobAnswers(error="no token can be made"),
            "is slow": BlobAnswers(delay_seconds=45.0, answers=2),
            "is silent": BlobAnswers(answers=0),
            "short-lived": BlobAnswers(ttl_seconds=60),
        }.get(kind, BlobAnswers())
        cluster.habits = msgspec.structs.replace(_habits(cluster.id), blob=blob)
        if kind == "never ready":
            cluster.habits = msgspec.structs.replace(cluster.habits, register_seconds=None)
        if kind == "never drains":
            operator.mutes = frozenset({"node_drained", "reclaim_ack"})
        await asyncio.sleep(self.rng.uniform(60, 1200))
        operator.mutes, cluster.habits = frozenset(), _habits(cluster.id)

    async def _go_deaf(self) -> None:
        operator = self._some_operator()
        if operator.line is not None:
            self.happened["operator deaf"] += 1
            line = operator.line
            line.takes.clear()
            await asyncio.sleep(self.rng.uniform(10, 120))
            line.takes.set()

    async def _outage(self) -> None:
        name = self.rng.choice(list(self.rig.providers))
        self.happened[f"{name} down"] += 1
        self._down.add(name)
        await asyncio.sleep(self.rng.choice((30.0, 300.0, 1500.0)))
        self._down.discard(name)

    async def _crash(self) -> None:
        if self.rig.is_up():
            self.happened["crash"] += 1
            await self.rig.crash()
            await asyncio.sleep(self.rng.choice((0.5, 5.0, 60.0, 700.0)))
            self._start()

    async def _restart(self) -> None:
        if self.rig.is_up():
            self.happened["restart"] += 1
            await self.rig.stop()
            await asyncio.sleep(1.0)
            self._start()

    async def _pause(self) -> None:
        if self.rig.is_up() and not self.rig.core.parts.actuation.paused:
            self.happened["pause"] += 1
            await self._durably(lambda: self.rig.life.answers.pause("an incident"))
            await asyncio.sleep(self.rng.uniform(30, 1200))
            if self.rig.is_up():
                await self._durably(self.rig.life.answers.resume)

    async def _break_disk(self) -> None:
        self.happened["disk full"] += 1
        self.rig.disk.broken = True
        await asyncio.sleep(self.rng.uniform(10, 300))
        self.rig.disk.broken = False

    async def _lose_file(self) -> None:
        if self.rig.is_up():
            self.happened["file lost"] += 1
            await self.rig.crash()
            self.rig.disk.lose()
            self._start()

    def _start(self) -> None:
        if not self.rig.is_up():
            self.rig.start()

    async def _break_host(self) -> None:
        """A host breaks or is gone, whatever its machine is doing; bare metal only breaks."""
        name = self.rng.choice(list(self.rig.providers))
        change = Change.BROKEN if name == "metal" else self.rng.choice((Change.BROKEN, Change.GONE))
        hosted = [entry.id for entry in self.rig.providers[name].ledger if entry.host]
        if hosted:
            self.happened[f"host {change.value}"] += 1
            await self.rig.strike(self.rng.choice(hosted), change)

    async def _slip(self) -> None:
        self.happened["session replaced"] += 1
        self._some_operator().slip()

    async def _forget(self) -> None:
        """A cluster is gone for good, as far as anybody knows; then it is back."""
        operator = self._some_operator()
        cluster = operator.cluster.id
        operator.leave()
        await asyncio.sleep(20.0)
        if (
            self.rig.is_up()
            and cluster in self.rig.core.parts.demand
            and not self.rig.core.parts.demand.has_session(cluster)
        ):
            self.happened["cluster forgotten"] += 1
            await self._durably(lambda: self.rig.life.answers.forget(cluster))
            await asyncio.sleep(self.rng.choice((60.0, 1800.0)))
        operator.online = True

    async def _durably(self, change: Callable[[], Awaitable[object]]) -> None:
        try:
            await change()
        except OSError:
            assert self.rig.disk.broken

    def _some_operator(self) -> Operator:
        return self.rng.choice(list(self.rig.operators.values()))

    def _fate(self, provider: str, method: str, machine: str) -> Trouble:
        """What befalls a call: delays always, now and then worse."""
        if method == "Drain":
            self._check_drain(machine)
        draw = self.rng.random
        before, after = 0.2 * draw(), 0.2 * draw()
        if not self._stormy:
            return Trouble(before=before, after=after)
        if provider in self._down:
            if draw() < 0.8:
                return Trouble(before=before, refused=grpc.StatusCode.UNAVAILABLE)
            return Trouble(before=before, lost=True)
        if method == "List":
            # Computed now, and old when it arrives.
            return Trouble(before=before, after=after + (8.0 * draw() if draw() < 0.1 else 0.0), lost=draw() < 0.005)
        luck = draw()
        if luck < 0.01:
            return Trouble(before=before, lost=True)
        if luck < 0.015:
            return Trouble(before=before, lost=True, late_seconds=20.0 * draw())
        if luck < 0.03:
            return Trouble(before=before, answer_lost=True)
        if luck < 0.035:
            return Trouble(before=before, refused=grpc.StatusCode.RESOURCE_EXHAUSTED)
        if luck < 0.04:
            return Trouble(before=before, refused=grpc.StatusCode.INTERNAL)
        return Trouble(before=before, after=after)

    def _work(self) -> float:
        draw = self.rng.random()
        return 3.0 if self._stormy and draw < 0.02 else 0.1 * draw

    # Laws.

    async def watch(self) -> None:
        """Look at the fleet every now and then, for ever."""
        while True:
            await asyncio.sleep(LOOK)
            self._check_hosts()
            self._check_bindings()
            if self.rig.is_up():
                self._check_commitments()
                self._check_supply()

    def _check_hosts(self) -> None:
        """Every host is some machine's, or may yet become one's."""
        for name, provider in self.rig.providers.items():
            held = {entry.host for entry in provider.ledger if entry.host}
            for host in set(self.rig.hosts[name]) - held:
                entry = provider.ledger.get(host.removeprefix("i-").rpartition("-")[0])
                assert entry.state is S.CREATING or entry.doubts, f"host {host} leaks: {entry}"

    def _check_bindings(self) -> None:
        """No two machines were bound under one number."""
        numbers: dict[int, str] = {}
        for provider in self.rig.providers.values():
            for entry in provider.ledger:
                if entry.cluster:
                    number = number_of(entry.metadata)
                    other = numbers.setdefault(number, entry.id)
                    assert other == entry.id, f"{other} and {entry.id} were both bound as {number}"

    def _check_commitments(self) -> None:
        core = self.rig.core
        if core.parts.actuation.paused:
            return
        now = core.clocks.now()
        for each in core.parts.commitments:
            taken, most = now - each.began, _longest(each) + 3 * CYCLE
            assert taken <= most, f"{each.step} for {taken:.0f} s: {each}"
            if each.step is Step.INSTRUCTED:
                assert now <= each.deadline + 3 * CYCLE, each

    def _check_drain(self, machine: str) -> None:
        """A drain is asked for: nobody's pods are killed, and nobody is passed by, without a right to it."""
        core = self.rig.core
        commitment, known = core.parts.commitments.get(machine), core.parts.supply.find(machine)
        if commitment is None or known is None or not known.cluster:
            return
        cluster = known.cluster
        if not core.parts.demand.has_session(cluster):
            away = core.parts.demand.away_seconds(cluster, core.clocks.now())
            assert commitment.instruction_id or away >= AWAY_SECONDS, (
                f"{cluster} is away for {away:.0f} s: {commitment}"
            )
        elif commitment.kind is Kind.RECLAIM and cluster != STRANGERS:
            node = self.rig.operators[cluster].cluster.world.nodes.get(machine)
            assert node is None or not node.pods, f"{node.pods} run on it: {commitment}"

    def _check_supply(self) -> None:
        """No machine is known that is none; once all providers have listed, none is unknown."""
        core = self.rig.core
        there = {entry.id for provider in self.rig.providers.values() for entry in provider.ledger}
        known = {machine.id for machine in core.parts.supply.machines()}
        assert known <= there
        if all(map(core.parts.supply.has_listed, self.rig.providers)):
            assert known == there, there - known

    # Rest.

    def unrest(self) -> str:
        """What is still to be done, or nothing."""
        core = self.rig.core
        if core.parts.actuation.stood_down:
            return core.parts.actuation.stood_down
        for provider in self.rig.providers.values():
            for entry in provider.ledger:
                known = core.parts.supply.find(entry.id)
                if known is None or known.state is not entry.state or known.cluster != entry.cluster:
                    return f"{entry.id} is {entry.state.label}, known as {known}"
                if entry.state not in (S.SPECULATIVE, S.IDLE, S.CONFIGURED):
                    return f"{entry.id} is {entry.state.label}: {entry.last_error}"
        for each in core.parts.commitments:
            return f"{each}"
        return ""

    def unmet(self) -> list[str]:
        """Rows that can be met and are not. Where pods go on their nodes is another's business."""
        _, rows = self.rig.life.answers.verdict_rows("")
        hopeless = [workload.profile for workload in UNSATISFIABLE]
        return [f"{verdict}" for need, verdict, _ in rows if not verdict.satisfied and need.profile not in hopeless]

    async def settle(self, hours: float, is_there: Callable[[], object]) -> None:
        """Wait until it is so, nothing is under way, and nothing was begun for longer than anything is put off."""
        begun, since = -1, _now()

        def is_at_rest() -> bool:
            nonlocal begun, since
            if begun != len(self.rig.audit) or self.unrest() or not is_there():
                begun, since = len(self.rig.audit), _now()
            return _now() - since > PUT_OFF

        try:
            await self.rig.until(is_at_rest, hours * HOUR, every=CYCLE)
        except AssertionError:
            last = [(record.at, record.event, record.kind, record.machine) for record in self.rig.audit[-3:]]
            raise AssertionError(f"no rest: {self.unrest()}; {self.unmet()[:3]}; {last}") from None

    async def rest(self, hours: float) -> None:
        """See that nothing at all is done for so long."""
        made, audit = len(self.rig.made), len(self.rig.audit)
        heard = [len(operator.heard) for operator in self.rig.operators.values()]
        await asyncio.sleep(hours * HOUR)
        assert self.rig.made[made:] == []
        assert self.rig.audit[audit:] == []
        assert [len(operator.heard) for operator in self.rig.operators.values()] == heard

    def check_hosts_at_rest(self) -> None:
        for name, provider in self.rig.providers.items():
            assert set(self.rig.hosts[name]) == {entry.host for entry in provider.ledger if entry.host}

    def check_tables_at_rest(self) -> None:
        """Where nothing is bound and nothing is wanted, nothing is remembered of what was."""
        core, kept = self.rig.core, self.rig.disk.load()
        left = {
            "commitments": len(core.parts.commitments),
            "requests": len(core.parts.requests),
            "doubts": len(list(core.parts.supply.doubts())),
            "recoveries": len(core.parts.recovery._cases),
            "machine index": len(core.parts.machine_index._machines) + len(core.parts.machine_index._clusters),
            "nodes": len(core.parts.readiness.latched())
            + len(core.parts.readiness._unseen)
            + len(core.parts.readiness._early),
            "unready": len(core.parts.readiness.to_drain()) + len(core.parts.supply._taken_back),
            "unsettled": core.parts.startup.unsettled,
            "durations": len(core.parts.durations._since),
            "frames": sum(map(len, core.parts.sender.outboxes.values())),
            "calls": sum(calls.waiting for calls in self.rig.shard.calls.values()),
            "on file": len(kept.commitments) + len(kept.machines) + len(kept.ready),
        }
        assert not any(left.values()), left
        idle = {entry.id for provider in self.rig.providers.values() for entry in provider.ledger if entry.host}
        assert set(kept.idle) == idle

    def check_nodes_at_rest(self) -> None:
        """Every cluster has exactly the nodes of the machines that are bound to it."""
        for cluster, operator in self.rig.operators.items():
            bound = {e.id for p in self.rig.providers.values() for e in p.ledger if e.cluster == cluster}
            nodes = set(operator.cluster.world.nodes)
            assert nodes == bound, f"{cluster}: {nodes ^ bound} are nodes or bound, not both"
            # A stranger's operator does not know that an instruction may be withdrawn.
            cordoned = [node.name for node in operator.cluster.world.nodes.values() if node.cordon]
            assert not cordoned or cluster == STRANGERS, f"{cluster}: {cordoned} are cordoned for ever"


def _habits(cluster: str) -> Habits:
    return Habits(features=() if cluster == STRANGERS else Habits().features, rollup_seconds=CYCLE, ready_seconds=8.0)


def _longest(commitment: Commitment) -> float:
    """What a step may take."""
    if commitment.step in CALLING or commitment.step is Step.DECIDED:
        # Its answer, behind others in the queue of a provider that is down.
        return CALL_SECONDS
    if commitment.step is Step.INSTRUCTED:
        return commitment.grace_seconds
    if commitment.step is Step.BLOB:
        return 30.0
    if commitment.step is Step.WAITING:
        return 300.0
    return commitment.grace_seconds + DRAIN_SLACK_SECONDS if commitment.leaves else CALL_SECONDS


async def live(seed: int, hours: float) -> Story:
    """The day itself."""
    async with rigged(clouds(seed), times=Times(cycle_interval=CYCLE)) as rig:
        day = Day(rig, seed)
        for name in CLUSTERS:
            cluster = Cluster(name, World(), _habits(name), stamp=lambda: int(_now() * 1e9))
            for workload in (*(each for each, _ in WORKLOADS.values()), *UNSATISFIABLE):
                cluster.world.deploy(workload, 0)
            rig.join(cluster)
        rig.start()
        watching = asyncio.create_task(day.watch())
        try:
            await _first(watching, day.churn(hours))
            await _first(watching, _come_to_rest(day))
        finally:
            watching.cancel()
        outcomes = Counter(f"{each.kind} {each.outcome}" for each in rig.audit if each.event == "ended")
        return Story(day.happened, outcomes, rig.made, rig.lives)


async def _come_to_rest(day: Day) -> None:
    rig, worlds = day.rig, [operator.cluster.world for operator in day.rig.operators.values()]
    for world in worlds:
        for name, (_, most) in WORKLOADS.items():
            world.scale(name, most // 2)
    worlds[0].scale(NEVER.name, 3)
    worlds[1].scale(TOO_BIG.name, 400)
    await day.settle(SETTLE_HOURS, lambda: not day.unmet())
    await day.rest(QUIET_HOURS)
    day.check_hosts_at_rest()
    day.check_nodes_at_rest()
    for world in worlds:
        for name in (*WORKLOADS, NEVER.name, TOO_BIG.name):
            world.scale(name, 0)
    owned = ("res-a", "metal-a")
    await day.settle(
        EMPTY_HOURS,
        lambda: all(
            entry.state is S.SPECULATIVE or (entry.id.startswith(owned) and entry.state is S.IDLE)
            for provider in rig.providers.values()
            for entry in provider.ledger
        ),
    )
    day.check_hosts_at_rest()
    day.check_tables_at_rest()
    assert not any(world.nodes for world in worlds)


async def _first(watching: "asyncio.Task[None]", work: Coroutine[Any, Any, None]) -> None:
    """Do the work, unless a law breaks before it is done."""
    task = asyncio.create_task(work)
    done, _ = await asyncio.wait({watching, task}, return_when=asyncio.FIRST_COMPLETED)
    if watching in done:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        watching.result()
    await task


def _now() -> float:
    return asyncio.get_running_loop().time()


def day(seed: int, hours: float = 24.0) -> Story:
    """Live through a day of so many hours of churn, and see that all laws hold; what the shard logs is not shown."""
    logs, dice = structlog.get_config(), random.getstate()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    # The shard's own jitter is drawn from the dice that everybody has.
    random.seed(seed)
    try:
        return clock.run(live(seed, hours))
    finally:
        structlog.configure(**logs)
        random.setstate(dice)


if __name__ == "__main__":
    day(int(sys.argv[1]))
