"""The cloud as a backend of the provider kit: hosts that take their time, fail, run out, and are taken back.

A host may be interrupted from the moment it is up, whatever its machine is used for. The interruption of a host that
serves a cluster is announced, and the host ends when the grace is over. A host that serves none ends at once.
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
from bigfleet.sim.cloud.interruptions import PoolInterruptions
from bigfleet.sim.cloud.throttle import Throttle

_METAL_LACKS = frozenset({"create", "delete", "describe", "watch"})
# A node that does not join is given up this long before the kit would give up, since the kit could not say why.
_REASON_SECONDS = 1.0
# A late host appears within this share of the time for which the provider looks for one.
_LATEST = 0.8


class CloudBackend(Backend):
    """One simulated cloud. It waits by the event loop's clock only, so it runs on virtual time as well."""

    ready_poll_seconds = 0.2

    def __init__(self, config: CloudConfig, hosts: Hosts) -> None:
        self._config, self._hosts = config, hosts
        self.scheme, self.doubt_seconds = config.scheme, float(config.timeouts.late_hosts)
        self._pools = {pool.name: pool for pool in config.pools}
        self._latency = {pool.name: config.latency_of(pool) for pool in config.pools}
        # For machines of an earlier process whose pool is no longer configured.
        self._latency_of_former_pools = config.latency_of(None)
        self._throttles = {
            kind: Throttle(kind, limit)
            for kind in config.rate_limits.__struct_fields__
            if (limit := getattr(config.rate_limits, kind)) is not None
        }
        self._operations: Counter[str] = Counter()
        """How many operations each machine has had."""
        self._running: Counter[str] = Counter()
        """How many hosts each pool has."""
        self._joins: dict[str, float] = {}
        """When the node of a host joins, or when its kubelet starts where nodes are real."""
        self._agents = Agents(hosts, config.scheme) if config.nodes is Nodes.REAL else None
        self._given_up: dict[str, float] = {}
        """When the node of a host counts as one that does not join."""
        self._late: set[asyncio.TimerHandle] = set()
        """The timers of hosts that appear after their Create has failed."""
        self._interruptions = {
            pool.name: PoolInterruptions(pool.interruptions_per_second, f"{config.seed}/{pool.name}")
            for pool in config.pools
            if pool.interruption_probability
        }
        self._taken_back: dict[str, asyncio.Event] = {}
        """Hosts whose interruption is announced; the event is set when the host ends."""
        self._end_times: list[tuple[float, str]] = []
        """A heap of when each of those hosts ends."""
        self._hosts_changed = asyncio.Event()
        self._began = -1.0
        """When the cloud was first asked for its offers; below 0 until then."""

    def has(self, method: str) -> bool:
        """Whether the cloud has this method; bare metal is neither created nor deleted."""
        return not (self._config.metal and method in _METAL_LACKS) and super().has(method)

    def limit(self, job: Job, call: Call) -> float:  # noqa: ARG002 - the same for every machine
        """After how many seconds a call counts as failed, as the configuration says."""
        return float(getattr(self._config.timeouts, call.value.lower()))

    async def offers(self) -> Iterable[Offer]:
        """Every machine of every pool. Hosts that an earlier process left go on running."""
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
        """Wait until the node has joined; a node that an earlier process of the provider waited for counts as joined.

        A real node is asked for again and again. Shortly before the time is over it is given up, with the reason.
        """
        joins, now = self._joins.get(job.host, 0.0), asyncio.get_running_loop().time()
        await asyncio.sleep(max(joins - now, 0.0))
        self._joins.pop(job.host, None)
        if job.host in self._taken_back:
            raise BackendError(f"InstanceInterrupted: {job.host} is being taken back, before its node was Ready")
        if self._agents is None or self._agents.has_joined(job.host):
            self._given_up.pop(job.host, None)
            return True
        if asyncio.get_running_loop().time() >= self._given_up.setdefault(job.host, self._give_up_at(job)):
            raise BackendError(f"NodeNotReady: {self._agents.hindrance(job.host)}")
        return False

    async def drain(self, job: Job, grace_seconds: int) -> None:
        """Let pods leave within the grace, then wipe the host. A host being taken back drains until it is gone."""
        await self._admit("drain")
        operation = self._operation(job)
        await self._try(job, Call.DRAIN, operation)
        leaving = min(self._delay(job, "drain", operation), float(grace_seconds))
        await asyncio.sleep(leaving + self._delay(job, "wipe", operation))
        if taken_back := self._taken_back.get(job.host):
            # If its machine were shown Idle, a shard would give it to the next cluster.
            await taken_back.wait()
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
        """The host that was made under the job's token, or nothing."""
        await self._admit("describe")
        return self._hosts.find(job.token)

    async def watch(self, known: Known) -> AsyncIterator[Notice]:
        """Tell of hosts that were lost while the provider was down, then of interruptions as they strike."""
        for ref in known().values():
            if self._hosts.cluster(ref) is None:
                yield _gone(ref)
        clock = asyncio.get_running_loop().time
        while True:
            now = clock()
            self._hosts_changed.clear()
            wait, pool = min(
                ((interruptions.wait(now), pool) for pool, interruptions in self._interruptions.items()),
                default=(math.inf, ""),
            )
            end = self._end_times[0][0] - now if self._end_times else math.inf
            if end <= 0:
                _, ref = heapq.heappop(self._end_times)
                if ref in self._taken_back:
                    yield self._lose(ref)
            elif wait <= 0:
                yield self._interrupt(self._interruptions[pool].strike(now), now)
            else:
                await self._wait_for_hosts(min(wait, end))

    async def close(self) -> None:
        """Cancel the timers and agents, and close the hosts' file."""
        for timer in self._late:
            timer.cancel()
        if self._agents is not None:
            await self._agents.close()
        self._hosts.close()

    def _interrupt(self, ref: str, now: float) -> Notice:
        if not self._hosts.cluster(ref):
            return self._lose(ref)
        grace = self._config.interruption_grace
        self._taken_back[ref] = asyncio.Event()
        heapq.heappush(self._end_times, (now + grace, ref))
        text = f"interruption: the host ends in {grace:g} s"
        return Notice(machine_of(ref), Change.TAKEN_BACK, text, math.ceil(grace), ref)

    def _lose(self, ref: str) -> Notice:
        self._terminate(ref)
        return _gone(ref)

    async def _wait_for_hosts(self, seconds: float) -> None:
        """Wait this long, or until a host comes or goes."""
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                await self._hosts_changed.wait()
        except TimeoutError:
            pass

    def _at_risk(self, ref: str, now: float) -> None:
        interruptions = self._interruptions.get(_pool_of(machine_of(ref)))
        if interruptions is not None:
            interruptions.enter(ref, now)
            self._hosts_changed.set()

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
        if taken_back := self._taken_back.pop(ref, None):
            taken_back.set()
        if pool in self._interruptions:
            self._interruptions[pool].leave(ref, asyncio.get_running_loop().time())
            self._hosts_changed.set()

    def _give_up_at(self, job: Job) -> float:
        """When a node that is awaited from now on counts as one that does not join."""
        limit = self.limit(job, Call.CONFIGURE)
        return asyncio.get_running_loop().time() + max(limit - _REASON_SECONDS, limit / 2)

    def _check_stock(self, job: Job) -> None:
        pool, since = self._pools.get(_pool_of(job.machine)), asyncio.get_running_loop().time() - self._began
        if pool is None:
            raise BackendError(f"InvalidParameterValue: the pool of {job.machine} is no longer configured")
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
        """Make the operation go wrong if the configured rates say so."""
        if going_wrong := self._fate(job, call, operation):
            await self._go_wrong(job, going_wrong, call.value.lower(), operation)

    def _fate(self, job: Job, call: Call, operation: int) -> str:
        """How this operation goes wrong: a field of the failure rates, or nothing."""
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
        latency = self._latency.get(_pool_of(job.machine), self._latency_of_former_pools)
        return latency[step].at(share(self._config.seed, job.machine, operation, step))

    def _operation(self, job: Job) -> int:
        """The number of this operation among those of its machine. Random draws depend on both."""
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
