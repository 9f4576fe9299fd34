"""kill -9 of the shard at every step of every action: the next life finds every machine, and none twice.

One fleet lives through all of it. Each round changes what two clusters ask for, which takes many actions of one kind,
and has the shard kill itself at a point among them; the next life is left alone until nothing moves, and then the
cloud's own word is compared with what was asked for. BIGFLEET_FAULT_KILLS sets how often, for a soak, and
BIGFLEET_FAULT_SEED which points are chosen.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.faults.stage import SHARD_ID, Cloud, Shard, Stage, bindings, pool, staged, state_of, until, workload

KILLS = int(os.environ.get("BIGFLEET_FAULT_KILLS", "6"))
SEED = int(os.environ.get("BIGFLEET_FAULT_SEED", "1"))
FEW = 5
MACHINES = 8 * FEW
WEB, BATCH = "web", "batch"
POOLS = [pool("kept", "Reserved", MACHINES // 2), pool("bought", "OnDemand", MACHINES // 2, price=0.4)]
# What is reserved is kept, what is bought is given back.
RESTS = {"kept": {"Speculative", "Idle", "Configured"}, "bought": {"Speculative", "Configured"}}
# So long that an action is found in each of its steps, and so different that others are in others.
SLOW = {step: {"min": 0.02, "max": 0.6} for step in ("create", "configure", "join", "drain", "wipe", "delete")}


class Scene(NamedTuple):
    """What is asked for, and the points on the way there."""

    web: int
    batch: int
    steps: tuple[str, ...]
    """Steps of actions: whatever stands at one of them when the process dies has died there."""
    moments: tuple[str, ...]
    """Points that are passed by one action at a time."""

    @classmethod
    def of(cls, web: int, batch: int, calls: str, **kinds: str) -> "Scene":
        """So many machines for each cluster, by these calls and these kinds of action with their steps."""
        steps = [f"{kind}/{step}" for kind, names in kinds.items() for step in names.split()]
        moments = [f"{call} {moment}" for call in calls.split() for moment in ("unsent", "answered")]
        moments += [f"{kind}/ended" for kind in kinds]
        return cls(web, batch, tuple(steps), (*moments, "journal/unwritten", "journal/torn", "journal/written"))


_BINDING = "blob configure configuring"
SCENES = (
    Scene.of(4 * FEW, 4 * FEW, "Create Configure", Provision=f"decided create creating {_BINDING}"),
    Scene.of(6 * FEW, 4 * FEW, "Drain Configure", Preempt=f"decided instructed drain draining {_BINDING}"),
    Scene.of(FEW, FEW, "Drain Delete", Reclaim="decided instructed drain draining", Delete="decided delete deleting"),
    Scene.of(2 * FEW, 2 * FEW, "Configure", Bootstrap=f"decided {_BINDING}"),
)
"""Round and round: buy, take from the lesser cluster, give back, use again what was kept."""

AT_THE_START = ("Get unsent", "Get answered", "List answered", "journal/unwritten", "journal/written", "any")
"""Where a life may end that has not yet settled what the one before it left."""


class Fleet:
    """A cloud, two clusters, and one shard after the other."""

    def __init__(self, stage: Stage, cloud: Cloud) -> None:
        self._stage, self.cloud = stage, cloud
        self.operators = {name: stage.operator(name) for name in (WEB, BATCH)}
        for name, priority in ((WEB, 1000), (BATCH, 10)):
            self.operators[name].cluster.world.deploy(workload(name, priority), FEW)
        self.asked = {WEB: FEW, BATCH: FEW}
        self.shard: Shard
        self.epochs: list[int] = []
        self.used: set[str] = set()
        """Machines that were seen to be anything but Speculative."""
        self._bound: dict[int, tuple[str, str, int, int]] = {}
        self._doubled: list[str] = []

    async def watch(self) -> None:
        """Follow the cloud for ever, and remember every binding by its number."""
        cursor = b""
        while True:
            answer = await self.cloud.stub.List(pb.ListFilter(since_revision=cursor), wait_for_ready=True, timeout=60)
            cursor = answer.revision
            machines = {machine.id: machine for machine in answer.machines}
            self.used |= {name for name, machine in machines.items() if machine.state != pb.MACHINE_STATE_SPECULATIVE}
            for name, binding in bindings(machines).items():
                seen = name, machines[name].cluster, binding.epoch, binding.bound_at
                first = self._bound.setdefault(binding.stamp.number, seen)
                if first != seen:
                    self._doubled.append(f"binding {binding.stamp.number} is that of {first} and of {seen}")
            await asyncio.sleep(0.05)

    def ask(self, web: int, batch: int) -> None:
        """The clusters want so many machines from now on."""
        self.asked = {WEB: web, BATCH: min(batch, MACHINES - web)}
        self.operators[WEB].cluster.world.scale(WEB, web)
        self.operators[BATCH].cluster.world.scale(BATCH, batch)

    async def start(self, command: str = "") -> None:
        """Begin the next life."""
        self.shard = await self._stage.shard(self.cloud, faulty=command)
        self.epochs.append(self.shard.epoch)

    async def settle_or_die(self) -> Mapping[str, Any] | None:
        """Wait until nothing moves and all have what they ask for, or until the shard is dead: then its last words."""
        ending = asyncio.create_task(self.shard.program.process.wait())
        settling = asyncio.create_task(self._settle())
        try:
            await asyncio.wait({ending, settling}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                await settling
                return None
            await self.shard.kill()
            # Another thread may have said something after that.
            last = [line for line in self.shard.program.lines if line.get("event") == "died"]
            assert last, "it ended by itself"
            return last[0]
        finally:
            ending.cancel()
            settling.cancel()
            await asyncio.wait({ending, settling})

    async def _settle(self) -> None:
        try:
            await until(self._is_settled)
        except AssertionError:
            machines = sorted((await self.cloud.machines()).values(), key=lambda machine: machine.id)
            standing = "\n".join(f"{m.id} {state_of(m)} {m.cluster} {m.last_error}" for m in machines)
            status = await self.shard.status()
            worlds = {n: (sorted(o.cluster.world.nodes), o.cluster.world.pods()) for n, o in self.operators.items()}
            raise AssertionError(f"not a settled fleet of {self.asked}:\n{standing}\n{worlds}\n{status}") from None

    async def _is_settled(self) -> bool:
        try:
            in_flight = (await self.shard.status()).actions_in_flight
        except grpc.aio.AioRpcError:
            return False
        if in_flight:
            return False
        machines = (await self.cloud.machines()).values()
        worlds = {name: operator.cluster.world for name, operator in self.operators.items()}
        bound = Counter(machine.cluster for machine in machines if machine.state == pb.MACHINE_STATE_CONFIGURED)
        nodes = {name: len(world.nodes) for name, world in worlds.items()}
        running = {name: world.pods().running for name, world in worlds.items()}
        resting = all(state_of(machine) in RESTS[machine.id.partition("-")[0]] for machine in machines)
        return resting and self.asked == bound == nodes == running

    async def check(self) -> None:
        """Compare the cloud's word with what there should be."""
        machines = await self.cloud.machines()
        hosts = [machine.host.ref for machine in machines.values() if machine.host.ref]
        assert sorted(hosts) == sorted(self.cloud.hosts()), "a host without a machine, or a machine without its host"
        for name, operator in self.operators.items():
            theirs = {machine.id for machine in machines.values() if machine.cluster == name}
            assert operator.cluster.world.nodes.keys() == theirs, f"{name} has other nodes than machines"
        stamped = bindings(machines).values()
        assert {binding.shard_id for binding in stamped} == {SHARD_ID}
        assert max(binding.epoch for binding in stamped) <= self.shard.epoch
        assert len({binding.stamp.number for binding in stamped}) == len(stamped)
        assert not self._doubled, "a number was given twice, or a machine bound twice for one decision"
        assert self.epochs == sorted(set(self.epochs)), "an epoch is not above the one before"


