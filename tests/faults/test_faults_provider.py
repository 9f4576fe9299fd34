"""Providers that are not there yet, die in the middle of things, or hang: the shard says so, waits, and goes on."""

import asyncio
import signal
from pathlib import Path

from bigfleet.model.demand.profile import Operator, Requirement
from bigfleet.model.labels import ZONE
from bigfleet.sim.clusters.operator import SimOperator
from bigfleet.transport.session_stream import Ending
from tests.faults.stage import AT_ONCE, Cloud, pool, staged, states, until, workload

SLOW = {step: {"min": 0.05, "max": 1.0} for step in ("create", "configure", "join", "drain", "wipe", "delete")}
PODS = 12


async def is_calm(cloud: Cloud, operator: SimOperator) -> bool:
    """Whether the cluster has just what it asks for, nothing moves, and every host is accounted for.

    A machine that its provider gave up on may be left: the shard sees to it only after a minute.
    """
    machines = await cloud.machines()
    pods, counts = operator.cluster.world.pods(), states(machines)
    hosts = sorted(machine.host.ref for machine in machines.values() if machine.host.ref)
    resting = counts.keys() <= {"Speculative", "Configured", "Failed"}
    return resting and not pods.pending and pods.running == counts["Configured"] and hosts == sorted(cloud.hosts())


async def test_a_shard_that_starts_alone_says_so_and_goes_on_when_the_others_appear(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(start=False, pools=[pool("bought", "OnDemand", 4)], latency=AT_ONCE)
        shard = await stage.shard(cloud, coordinator_addr="127.0.0.1:1")
        await shard.program.said("provider_unreachable", provider="sim")
        await until(lambda: shard.is_unready("providers: none has listed yet: sim"))
        (provider,) = (await shard.status()).providers
        assert not provider.reachable
        assert not provider.listed
        assert provider.last_error
        operator = stage.operator("early")
        operator.cluster.world.deploy(workload(), 2)
        await operator.until(lambda: operator.cluster.acknowledged == operator.cluster.world.version)
        await shard.cycles(2)
        assert not (await shard.status()).actions_in_flight
        await cloud.start()
        await shard.program.said("provider_listed", provider="sim")
        await operator.until(lambda: operator.cluster.world.pods().running == 2)
        await until(lambda: shard.is_unready(""))


async def test_a_provider_killed_in_the_middle_of_everything_leaves_nothing_behind(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=[pool("bought", "OnDemand", 2 * PODS)], latency=SLOW)
        shard = await stage.shard(cloud)
        operator = stage.operator("prod")
        operator.cluster.world.deploy(workload(), PODS)
        for scaled, halfway in ((PODS, {"Creating", "Configuring"}), (8, {"Draining"}), (3, {"Deleting"})):
            operator.cluster.world.scale("web", scaled)

            async def is_halfway(these: set[str] = halfway) -> bool:
                return these <= states(await cloud.machines()).keys()

            await until(is_halfway, f"machines in {halfway}")
            await cloud.program.kill()
            await until(lambda: shard.has_lost("sim"))
            await cloud.start()
            await until(lambda: is_calm(cloud, operator), f"{scaled} machines")


async def test_an_answer_that_is_heard_after_its_end_was_listed_leaves_no_machine_on_its_way(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=[pool("bought", "OnDemand", PODS)], latency=dict.fromkeys(SLOW, 0.1))
        shard = await stage.shard(cloud, faulty="lag 1.5")
        operator = stage.operator("prod")
        operator.cluster.world.deploy(workload(), PODS)
        await until(lambda: is_calm(cloud, operator), f"{PODS} machines")
        operator.cluster.world.scale("web", 4)
        await until(lambda: is_calm(cloud, operator), "4 machines")
        await until(lambda: shard.has_in_flight({}))


async def test_a_provider_that_hangs_holds_up_nobody_else_and_no_shutdown(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        quick = await stage.cloud("quick", pools=[pool("quick", "OnDemand", 4, zone="quick")], latency=AT_ONCE)
        stuck = await stage.cloud("stuck", pools=[pool("stuck", "OnDemand", 4, zone="stuck")], latency=SLOW)
        shard = await stage.shard(quick, stuck)
        for cloud in (quick, stuck):
            await shard.program.said("provider_listed", provider=cloud.name)
        stuck.program.signal(signal.SIGSTOP)
        operators = {cloud.name: stage.operator(f"in-{cloud.name}") for cloud in (quick, stuck)}
        for zone, operator in operators.items():
            here = (Requirement(ZONE, Operator.IN, (zone,)),)
            operator.cluster.world.deploy(workload(requirements=here), 2)
        await operators["quick"].until(lambda: operators["quick"].cluster.world.pods().running == 2)
        await until(lambda: shard.has_in_flight({"Provision": 2}))
        async with asyncio.timeout(10):
            assert await shard.stop() == 0
        for operator in operators.values():
            await operator.until(lambda: bool(operator.endings))  # noqa: B023
            assert operator.endings[0] == Ending("UNAVAILABLE", "the shard is shutting down")
        assert {kept.provider for kept in stage.kept().commitments.values()} == {"stuck"}
        assert len(stage.kept().commitments) == 2

        stuck.program.signal(signal.SIGCONT)
        await stage.shard(quick, stuck)
        for cloud in (quick, stuck):
            await until(lambda: is_calm(cloud, operators[cloud.name]), cloud.name)  # noqa: B023
            assert states(await cloud.machines()) == {"Configured": 2, "Speculative": 2}
