"""B4xx: calls that arrive at the same time."""

import asyncio
import time
from collections.abc import Sequence

import grpc

from bigfleet.conformance.errors import BrokenError, RefusedError
from bigfleet.conformance.suite import Area, Phase, Profile
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.handle import END, VIA, Handle, wrong_end
from bigfleet.conformance.workbench.records import IDLE, SPECULATIVE, binding_faults, state_of, told
from bigfleet.conformance.workbench.requests import Ask, Token
from bigfleet.conformance.workbench.target import Target
from bigfleet.conformance.workbench.tasks import together
from bigfleet.model.machine import HOSTED, Call, can
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(4, "concurrency")

_FENCED = grpc.StatusCode.FAILED_PRECONDITION
_PARALLEL = 8
# A sequence far above those that the old epoch has used.
_LATE_SEQUENCE = 10**6
_MOVES = 3
# Something that is seen so many times in a row is no coincidence.
_PROOF = 5
# So many times the proof is tried before a call that is taken counts as taken in time.
_ROUNDS = 3


async def _at_once(target: Target, asks: Sequence[Ask]) -> list[pb.TransitionAck | RefusedError]:
    async def outcome(ask: Ask) -> pb.TransitionAck | RefusedError:
        try:
            return await target.ask(ask)
        except RefusedError as refused:
            return refused

    return list(await asyncio.gather(*map(outcome, asks)))


async def _one_transition(bench: Bench, machine: Handle, call: Call) -> None:
    """Send identical calls at once: they have one operation_id, and the machine makes one transition."""
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
    if state_of(end) is not END[call]:
        raise BrokenError(done, f"it to end {END[call].label}", told(end), cause=wrong_end(call, end))
    if again.host != end.host:
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