@pytest.mark.timeout(900 + 30 * KILLS)
async def test_kill_9_at_every_step_loses_no_machine_and_doubles_none(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    wanted = {step for scene in SCENES for step in scene.steps}
    wanted |= set() if KILLS < 100 else {moment for scene in SCENES for moment in scene.moments}
    passed: Counter[str] = Counter()
    kills = rounds = 0
    async with staged(tmp_path) as stage:
        fleet = Fleet(stage, await stage.cloud(pools=POOLS, latency=SLOW))
        stage.go_on(fleet.watch())
        await fleet.start()
        assert await fleet.settle_or_die() is None
        while kills < KILLS or (wanted - passed.keys() and kills < 2 * len(wanted)):
            scene = SCENES[rounds % len(SCENES)]
            rounds += 1
            before = await fleet.cloud.machines()
            live = {name for name, machine in before.items() if machine.state != pb.MACHINE_STATE_SPECULATIVE}
            fleet.used.clear()
            missing = [[point for point in points if point not in passed] for points in (scene.steps, scene.moments)]
            # The first step is that of all others when one of them gets to the second.
            point = rng.choice(missing[0][1:] or missing[0] or missing[1] or [*scene.steps, *scene.moments, "any"])
            # In the middle of many, where some have passed it and some have not; a scene has few writes.
            fleet.shard.program.tell(f"die {point} {1 if 'journal' in point else rng.randint(2, FEW)}")
            fleet.ask(scene.web, scene.batch)
            died = await fleet.settle_or_die()
            if died is None:
                await fleet.shard.kill()
            while True:
                kills += 1
                if died is not None:
                    passed.update({died["point"], *died["standing"]})
                # Now and then the next life ends while it still looks at what this one left.
                early = rng.choice(AT_THE_START) if died is not None and kills % 4 == 0 else ""
                await fleet.start(f"die {early} {rng.randint(1, FEW)}" if early else "")
                died = await fleet.settle_or_die()
                if died is None:
                    break
            await fleet.check()
            bought = fleet.used - live
            assert len(bought) == max(0, sum(fleet.asked.values()) - len(live)), f"bought {sorted(bought)} at {point}"
        await fleet.shard.stop()
        assert not stage.kept().commitments
    assert not wanted - passed.keys(), f"{kills} kills in {rounds} rounds"
