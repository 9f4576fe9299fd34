"""B4xx: calls that arrive at the same time."""

import asyncio
from collections.abc import Sequence

import grpc

from bigfleet.conformance.bench import Bench
from bigfleet.conformance.errors import BrokenError, RefusedError
from bigfleet.conformance.handle import END, Handle
from bigfleet.conformance.records import CONFIGURED, IDLE, binding_faults, state_of, told
from bigfleet.conformance.requests import Ask, Token
from bigfleet.conformance.suite import Area, Profile
from bigfleet.conformance.target import Target
from bigfleet.conformance.tasks import together
from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(4, "concurrency")

_FENCED = grpc.StatusCode.FAILED_PRECONDITION
_PARALLEL = 8


async def _at_once(target: Target, asks: Sequence[Ask]) -> list[pb.TransitionAck | RefusedError]:
    async def outcome(ask: Ask) -> pb.TransitionAck | RefusedError:
        try:
            return await target.ask(ask)
        except RefusedError as refused:
            return refused

    return list(await asyncio.gather(*map(outcome, asks)))


async def _one_transition(bench: Bench, machine: Handle, call: Call) -> None:
    cluster = bench.cluster()
    asks = [machine.asking(call, token, cluster=cluster) for token in bench.tokens(_PARALLEL)]
    outcomes = await _at_once(bench.target, asks)
    done = f"{_PARALLEL} parallel {call.value}s of machine {machine.id!r}"
    operations = set()
    for outcome in outcomes:
        if isinstance(outcome, pb.TransitionAck):
            operations.add(outcome.operation_id)
        elif not (bench.facts.tls and outcome.code is _FENCED):
            raise BrokenError(done, "an ack for each", str(outcome))
    if len(operations) != 1:
        raise BrokenError(done, "one operation_id for all", f"{len(operations)}: {', '.join(sorted(operations))}")
    end = await machine.settled()
    again = await machine.settled()
    if state_of(end) is not END[call] or again.host != end.host:
        raise BrokenError(done, f"one transition that ends {END[call].label}", told(again))


@AREA.check("B401", "parallel identical Creates give one operation_id and one transition")
async def _parallel_create(bench: Bench) -> None:
    async with bench.speculative() as machine:
        await _one_transition(bench, machine, Call.CREATE)


@AREA.check("B402", "parallel identical Configures give one operation_id and one transition")
async def _parallel_configure(bench: Bench) -> None:
    async with bench.idle() as machine:
        await _one_transition(bench, machine, Call.CONFIGURE)


@AREA.check("B403", "parallel identical Drains give one operation_id and one transition")
async def _parallel_drain(bench: Bench) -> None:
    async with bench.idle() as machine:
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        await _one_transition(bench, machine, Call.DRAIN)


@AREA.check("B409", "parallel identical Deletes give one operation_id and one transition", Profile.CLOUD)
async def _parallel_delete(bench: Bench) -> None:
    async with bench.idle() as machine:
        await _one_transition(bench, machine, Call.DELETE)


