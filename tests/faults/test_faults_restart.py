"""What protects machines and people outlives the shard: holds, hold-outs, a pause, excess, and what was asked for."""

import signal
import time
from pathlib import Path

from bigfleet.wire.hello import OPERATOR_FEATURES
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from bigfleet.wire.v1alpha1 import shardadmin_pb2 as admin
from tests.faults.stage import AT_ONCE, Puppet, pool, staged, states, until

POOLS = [pool("kept", "Reserved", 8)]


async def refuse_blob(puppet: Puppet, why: str) -> None:
    request = await puppet.hears("bootstrap_request")
    await puppet.say(bootstrap_response=pb.BootstrapBlobResponse(request_id=request.request_id, error=why))


async def give_up(puppet: Puppet) -> str:
    """Say that a node cannot be emptied; its machine."""
    instruction = await puppet.hears("reclaim_instruction")
    (node,) = instruction.nodes
    await puppet.drained(instruction.instruction_id, node, empty=False)
    await puppet.hears("reclaim_withdrawn")
    return str(node)


async def test_holds_and_hold_outs_and_a_pause_and_excess_outlive_kill_9(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=POOLS, latency=AT_ONCE)
        shard = await stage.shard(cloud)
        stuck, mute, fine = [await stage.puppet(name, *OPERATOR_FEATURES) for name in ("stuck", "mute", "fine")]
        await stuck.ask(2)
        await stuck.bind(2)
        await stuck.ask(1)
        held = await give_up(stuck)
        await mute.ask(1)
        await refuse_blob(mute, "no token today")
        await fine.ask(2)
        await fine.bind(2)
        await shard.cycles(2)
        await shard.kill()
        first = stage.kept()
        assert first.values.reclaim_holds.keys() == {held}
        assert first.values.holdouts.needs.keys() == {"mute"}

        shard = await stage.shard(cloud)
        stuck, mute, fine = [await stage.puppet(name, *OPERATOR_FEATURES) for name in ("stuck", "mute", "fine")]
        await stuck.ask(1)
        await mute.ask(1)
        await fine.ask(3)
        await fine.bind(1)
        await shard.cycles(3)
        assert not stuck.has_heard("reclaim_instruction")
        assert not mute.has_heard("bootstrap_request")
        await shard.admin.SetActuation(admin.SetActuationRequest(paused=True, reason="a test"))
        await fine.ask(2)
        await shard.cycles(2)
        await shard.kill()
        second = stage.kept()
        assert second.values.reclaim_holds.keys() == {held}
        assert second.values.reclaim_holds[held] - second.written <= first.values.reclaim_holds[held] - first.written
        assert "fine" in second.values.excess_since

        shard = await stage.shard(cloud)
        begun = time.monotonic()
        assert (await shard.status()).actuation_paused
        stuck, fine = [await stage.puppet(name, *OPERATOR_FEATURES) for name in ("stuck", "fine")]
        await stuck.ask(1)
        await fine.ask(2)
        await shard.cycles(3)
        assert not fine.has_heard("reclaim_instruction")
        await shard.admin.SetActuation(admin.SetActuationRequest(paused=False))
        await fine.hears("reclaim_instruction")
        await shard.kill()
        # On the clock of the life that first saw it, it would have begun after that life did.
        assert stage.kept().values.excess_since["fine"] < begun


async def test_an_operator_is_heard_before_the_provider_answers_and_another_is_waited_for(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=POOLS, latency=AT_ONCE)
        shard = await stage.shard(cloud)
        prompt, late = [await stage.puppet(name, *OPERATOR_FEATURES) for name in ("prompt", "late")]
        await prompt.ask(2)
        await prompt.bind(2)
        await late.ask(1)
        wanted = await late.hears("bootstrap_request")
        await prompt.ask(1)
        told = await prompt.hears("reclaim_instruction")
        (node,) = told.nodes
        await shard.cycles(1)
        await shard.kill()

        cloud.program.signal(signal.SIGSTOP)
        shard = await stage.shard(cloud)
        prompt = await stage.puppet("prompt", *OPERATOR_FEATURES)
        assert (await prompt.hears("reclaim_instruction")).instruction_id == told.instruction_id
        cordoned = pb.CordonedNode(instruction_id=told.instruction_id, node=node)
        await prompt.say(cordoned_nodes=pb.CordonedNodes(nodes=[cordoned]))
        await prompt.drained(told.instruction_id, node)
        await prompt.ask(1)
        assert not prompt.has_heard("reclaim_withdrawn")
        cloud.program.signal(signal.SIGCONT)
        await until(lambda: shard.has_in_flight({"Provision": 1}))
        assert not (await cloud.machines())[node].cluster

        # The machine that was made for it waits, and no other is.
        late = await stage.puppet("late", *OPERATOR_FEATURES)
        await late.ask(1)
        assert await late.bind(1) == [wanted.machine_id]
        await until(lambda: shard.has_in_flight({}))
        assert states(await cloud.machines()) == {"Configured": 2, "Idle": 1, "Speculative": 5}
