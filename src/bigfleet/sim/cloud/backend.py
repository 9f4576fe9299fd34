"""The cloud as a backend of the provider kit: hosts that take their time, fail, run out, and are taken back.

A host may be interrupted from the moment it is up, whatever its machine is used for. One that serves a cluster is
announced first and goes when the grace is over; one that serves none goes at once.
"""

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import NoReturn

from bigfleet.model.machine import Call
from bigfleet.providerkit.backend import Backend, BackendError, Change, Job, Known, Notice
from bigfleet.providerkit.offer import Offer
from bigfleet.sim.agent.agents import Agents
from bigfleet.sim.agent.user_data import UserDataError, read
from bigfleet.sim.cloud.config import CloudConfig, Nodes
from bigfleet.sim.cloud.delays import share
from bigfleet.sim.cloud.hosts import Hosts, machine_of
from bigfleet.sim.cloud.interruptions import Herd
from bigfleet.sim.cloud.throttle import Throttle

_METAL_LACKS = frozenset({"create", "delete", "describe", "watch"})
# A node that does not join is given up before the kit gives up the transition, which knows no reason.
_REASON_SECONDS = 1.0
# A late host comes to light while the provider still looks for it.
_LATEST = 0.8


class CloudBackend(Backend):
    """One simulated cloud. All waiting is the event loop's, so it runs on virtual time as well."""

    ready_poll_seconds = 0.2

    def __init__(self, config: CloudConfig, hosts: Hosts) -> None:
        self._config, self._hosts = config, hosts
        self.scheme, self.doubt_seconds = config.scheme, float(config.timeouts.late_hosts)
        self._pools = {pool.name: pool for pool in config.pools}
        self._latency = {pool.name: config.latency_of(pool) for pool in config.pools}
        # Of pools that are configured no more, but whose machines an earlier life has left.
        self._elsewhere = config.latency_of(None)
        self._throttles = {
            kind: Throttle(kind, limit)
            for kind in config.rate_limits.__struct_fields__
            if (limit := getattr(config.rate_limits, kind)) is not None
        }
        self._operations: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._joins: dict[str, float] = {}
        self._agents = Agents(hosts, config.scheme) if config.nodes is Nodes.REAL else None
        self._given_up: dict[str, float] = {}
        self._late: set[asyncio.TimerHandle] = set()
        self._herds = {
            pool.name: Herd(pool.interruptions_per_second, f"{config.seed}/{pool.name}")
            for pool in config.pools
            if pool.interruption_probability
        }
        self._doomed: dict[str, asyncio.Event] = {}
        self._dooms: list[tuple[float, str]] = []
        self._stirred = asyncio.Event()
        self._began = -1.0

    def has(self, method: str) -> bool:
        """Bare metal is neither made nor ended, and stays."""
        return not (self._config.metal and method in _METAL_LACKS) and super().has(method)

    def limit(self, job: Job, call: Call) -> float:  # noqa: ARG002 - the same for every machine
        """The configuration's."""
        return float(getattr(self._config.timeouts, call.value.lower()))

    async def offers(self) -> Iterable[Offer]:
        """Every machine of every pool; hosts of an earlier life run on."""
        now = asyncio.get_running_loop().time()
        if self._began < 0:
            self._began = now
            if self._config.metal:
                self._hosts.stand(pool.machine(n) for pool in self._config.pools for n in range(pool.count))
            for ref in self._hosts:
                self._running[_pool_of(machine_of(ref))] += 1
                self._at_risk(ref, now)
            if self._agents is not None:
                self._agents.resume(self._hosts)
        return self._offers()

    def _offers(self) -> Iterable[Offer]:
        for pool in self._config.pools:
            for shape, numbers in pool.shapes(self._config.region):
                for number in numbers:
                    machine = pool.machine(number)
                    yield Offer(machine, shape, self._hosts.find(machine) if pool.metal else "")

    async def create(self, job: Job) -> str:
        """Start a host under the job's token and wait until it is up; it exists, and may be found, from the start."""
        await self._admit("create")
        operation = self._operation(job)
        self._check_stock(job)
        going_wrong = self._fate(job, Call.CREATE, operation)
        if going_wrong == "late":
            await self._appear_late(job, operation)
        if going_wrong:
            await self._go_wrong(job, going_wrong, "create", operation)
        ref = self._launch(job)
        await self._take(job, "create", operation)
        self._at_risk(ref, asyncio.get_running_loop().time())
        return ref

    async def configure(self, job: Job, blob: bytes) -> None:
        """Hand the blob over; the node joins later."""
        self._given_up[job.host] = self._give_up_at(job)
        await self._admit("configure")
        if self._hosts.cluster(job.host) is None:
            raise BackendError(f"InvalidInstanceID.NotFound: there is no host {job.host}")
        operation = self._operation(job)
        self._hosts.tag(job.host, job.cluster)
        await self._try(job, Call.CONFIGURE, operation)
        await self._take(job, "configure", operation)
        delay = self._delay(job, "join", operation)
        if self._agents is not None:
            try:
                self._agents.boot(job.host, read(blob), job.shape, delay)
            except UserDataError as error:
                raise BackendError(f"InvalidUserData: {error}") from None
        self._joins[job.host] = asyncio.get_running_loop().time() + delay

    async def ready(self, job: Job) -> bool:
        """Wait until the node has joined; one that was awaited in an earlier life of the provider has.

        A real one is asked for again and again, and given up with what hinders it shortly before the time is over.
        """
        joins, now = self._joins.get(job.host, 0.0), asyncio.get_running_loop().time()
        await asyncio.sleep(max(joins - now, 0.0))
        self._joins.pop(job.host, None)
        if job.host in self._doomed:
            raise BackendError(f"InstanceInterrupted: {job.host} is being taken back, before its node was Ready")
        if self._agents is None or self._agents.has_joined(job.host):
            self._given_up.pop(job.host, None)
            return True
        if asyncio.get_running_loop().time() >= self._given_up.setdefault(job.host, self._give_up_at(job)):
            raise BackendError(f"NodeNotReady: {self._agents.hindrance(job.host)}")
        return False

    async def drain(self, job: Job, grace_seconds: int) -> None:
        """Let pods leave within the grace, then wipe the host. That of one being taken back lasts until it is gone."""
        await self._admit("drain")
        operation = self._operation(job)
        await self._try(job, Call.DRAIN, operation)
        leaving = min(self._delay(job, "drain", operation), float(grace_seconds))
        await asyncio.sleep(leaving + self._delay(job, "wipe", operation))
        if doomed := self._doomed.get(job.host):
            # Shown Idle, it would be given to the next cluster.
            await doomed.wait()
        if self._agents is not None:
            await self._agents.leave(job.host)
        self._hosts.tag(job.host, "")

    async def delete(self, job: Job) -> None:
        """End the host, if it is still there."""
        await self._admit("delete")
        operation = self._operation(job)
        if self._hosts.cluster(job.host) is None:
            return
        await self._try(job, Call.DELETE, operation)
        await self._take(job, "delete", operation)
        if self._hosts.cluster(job.host) is not None:
            self._terminate(job.host)

    async def describe(self, job: Job) -> str:
        """The host of the job's token."""
        await self._admit("describe")
        return self._hosts.find(job.token)

    async def watch(self, known: Known) -> AsyncIterator[Notice]:
        """Hosts that were lost while nobody looked, then interruptions as they strike."""
        for ref in known().values():
            if self._hosts.cluster(ref) is None:
                yield _gone(ref)
        clock = asyncio.get_running_loop().time
        while True:
            now = clock()
            self._stirred.clear()
            wait, pool = min(((herd.wait(now), pool) for pool, herd in self._herds.items()), default=(math.inf, ""))
            doom = self._dooms[0][0] - now if self._dooms else math.inf
            if doom <= 0:
                _, ref = heapq.heappop(self._dooms)
                if ref in self._doomed:
                    yield self._lose(ref)
            elif wait <= 0:
                yield self._interrupt(self._herds[pool].strike(now), now)
            else:
                await self._stir(min(wait, doom))

    async def close(self) -> None:
        """Forget what is still to come, and let go of the hosts' file."""
        for timer in self._late:
            timer.cancel()
        if self._agents is not None:
            await self._agents.close()
        self._hosts.close()

    def _interrupt(self, ref: str, now: float) -> Notice:
        if not self._hosts.cluster(ref):
            return self._lose(ref)
        grace = self._config.interruption_grace
        self._doomed[ref] = asyncio.Event()
        heapq.heappush(self._dooms, (now + grace, ref))
        text = f"interruption: the host ends in {grace:g} s"
        return Notice(machine_of(ref), Change.TAKEN_BACK, text, math.ceil(grace), ref)

    def _lose(self, ref: str) -> Notice:
        self._terminate(ref)
        return _gone(ref)

    async def _stir(self, seconds: float) -> None:
        """Wait so long, or until a host comes or goes."""
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                await self._stirred.wait()
        except TimeoutError:
            pass

    def _at_risk(self, ref: str, now: float) -> None:
        herd = self._herds.get(_pool_of(machine_of(ref)))
        if herd is not None:
            herd.enter(ref, now)
            self._stirred.set()

    def _launch(self, job: Job) -> str:
        if not self._hosts.find(job.token):
            self._running[_pool_of(job.machine)] += 1
        return self._hosts.launch(job.token, job.machine)

    def _terminate(self, ref: str) -> None:
        if self._agents is not None:
            self._agents.abandon(ref)
        self._hosts.terminate(ref)
        self._given_up.pop(ref, None)
        pool = _pool_of(machine_of(ref))
        self._running[pool] -= 1
        if doomed := self._doomed.pop(ref, None):
            doomed.set()
        if pool in self._herds:
            self._herds[pool].leave(ref, asyncio.get_running_loop().time())
            self._stirred.set()

    def _give_up_at(self, job: Job) -> float:
        """When a node that is awaited from now on counts as one that does not come."""
        limit = self.limit(job, Call.CONFIGURE)
        return asyncio.get_running_loop().time() + max(limit - _REASON_SECONDS, limit / 2)

    def _check_stock(self, job: Job) -> None:
        pool, since = self._pools.get(_pool_of(job.machine)), asyncio.get_running_loop().time() - self._began
        if pool is None:
            raise BackendError(f"InvalidParameterValue: the pool of {job.machine} is configured no more")
        for stock_out in pool.stock_outs:
            if stock_out.begin <= since < stock_out.end and self._running[pool.name] >= stock_out.capacity:
                raise BackendError(
                    f"InsufficientInstanceCapacity: no {pool.instance_type} is left in {pool.zone}: "
                    f"the {stock_out.capacity} there are now are all taken"
                )

    async def _appear_late(self, job: Job, operation: int) -> NoReturn:
        loop = asyncio.get_running_loop()
        after = share(self._config.seed, job.machine, operation, "late") * _LATEST * self.doubt_seconds

        def appear() -> None:
            self._late.discard(timer)
            self._launch(job)

        timer = loop.call_later(self.limit(job, Call.CREATE) + after, appear)
        self._late.add(timer)
        await _never()

    async def _try(self, job: Job, call: Call, operation: int) -> None:
        """Go wrong, if that is this operation's fate."""
        if going_wrong := self._fate(job, call, operation):
            await self._go_wrong(job, going_wrong, call.value.lower(), operation)

    def _fate(self, job: Job, call: Call, operation: int) -> str:
        """How this operation goes wrong, or nothing."""
        pool = self._pools.get(_pool_of(job.machine))
        failures = self._config.failures if pool is None or pool.failures is None else pool.failures
        rates = failures.of(call)
        drawn = share(self._config.seed, job.machine, operation, "fate")
        for way in rates.__struct_fields__:
            drawn -= getattr(rates, way)
            if drawn < 0:
                return way
        return ""

    async def _go_wrong(self, job: Job, way: str, step: str, operation: int) -> NoReturn:
        if way == "hang":
            await _never()
        await self._take(job, step, operation)
        raise BackendError(f"InternalError: the {step} of {job.host or job.machine} failed inside the cloud")

    async def _take(self, job: Job, step: str, operation: int) -> None:
        await asyncio.sleep(self._delay(job, step, operation))

    def _delay(self, job: Job, step: str, operation: int) -> float:
        latency = self._latency.get(_pool_of(job.machine), self._elsewhere)
        return latency[step].at(share(self._config.seed, job.machine, operation, step))

    def _operation(self, job: Job) -> int:
        """Which of its machine's operations this is: with the machine's id it is what draws depend on."""
        self._operations[job.machine] += 1
        return self._operations[job.machine]

    async def _admit(self, kind: str) -> None:
        throttle = self._throttles.get(kind)
        if throttle is not None:
            await throttle.admit()


def _pool_of(machine: str) -> str:
    return machine.rpartition("-")[0]


def _gone(ref: str) -> Notice:
    return Notice(machine_of(ref), Change.GONE, "interruption: the host has ended", host=ref)


async def _never() -> NoReturn:
    while True:
        await asyncio.Event().wait()
