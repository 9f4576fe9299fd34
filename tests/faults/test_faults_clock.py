"""The wall clock jumps by hours: nothing ends early while the shard runs, and a restart counts no more than it may."""

from pathlib import Path

from bigfleet.wire.hello import OPERATOR_FEATURES
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.faults.stage import AT_ONCE, bindings, pool, staged, until

HOUR = 3600


async def test_clock_jumps_end_nothing_early_and_graces_stay_bounded(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=[pool("kept", "Reserved", 8)], latency=AT_ONCE)
        shard = await stage.shard(cloud, faulty="", bootstrap_timeout="10m")
        shrinks, waits, mute = [await stage.puppet(name, *OPERATOR_FEATURES) for name in ("shrinks", "waits", "mute")]
        await shrinks.ask(2)
        await shrinks.bind(2)
        await waits.ask(1)
        await waits.hears("bootstrap_request")
        await mute.ask(1)
        request = await mute.hears("bootstrap_request")
        await mute.say(bootstrap_response=pb.BootstrapBlobResponse(request_id=request.request_id, error="no token"))
        await shrinks.ask(1)
        told = await shrinks.hears("reclaim_instruction")
        (machine,) = told.nodes
        in_flight = {"Reclaim": 1, "Provision": 1}
        await until(lambda: shard.has_in_flight(in_flight))
        for hours in (6, -12, 24):
            shard.program.tell(f"jump {hours * HOUR}")
            await shard.cycles(3)
            assert (await shard.status()).actions_in_flight == in_flight
        assert [puppet.has_heard("bootstrap_request") for puppet in (waits, mute)] == [1, 1]
        assert not shrinks.has_heard("reclaim_withdrawn")
        assert not waits.has_heard("bootstrap_withdrawn")
        await shard.kill()

        # Back before the file was written: no time has passed.
        before = stage.kept().commitments[machine].deadline - stage.kept().written
        shard = await stage.shard(cloud, faulty=f"jump {-24 * HOUR}", bootstrap_timeout="10m")
        shrinks = await stage.puppet("shrinks", *OPERATOR_FEATURES)
        again = await shrinks.hears("reclaim_instruction")
        assert again.instruction_id == told.instruction_id
        assert 0 < again.grace_period_seconds <= round(before) <= told.grace_period_seconds
        await shard.kill()

        # Two days later: of the grace nothing is left, and of nothing else has anything passed.
        shard = await stage.shard(cloud, faulty=f"jump {24 * HOUR}", bootstrap_timeout="10m")
        shrinks, mute = [await stage.puppet(name, *OPERATOR_FEATURES) for name in ("shrinks", "mute")]
        await shrinks.ask(1)
        await mute.ask(1)
        gone = await shrinks.hears("reclaim_withdrawn")
        assert gone.instruction_id == told.instruction_id
        await shard.cycles(3)
        assert not mute.has_heard("bootstrap_request")
        assert (await cloud.machines())[machine].cluster == "shrinks"
        await shard.kill()
        assert machine in stage.kept().values.reclaim_holds


async def test_an_epoch_is_above_all_that_was_stamped_though_its_file_is_gone_and_the_clock_is_behind(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=[pool("kept", "Reserved", 8)], latency=AT_ONCE)
        shard = await stage.shard(cloud, faulty="")
        puppet = await stage.puppet("prod", *OPERATOR_FEATURES)
        await puppet.ask(2)
        await puppet.bind(2)
        await puppet.ask(1)
        told = await puppet.hears("reclaim_instruction")
        await shard.cycles(1)
        await shard.kill()
        (stage.folder / "data" / "epoch").unlink()

        shard = await stage.shard(cloud, faulty=f"jump {-24 * HOUR}")
        puppet = await stage.puppet("prod", *OPERATOR_FEATURES)
        await puppet.ask(1)
        assert (await puppet.hears("reclaim_instruction")).instruction_id == told.instruction_id
        await puppet.drained(told.instruction_id, told.nodes[0])
        await until(lambda: shard.has_in_flight({}))
        await puppet.ask(2)
        await puppet.bind(1)
        epochs = sorted(binding.epoch for binding in bindings(await cloud.machines()).values())
        assert epochs[0] < epochs[1] == (await shard.status()).epoch
        assert not (await shard.status()).fenced_reason