@AREA.check(
    "B404",
    "conflicting calls serialise: one of them wins, and the others, also those sent while it runs, change nothing",
    phase=Phase.ALONE,
)
async def _conflicts_serialise(bench: Bench) -> None:
    async with bench.idle() as machine:
        await _one_winner(bench, machine, [Call.CONFIGURE] * _PARALLEL)
        if bench.facts.deletable:
            await machine.drive(Call.DRAIN)
            await _one_winner(bench, machine, [Call.CONFIGURE, Call.DELETE] * (_PARALLEL // 2))
        for running in bench.facts.round_trip:
            await _not_interrupted(bench, machine, running)


async def _not_interrupted(bench: Bench, machine: Handle, running: Call) -> None:
    """While one call runs, the others are refused and change nothing.

    A transition may be over when the next call is judged, and that call is legal then. So a call that is taken right
    after the ack speaks against a provider only if it is taken every time, though the transition, left alone, always
    takes longer than that call took.
    """
    calls = [call for call in Call if call is not Call.DELETE or bench.facts.deletable]
    taken = dict.fromkeys((call for call in calls if call is not running), 0)
    longest_seconds = 0.0
    while taken:
        await _ready_for(bench, machine, running)
        ask = machine.asking(running, cluster=bench.cluster(), metadata={"stamp": "first"})
        if state_of((await bench.target.ask(ask)).machine) is not VIA[running]:
            return
        for place, call in enumerate(list(taken)):
            intruder = machine.asking(call, cluster=bench.cluster(), metadata={"stamp": "intruder"})
            sent = time.monotonic()
            try:
                ack = await bench.target.ask(intruder)
            except RefusedError as refused:
                if refused.code is _FENCED:
                    expected = "any code but FAILED_PRECONDITION"
                    raise RefusedError(refused.done, refused.code, refused.details, expected) from None
                del taken[call]
                continue
            # A call may wait until the transition is over, for example for its turn behind a write to disk.
            longest_seconds = max(longest_seconds, time.monotonic() - sent)
            # Only the first call is surely early enough. The others are first in a later round.
            taken[call] += place == 0
            sure = place == 0 and taken[call] % _PROOF == 0
            if not _legal_after(call, running) or (sure and await _outlasts(bench, machine, running, longest_seconds)):
                done = f"{intruder} right after {running.value}"
                raise BrokenError(done, f"a refusal, while {VIA[running].label}", f"an ack with {told(ack.machine)}")
            if taken[call] == _ROUNDS * _PROOF:
                del taken[call]
            break
        else:
            await _as_asked(machine, ask, f"{ask}, and calls that were refused while it ran")


async def _outlasts(bench: Bench, machine: Handle, running: Call, seconds: float) -> bool:
    """Whether the transition, left alone, is seen to run longer than this, every time."""
    for _ in range(_PROOF):
        await _ready_for(bench, machine, running)
        await machine.ask(running, cluster=bench.cluster())
        await machine.get()
        await asyncio.sleep(seconds)
        if state_of(await machine.get()) is not VIA[running]:
            return False
    return True


def _legal_after(call: Call, running: Call) -> bool:
    """Whether the call may be taken once the other has ended: it is legal there, or asks for what is so already."""
    end = END[running]
    return can(call, end, end in HOSTED) or (end is END[call] and call is not Call.CONFIGURE)


async def _ready_for(bench: Bench, machine: Handle, call: Call) -> None:
    """Bring the machine to a state from which the call is legal."""
    await machine.reach(SPECULATIVE if call is Call.CREATE else IDLE, await machine.rest())
    if call is Call.DRAIN:
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())


async def _one_winner(bench: Bench, machine: Handle, calls: Sequence[Call]) -> None:
    asks = [
        machine.asking(call, token, cluster=bench.cluster(), metadata={"try": str(number)})
        for number, (call, token) in enumerate(zip(calls, bench.tokens(len(calls)), strict=True))
    ]
    outcomes = await _at_once(bench.target, asks)
    done = (
        f"parallel {' and '.join(sorted({call.value for call in calls}))} of machine {machine.id!r} with different aims"
    )
    won = [ask for ask, outcome in zip(asks, outcomes, strict=True) if isinstance(outcome, pb.TransitionAck)]
    # One Delete repeats another. Any other two calls contradict each other.
    aims = {(ask.call, ask.cluster if ask.call is Call.CONFIGURE else "") for ask in won}
    if len(aims) != 1:
        raise BrokenError(done, "exactly one to win", f"{len(aims)} acks: {'; '.join(map(str, won)) or 'none'}")
    await _as_asked(machine, won[0], done)


async def _as_asked(machine: Handle, ask: Ask, done: str) -> None:
    """Judge that the machine settles as this call asked, with nothing of any other call."""
    end = await machine.settled()
    wanted = (ask.cluster, dict(ask.metadata)) if ask.call is Call.CONFIGURE else ("", {})
    if state_of(end) is not END[ask.call] or (end.cluster, dict(end.shard_metadata)) != wanted:
        raise BrokenError(done, f"the machine as {ask} left it", told(end))


@AREA.check("B405", "the newer epoch always wins", own_shards=True)
async def _newer_epoch_wins(bench: Bench) -> None:
    async with bench.idle() as machine:
        shard, cluster = bench.shard().id, bench.cluster()
        olds = [machine.asking(Call.CONFIGURE, Token(shard, 1, n), cluster=cluster) for n in range(_PARALLEL)]
        newer = machine.asking(Call.CONFIGURE, Token(shard, 2, 0), cluster=cluster)
        middle = _PARALLEL // 2
        outcomes = await _at_once(bench.target, [*olds[:middle], newer, *olds[middle:]])
        if isinstance(winner := outcomes[middle], RefusedError):
            raise RefusedError(winner.done, winner.code, winner.details, "an ack: no newer epoch was sent")
        for old in (olds[-1], machine.asking(Call.DRAIN, Token(shard, 1, _LATE_SEQUENCE))):
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
            await _as_asked(machine, ask, f"{ask} beside others")
        await machines[0].drive(Call.DRAIN)
        for machine, ask in zip(machines[1:], asks[1:], strict=True):
            await _as_asked(machine, ask, f"{ask} beside others")


@AREA.check("B408", "no torn snapshot: every record that is read while machines move is consistent")
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
            # After a failure the moves need not go on. The end of the lease brings the machines back.
            moving.cancel()
            await asyncio.wait([moving])


async def _move(bench: Bench, machine: Handle) -> None:
    for turn in range(_MOVES):
        cluster = bench.cluster()
        ack = await machine.ask(Call.CONFIGURE, cluster=cluster, metadata={"cluster": cluster, "turn": str(turn)})
        _judge_whole(ack.machine)
        await machine.watched(ack)
        ack = await machine.ask(Call.DRAIN)
        _judge_whole(ack.machine)
        await machine.watched(ack)


def _judge_whole(record: pb.Machine) -> None:
    """Judge that cluster and metadata are of one binding, or that both are empty."""
    faults = list(binding_faults(record))
    if record.shard_metadata.get("cluster", "") != record.cluster:
        faults.append(f"{told(record)}: cluster and metadata are not of one binding")
    if state_of(record) is IDLE and record.shard_metadata:
        faults.append(f"{told(record)}: metadata without a binding")
    for fault in faults:
        raise BrokenError(f"reading machine {record.id!r} while it moves", "a consistent record", fault)
