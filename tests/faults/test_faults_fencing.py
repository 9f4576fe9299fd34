"""Two processes that are one shard: the older finds out, stops acting, says so, and stays up for a person to see."""

from pathlib import Path

import grpc
import pytest

from bigfleet.sim.clusters.rogues import hello, intrude
from bigfleet.wire.hello import OPERATOR_FEATURES
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1 import shard_pb2 as shard_pb
from tests.faults.stage import AT_ONCE, SHARD_ID, Shard, Stage, bindings, pool, staged, until

POOLS = [pool("kept", "Reserved", 6)]


async def has_stood_down(stage: Stage, shard: Shard, name: str) -> None:
    """Check that a shard that was fenced is out of everybody's way."""
    said = await shard.program.said("shard_fenced")
    assert said["advice"]
    await until(lambda: shard.is_unready(f"fencing: {said['reason']}"))
    status = await shard.status()
    assert status.fenced_reason == said["reason"]
    ending = await intrude(stage.address(name), [hello("late")])
    assert (ending.code, ending.details) == ("UNAVAILABLE", f"this shard has stood down: {said['reason']}")


async def test_the_older_of_two_shards_with_one_id_stands_down(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=POOLS, latency=AT_ONCE)
        older = await stage.shard(cloud, name="older", data="older")
        left = await stage.puppet("left", *OPERATOR_FEATURES, shard="older")
        await left.ask(2)
        bound = await left.bind(2)

        newer = await stage.shard(cloud, name="newer", data="newer")
        moved = await stage.puppet("moved", *OPERATOR_FEATURES, shard="newer")
        await moved.ask(1)
        await moved.bind(1)
        await has_stood_down(stage, older, "older")
        ending = await left.ending()
        assert ending.code == "UNAVAILABLE"
        assert "this shard has stood down" in ending.details
        assert (await newer.status()).epoch > (await older.status()).epoch

        # The younger goes on, and what the older had bound it knows as its own.
        there = await stage.puppet("left", *OPERATOR_FEATURES, shard="newer")
        await there.ask(1)
        told = await there.hears("reclaim_instruction")
        assert set(told.nodes) < set(bound)
        await there.drained(told.instruction_id, told.nodes[0])
        await until(lambda: newer.has_in_flight({}))
        await moved.ask(3)
        await moved.bind(2)
        epochs = {machine: binding.epoch for machine, binding in bindings(await cloud.machines()).items()}
        assert sorted(epochs.values()) == [older.epoch, *[(await newer.status()).epoch] * 3]
        assert not newer.program.has_said("shard_fenced")
        # It still decides, and does nothing about it.
        await older.cycles(2)
        assert not (await older.status()).actions_in_flight
        assert await older.stop() == 0


async def test_a_shard_that_is_fenced_twice_on_a_machine_stands_down(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=POOLS, latency=AT_ONCE)
        shard = await stage.shard(cloud)
        # A stranger's operator: the machine is drained as soon as that has acknowledged the instruction.
        puppet = await stage.puppet("prod")
        await puppet.ask(2)
        bound = await puppet.bind(2)
        # Somebody of the same name was here: their calls come to nothing, but their tokens count.
        for machine in bound:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await cloud.stub.Create(
                    pb.CreateRequest(
                        machine_id=machine, shard_id=SHARD_ID, shard_epoch=shard.epoch + 5, sequence_number=1
                    )
                )
            assert refused.value.code() is grpc.StatusCode.ABORTED
        await puppet.ask(1)
        for _ in range(2):
            told = await puppet.hears("reclaim_instruction")
            await puppet.say(reclaim_ack=shard_pb.ReclaimAck(instruction_id=told.instruction_id, nodes_started=1))
        await has_stood_down(stage, shard, "shard")
        assert {machine.id for machine in (await cloud.machines()).values() if machine.cluster == "prod"} == set(bound)
