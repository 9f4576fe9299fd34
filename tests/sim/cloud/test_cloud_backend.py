"""The cloud behind the provider kit, in virtual time: what a shard would see of it."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bigfleet.model.machine import Call, MachineState
from bigfleet.providerkit.backend import Backend, BackendError, Change, Job
from bigfleet.providerkit.ledger.ledger import Request, UnsupportedError
from bigfleet.providerkit.provider import Provider
from bigfleet.providerkit.store import MemoryStore
from bigfleet.sim import clock
from bigfleet.sim.cloud.backend import CloudBackend
from bigfleet.sim.cloud.hosts import Hosts
from bigfleet.sim.cloud.reading import read
from bigfleet.telemetry.metrics import ProviderMetrics

S = MachineState
LATENCY = {"create": 40, "configure": 2, "join": 60, "drain": 20, "wipe": 5, "delete": 10}
FIRST = "a-000000"


class Rig:
    """A cloud of one pool, its hosts, and calls on it."""

    def __init__(self, pool: dict[str, Any] | None = None, **cloud: Any) -> None:
        described = {
            "name": "a",
            "instance_type": "m.8",
            "zone": "eu-1a",
            "capacity_type": "OnDemand",
            "count": 10,
            "resources": {"cpu": 8, "memory": "32Gi"},
            **(pool or {}),
        }
        self.config = read(json.dumps({"latency": LATENCY, "pools": [described], **cloud}), "test")
        self.hosts = Hosts()
        self.backend = CloudBackend(self.config, self.hosts)
        self.provider = Provider(self.backend, MemoryStore(), ProviderMetrics(CollectorRegistry()))

    async def ask(self, call: Call, machine: str = FIRST, grace: int = 0) -> None:
        cluster = "shop" if call is Call.CONFIGURE else ""
        await self.provider.ask(Request(call=call, machine=machine, cluster=cluster, grace_seconds=grace))

    def state(self, machine: str = FIRST) -> MachineState:
        return self.provider.ledger.get(machine).state

    def error(self, machine: str = FIRST) -> str:
        return self.provider.ledger.get(machine).last_error

    async def left(self, state: MachineState, machine: str = FIRST) -> float:
        """When the machine is seen in another state, looked at ten times a second."""
        while self.state(machine) is state:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
        return round(asyncio.get_running_loop().time(), 1)

    async def bound(self, machine: str = FIRST) -> None:
        await self.ask(Call.CREATE, machine)
        await self.left(S.CREATING, machine)
        await self.ask(Call.CONFIGURE, machine)
        await self.left(S.CONFIGURING, machine)
        assert self.state(machine) is S.CONFIGURED


def played(rig: Rig, story: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        async with rig.provider:
            await story(rig)

    clock.run(play())


def test_each_step_takes_its_time() -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        assert rig.state() is S.CREATING
        assert await rig.left(S.CREATING) == pytest.approx(40, abs=0.2)
        assert rig.state() is S.IDLE
        await rig.ask(Call.CONFIGURE)
        assert await rig.left(S.CONFIGURING) == pytest.approx(102, abs=0.4)
        assert rig.state() is S.CONFIGURED
        await rig.ask(Call.DRAIN, grace=600)
        assert await rig.left(S.DRAINING) == pytest.approx(127, abs=0.6)
        assert rig.state() is S.IDLE
        (host,) = rig.hosts
        assert rig.hosts.cluster(host) == ""
        await rig.ask(Call.DELETE)
        assert await rig.left(S.DELETING) == pytest.approx(137, abs=0.8)
        assert rig.state() is S.SPECULATIVE
        assert list(rig.hosts) == []

    played(Rig(), story)


def test_pods_are_given_no_longer_than_the_grace_and_the_wipe_comes_after() -> None:
    async def story(rig: Rig) -> None:
        await rig.bound()
        began = asyncio.get_running_loop().time()
        await rig.ask(Call.DRAIN, grace=3)
        assert await rig.left(S.DRAINING) - began == pytest.approx(3 + 5, abs=0.2)

    played(Rig(), story)


def test_the_host_exists_from_the_moment_the_cloud_accepts_it() -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        await asyncio.sleep(1)
        (host,) = rig.hosts
        await rig.left(S.CREATING)
        assert rig.provider.ledger.get(FIRST).host == host

    played(Rig(), story)


def test_draws_are_the_same_whatever_the_order_of_calls() -> None:
    machines = [f"a-{n:06d}" for n in range(8)]

    def times(order: list[str]) -> dict[str, float]:
        found: dict[str, float] = {}

        async def story(rig: Rig) -> None:
            async def one(machine: str) -> None:
                await rig.ask(Call.CREATE, machine)
                found[machine] = await rig.left(S.CREATING, machine)

            await asyncio.gather(*(one(machine) for machine in order))

        played(Rig(seed=4, latency={"create": {"median": 40, "p99": 400}}), story)
        return found

    assert times(machines) == times(machines[::-1])
    assert len(set(times(machines).values())) > 4


def test_an_error_is_told_in_the_clouds_words_and_leaves_no_host() -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        await rig.left(S.CREATING)
        assert rig.state() is S.FAILED
        assert rig.error() == f"Create: InternalError: the create of {FIRST} failed inside the cloud"
        assert list(rig.hosts) == []

    played(Rig(failures={"create": {"error": 1}}), story)


@pytest.mark.parametrize("call", [Call.CONFIGURE, Call.DRAIN, Call.DELETE])
def test_every_step_can_fail_and_a_pool_can_fail_by_itself(call: Call) -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        await rig.left(S.CREATING)
        if call is not Call.DELETE:
            await rig.ask(Call.CONFIGURE)
            await rig.left(S.CONFIGURING)
        if call is Call.DRAIN:
            await rig.ask(Call.DRAIN, grace=10)
            await rig.left(S.DRAINING)
        if call is Call.DELETE:
            await rig.ask(Call.DELETE)
            await rig.left(S.DELETING)
        assert rig.state() is S.FAILED
        assert f"InternalError: the {call.value.lower()} of i-{FIRST}-1 failed" in rig.error()

    played(Rig(pool={"failures": {call.value.lower(): {"error": 1}}}), story)


def test_failures_come_at_their_rate() -> None:
    async def story(rig: Rig) -> None:
        for machine in [entry.id for entry in rig.provider.ledger]:
            await rig.ask(Call.CREATE, machine)
        await asyncio.sleep(3600)
        counts = rig.provider.ledger.counts
        assert counts[S.FAILED] + counts[S.IDLE] == 2000
        assert abs(counts[S.FAILED] - 400) < 4 * (2000 * 0.2 * 0.8) ** 0.5

    played(Rig(pool={"count": 2000}, failures={"create": {"error": 0.2}}), story)


def test_a_hang_ends_with_the_time_out() -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        assert await rig.left(S.CREATING) == pytest.approx(100, abs=0.2)
        assert rig.state() is S.FAILED
        assert rig.error() == "Create: did not end within 100 s"
        await asyncio.sleep(3600)
        assert list(rig.hosts) == []

    played(Rig(failures={"create": {"hang": 1}}, timeouts={"create": 100}), story)


def test_a_late_host_comes_to_light_after_the_time_out_and_does_not_outlive_its_machine() -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        await rig.left(S.CREATING)
        assert rig.state() is S.FAILED
        assert list(rig.hosts) == []
        await rig.ask(Call.DELETE)
        assert rig.state() is S.SPECULATIVE
        lit = False
        for _ in range(6000):
            await asyncio.sleep(0.1)
            lit = lit or bool(list(rig.hosts))
        assert lit
        assert list(rig.hosts) == []

    played(Rig(failures={"create": {"late": 1}}, timeouts={"create": 100, "late_hosts": 300}), story)


def test_a_delta_tells_nothing_of_what_only_the_provider_can_see() -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        await rig.left(S.CREATING)
        await rig.ask(Call.DELETE)
        _, cursor = rig.provider.ledger.changed(b"", 0, bool)
        # Long enough for the provider to stop looking for a host of the failed Create.
        await asyncio.sleep(3600)
        assert rig.provider.ledger.get(FIRST).doubts == ()
        changed, _ = rig.provider.ledger.changed(cursor, 0, bool)
        assert changed == []

    played(Rig(failures={"create": {"error": 1}}), story)


def test_a_host_that_was_too_slow_is_there_and_ends_with_the_delete() -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        await rig.left(S.CREATING)
        assert rig.state() is S.FAILED
        assert len(list(rig.hosts)) == 1
        await rig.ask(Call.DELETE)
        assert rig.state() is S.DELETING
        await rig.left(S.DELETING)
        assert list(rig.hosts) == []

    played(Rig(timeouts={"create": 30}), story)


def test_a_stock_out_refuses_what_is_beyond_it_while_it_lasts() -> None:
    async def story(rig: Rig) -> None:
        machines = [f"a-{n:06d}" for n in range(4)]
        for machine in machines[:3]:
            await rig.ask(Call.CREATE, machine)
        await asyncio.sleep(60)
        states = sorted(rig.state(machine) for machine in machines[:3])
        assert states == [S.IDLE, S.IDLE, S.FAILED]
        failed = next(machine for machine in machines[:3] if rig.state(machine) is S.FAILED)
        assert rig.error(failed) == (
            "Create: InsufficientInstanceCapacity: no m.8 is left in eu-1a: the 2 there are now are all taken"
        )
        idle = next(machine for machine in machines[:3] if rig.state(machine) is S.IDLE)
        await rig.ask(Call.DELETE, idle)
        await rig.left(S.DELETING, idle)
        await rig.ask(Call.CREATE, failed)
        await rig.left(S.CREATING, failed)
        assert rig.state(failed) is S.IDLE, "a host that ended makes room"
        await asyncio.sleep(3600)
        await rig.ask(Call.CREATE, machines[3])
        await rig.left(S.CREATING, machines[3])
        assert rig.state(machines[3]) is S.IDLE, "the stock-out is over"

    played(Rig(pool={"stock_outs": [{"to": "1h", "capacity": 2}]}), story)


def test_a_throttled_create_fails_as_a_clouds_does() -> None:
    async def story(rig: Rig) -> None:
        for n in range(3):
            await rig.ask(Call.CREATE, f"a-{n:06d}")
        await asyncio.sleep(50)
        failed = [entry for entry in rig.provider.ledger if entry.state is S.FAILED]
        assert len(failed) == 1
        assert failed[0].last_error.startswith("Create: RequestLimitExceeded: ")

    played(Rig(rate_limits={"create": {"per_second": 0.01, "burst": 2, "exceeded": "fail"}}), story)


SPOT = {"capacity_type": "Spot", "interruption_probability": 0.9999}


def test_a_bound_host_is_announced_and_goes_when_the_grace_is_over() -> None:
    async def story(rig: Rig) -> None:
        await rig.bound()
        taken = await rig.left(S.CONFIGURED)
        assert rig.state() is S.DRAINING
        assert len(list(rig.hosts)) == 1
        gone = await rig.left(S.DRAINING)
        assert rig.state() is S.SPECULATIVE, "it is never shown Idle: its host is about to end"
        assert gone - taken == pytest.approx(120, abs=0.2)
        assert list(rig.hosts) == []
        assert rig.provider.ledger.get(FIRST).cluster == ""

    # Of a seed whose first interruption comes after the machine is bound.
    played(Rig(pool=SPOT, seed=1, latency={"create": 0, "configure": 0, "join": 0}), story)


def test_an_idle_host_goes_at_once() -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        await rig.left(S.CREATING)
        assert rig.state() is S.IDLE
        await rig.left(S.IDLE)
        assert rig.state() is S.SPECULATIVE
        assert list(rig.hosts) == []

    played(Rig(pool=SPOT), story)


def test_a_host_that_is_taken_back_while_it_joins_never_counts_as_joined() -> None:
    async def story(rig: Rig) -> None:
        await rig.ask(Call.CREATE)
        await rig.left(S.CREATING)
        await rig.ask(Call.CONFIGURE)
        await rig.left(S.CONFIGURING)
        assert rig.state() is S.FAILED
        assert rig.error().startswith("Configure: InstanceInterrupted: ")
        await rig.left(S.FAILED)
        assert rig.state() is S.SPECULATIVE

    latency = {**LATENCY, "create": 0, "join": "30m"}
    played(Rig(pool=SPOT, latency=latency, interruption_grace="1h", timeouts={"configure": "1h"}), story)


def test_what_is_not_spot_stays() -> None:
    async def story(rig: Rig) -> None:
        await rig.bound()
        await asyncio.sleep(30 * 86_400)
        assert rig.state() is S.CONFIGURED

    played(Rig(), story)


def job(backend: Backend, machine: str = FIRST, token: str = "create-1", host: str = "") -> Job:
    assert isinstance(backend, CloudBackend)
    shape, _ = next(Rig().config.pools[0].shapes(""))
    return Job(machine, shape, token, host)


def test_a_host_interrupted_while_it_is_being_deleted_is_counted_once() -> None:
    async def play() -> None:
        rig = Rig(pool={**SPOT, "stock_outs": [{"to": "300d", "capacity": 1}]}, latency={**LATENCY, "delete": "100d"})
        backend = rig.backend
        await backend.offers()
        host = await backend.create(job(backend))
        deleting = asyncio.create_task(backend.delete(job(backend, host=host)))
        notice = await anext(aiter(backend.watch(dict)))
        assert (notice.change, notice.machine, notice.host) == (Change.GONE, FIRST, host)
        await deleting
        await backend.create(job(backend, token="create-2"))
        with pytest.raises(BackendError, match="InsufficientInstanceCapacity"):
            await backend.create(job(backend, "a-000001", "create-3"))

    clock.run(play())


def test_a_new_life_finds_the_hosts_of_the_last_by_their_tokens_and_they_are_still_at_risk() -> None:
    async def play() -> None:
        rig = Rig(pool=SPOT)
        await rig.backend.offers()
        host = await rig.backend.create(job(rig.backend))
        rig.hosts.tag(host, "shop")
        again = CloudBackend(rig.config, rig.hosts)
        await again.offers()
        assert await again.describe(job(again)) == host
        assert await again.describe(job(again, token="create-2")) == ""
        watch = aiter(again.watch(dict))
        first, second = await anext(watch), await anext(watch)
        assert [(n.change, n.host) for n in (first, second)] == [(Change.TAKEN_BACK, host), (Change.GONE, host)]

    clock.run(play())


def test_a_host_lost_while_no_provider_ran_is_told_first() -> None:
    async def play() -> None:
        rig = Rig()
        host = rig.hosts.launch("create-1", FIRST)
        rig.hosts.terminate(host)
        notice = await anext(aiter(rig.backend.watch(lambda: {FIRST: host})))
        assert (notice.change, notice.machine, notice.host) == (Change.GONE, FIRST, host)

    clock.run(play())


def test_bare_metal_stands_there_and_cannot_be_deleted() -> None:
    async def story(rig: Rig) -> None:
        assert {entry.state for entry in rig.provider.ledger} == {S.IDLE}
        assert sorted(entry.host for entry in rig.provider.ledger) == sorted(rig.hosts)
        await rig.ask(Call.CONFIGURE)
        await rig.left(S.CONFIGURING)
        assert rig.state() is S.CONFIGURED
        await rig.ask(Call.DRAIN, grace=10)
        await rig.left(S.DRAINING)
        assert rig.state() is S.IDLE
        with pytest.raises(UnsupportedError):
            await rig.ask(Call.DELETE)

    played(Rig(pool={"capacity_type": "BareMetal"}), story)