@AREA.check("B404", "conflicting calls serialise: one of them wins, the others change nothing")
async def _conflicts_serialise(bench: Bench) -> None:
    async with bench.idle() as machine:
        await _one_winner(bench, machine, [Call.CONFIGURE] * _PARALLEL)
        if bench.facts.deletable:
            await machine.drive(Call.DRAIN)
            await _one_winner(bench, machine, [Call.CONFIGURE, Call.DELETE] * (_PARALLEL // 2))


async def _one_winner(bench: Bench, machine: Handle, calls: Sequence[Call]) -> None:
    asks = [
        machine.asking(call, token, cluster=bench.cluster(), metadata={"try": str(number)})
        for number, (call, token) in enumerate(zip(calls, bench.tokens(len(calls)), strict=True))
    ]
    outcomes = await _at_once(bench.target, asks)
    done = f"parallel {' and '.join(sorted({call.value for call in calls}))} of machine {machine.id!r} with other aims"
    won = [ask for ask, outcome in zip(asks, outcomes, strict=True) if isinstance(outcome, pb.TransitionAck)]
    # Deletes of one another are repeats; everything else contradicts.
    aims = {(ask.call, ask.cluster if ask.call is Call.CONFIGURE else "") for ask in won}
    if len(aims) != 1:
        raise BrokenError(done, "exactly one to win", f"{len(aims)} acks: {'; '.join(map(str, won)) or 'none'}")
    end = await machine.settled()
    aim = won[0]
    wanted = (aim.cluster, dict(aim.metadata)) if aim.call is Call.CONFIGURE else ("", {})
    if state_of(end) is not END[aim.call] or (end.cluster, dict(end.shard_metadata)) != wanted:
        raise BrokenError(done, f"the machine as {aim} left it", told(end))


@AREA.check("B405", "the newer epoch always wins", own_shards=True)
async def _newer_epoch_wins(bench: Bench) -> None:
    async with bench.idle() as machine:
        shard, cluster = bench.shard().id, bench.cluster()
        olds = [machine.asking(Call.CONFIGURE, Token(shard, 1, n), cluster=cluster) for n in range(_PARALLEL)]
        newer = machine.asking(Call.CONFIGURE, Token(shard, 2, 0), cluster=cluster)
        outcomes = await _at_once(bench.target, [*olds[:4], newer, *olds[4:]])
        if isinstance(winner := outcomes[4], RefusedError):
            raise RefusedError(winner.done, winner.code, winner.details, "an ack: no newer epoch was sent")
        for old in (olds[-1], machine.asking(Call.DRAIN, Token(shard, 1, 10**6))):
            await bench.target.refused(old, "epoch 2 came before", _FENCED)


@AREA.check("B406", "marks, operations and records are the same across connections")
async def _across_connections(bench: Bench) -> None:
    other = bench.target.another()
    try:
        async with bench.idle() as machine:
            token, cluster = machine.shard.next(), bench.cluster()
            first = await machine.ask(Call.CONFIGURE, token, cluster=cluster)
            stale = machine.asking(Call.CONFIGURE, token, cluster=cluster)
            await other.refused(stale, f"{token} came before on another connection", _FENCED)
            repeat = machine.asking(Call.CONFIGURE, cluster=cluster)
            second = await other.ask(repeat)
            if second.operation_id != first.operation_id:
                expected = f"operation {first.operation_id!r}, as on the other connection"
                raise BrokenError(str(repeat), expected, f"operation {second.operation_id!r}")
            end = await machine.settled()
            if (seen := await other.get(machine.id)) != end:
                raise BrokenError(f"Get of machine {machine.id!r} on a second connection", told(end), told(seen))
    finally:
        await other.hang_up()


@AREA.check("B407", "nothing bleeds from one machine into another")
async def _no_bleed(bench: Bench) -> None:
    async with bench.several(2, 4) as machines:
        asks = [
            machine.asking(Call.CONFIGURE, cluster=bench.cluster(), metadata={"of": machine.id, machine.id: "mine"})
            for machine in machines
        ]
        operations = [(await bench.target.ask(ask)).operation_id for ask in asks]
        if len(set(operations)) != len(asks):
            done = f"Configures of {len(asks)} machines"
            raise BrokenError(done, "an operation_id of its own for each", ", ".join(operations))
        for machine, ask in zip(machines, asks, strict=True):
            await _stays_as_asked(machine, ask)
        await machines[0].drive(Call.DRAIN)
        for machine, ask in zip(machines[1:], asks[1:], strict=True):
            await _stays_as_asked(machine, ask)


async def _stays_as_asked(machine: Handle, ask: Ask) -> None:
    end = await machine.settled()
    if (state_of(end), end.cluster, dict(end.shard_metadata)) != (CONFIGURED, ask.cluster, dict(ask.metadata)):
        raise BrokenError(f"{ask} beside others", "Configured with its own cluster and metadata", told(end))


@AREA.check("B408", "no torn snapshot: every record seen while machines move is whole")
async def _no_torn_snapshot(bench: Bench) -> None:
    async with bench.several(1, 2) as machines:
        moving = asyncio.create_task(together(_move(bench, machine) for machine in machines))
        mine = {machine.id for machine in machines}
        try:
            while not moving.done():
                for record in (await bench.target.list()).machines:
                    if record.id in mine:
                        _judge_whole(record)
                for machine in machines:
                    _judge_whole(await machine.get())
            await moving
        finally:
            # After a tear the rest of the way is of no interest; the machines come to rest with the lease.
            moving.cancel()
            await asyncio.wait([moving])


async def _move(bench: Bench, machine: Handle) -> None:
    for turn in range(3):
        cluster = bench.cluster()
        ack = await machine.ask(Call.CONFIGURE, cluster=cluster, metadata={"cluster": cluster, "turn": str(turn)})
        _judge_whole(ack.machine)
        await machine.watched(ack)
        ack = await machine.ask(Call.DRAIN)
        _judge_whole(ack.machine)
        await machine.watched(ack)


def _judge_whole(record: pb.Machine) -> None:
    """Cluster and metadata come together and go together."""
    faults = list(binding_faults(record))
    if record.shard_metadata.get("cluster", "") != record.cluster:
        faults.append(f"{told(record)}: cluster and metadata are not of one binding")
    if state_of(record) is IDLE and record.shard_metadata:
        faults.append(f"{told(record)}: metadata without a binding")
    for fault in faults:
        raise BrokenError(f"reading machine {record.id!r} while it moves", "a whole record", fault)
