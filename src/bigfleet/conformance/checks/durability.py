"""B10xx: what a provider still knows after kill -9 and a restart.

The provider is killed once, on few machines. What happens is recorded, and each check judges its part of the record.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import grpc

from bigfleet.conformance.checks.listing import by_id, same_ids, there
from bigfleet.conformance.checks.metadata import awkward, judge
from bigfleet.conformance.errors import BrokenError, NotApplicableError, NotCheckedError, RefusedError, TargetError
from bigfleet.conformance.suite import Area, Phase, Profile
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.handle import Handle
from bigfleet.conformance.workbench.process import Launched
from bigfleet.conformance.workbench.records import binding_faults, told
from bigfleet.conformance.workbench.requests import Ask
from bigfleet.conformance.workbench.tasks import together
from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(10, "durability")

_BURST = 24
# One machine stays bound over the restart. Each of the others has a call of another kind interrupted.
_FEWEST, _MOST = 3, 5
# The codes of a call that the provider could not answer before it was killed, or did not look at.
_UNANSWERED = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Story:
    """What was seen before the kill and after the restart. An error stands where an answer was expected."""

    bound: pb.Machine
    """The machine that stays Configured over the restart, as it was before."""
    operation: str
    """The operation that configured it."""
    before: dict[str, pb.Machine]
    """All machines before the kill."""
    operations: frozenset[str]
    """Every operation id that was given before the kill."""
    stale: tuple[tuple[Ask, pb.TransitionAck | BrokenError], ...]
    """Calls that were answered before the kill, and the answers when they were sent again after it."""
    repeat: tuple[Ask, pb.TransitionAck | BrokenError]
    """The Configure of the bound machine, repeated with a new token after the restart."""
    bound_after: pb.Machine | BrokenError
    """The bound machine after the restart."""
    after: dict[str, pb.Machine] | BrokenError
    """All machines right after the restart."""
    interrupted: tuple[tuple[Ask, pb.Machine | BrokenError], ...]
    """Calls that the kill interrupted, and how their machines settled."""
    caught_up: dict[str, pb.Machine] | None
    """All machines before the kill, brought up to date by a delta from that time's cursor. None without cursors."""
    final: dict[str, pb.Machine] | BrokenError
    """All machines at the end."""
    new_shard: tuple[Ask, pb.TransitionAck | BrokenError]
    """The first call of a shard that the provider has not met before."""
    fresh: tuple[tuple[Ask, pb.TransitionAck | BrokenError], ...]
    """Calls after the restart that begin new transitions."""


class Restart:
    """The one kill of a run. The first check that asks makes it happen, and the others get the same story."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self._once = asyncio.Lock()
        self._told: Story | BrokenError | NotApplicableError | None = None

    async def story(self, bench: Bench) -> Story:
        """What happened. An error before or in the restart is raised for every check that asks."""
        async with self._once:
            if self._told is None:
                try:
                    self._told = await _tell(bench, self._launched)
                except (BrokenError, NotApplicableError) as error:
                    self._told = error
        if isinstance(self._told, Story):
            return self._told
        raise self._told


async def _or_error(answer: Awaitable[_T]) -> "_T | BrokenError":
    try:
        return await answer
    except BrokenError as error:
        return error


async def _tell(bench: Bench, launched: Launched) -> Story:
    target = bench.target
    async with bench.several(_FEWEST, _MOST) as machines:
        keeper, *others = machines
        cluster, metadata = bench.cluster(), awkward()
        kept = await keeper.drive(Call.CONFIGURE, cluster=cluster, metadata=metadata)
        interruptions = await _ready_to_interrupt(bench, others)
        listing = await target.list()
        answered = await _killed_in_a_burst(bench, keeper, [ask for _, ask in interruptions], launched)
        operations = frozenset(target.witness.operations)
        try:
            await launched.start()
        except TargetError as error:
            said = " | ".join((str(error), *error.log))
            raise BrokenError("kill -9 and a restart", "the provider to come back", said) from None
        after = await _or_error(_inventory(bench))
        stale = [(ask, await _or_error(target.ask(ask))) for ask in answered]
        repeat = keeper.asking(Call.CONFIGURE, cluster=cluster, metadata=metadata)
        repeated = await _or_error(target.ask(repeat))
        bound_after = await _or_error(keeper.get())
        ends = await asyncio.gather(*(_or_error(machine.settled()) for machine, _ in interruptions))
        stranger = Handle(target, kept.end, bench.shard(), b"")
        new_shard = stranger.asking(Call.DRAIN)
        drained = await _or_error(target.ask(new_shard))
        await _or_error(keeper.settled())
        anew = keeper.asking(Call.CONFIGURE, cluster=bench.cluster())
        fresh = ((new_shard, drained), (anew, await _or_error(target.ask(anew))))
        await _or_error(keeper.settled())
        caught_up = None
        if listing.revision:
            delta = await _or_error(target.list(since=listing.revision))
            if not isinstance(delta, BrokenError):
                caught_up = by_id("List", listing.machines) | by_id("the delta", delta.machines)
        return Story(
            bound=kept.end,
            operation=kept.ack.operation_id,
            before=by_id("List", listing.machines),
            operations=operations,
            stale=tuple(stale),
            repeat=(repeat, repeated),
            bound_after=bound_after,
            after=after,
            interrupted=tuple(zip((ask for _, ask in interruptions), ends, strict=True)),
            caught_up=caught_up,
            final=await _or_error(_inventory(bench)),
            new_shard=(new_shard, drained),
            fresh=fresh,
        )


async def _killed_in_a_burst(bench: Bench, bound: Handle, last: Sequence[Ask], launched: Launched) -> list[Ask]:
    """Send many calls at once. When half are answered, send the last ones and kill the provider upon their acks.

    Returns the calls that were answered. None of the many is carried out, because Create is illegal on a bound machine,
    but each has moved a mark.
    """
    answered: list[Ask] = []

    async def end() -> None:
        for ask in last:
            await bench.target.ask(ask)
        # The kill follows the last ack at once, so that a provider which answers before it writes is caught.
        await launched.kill()

    async def send(ask: Ask) -> None:
        fact = await _or_error(bench.target.ask(ask))
        if isinstance(fact, RefusedError) and fact.code in _UNANSWERED:
            return
        answered.append(ask)
        if len(answered) == _BURST // 2:
            await end()

    await together(send(bound.asking(Call.CREATE, bench.shard().next())) for _ in range(_BURST))
    if len(answered) < _BURST // 2:
        await end()
    return [*last, *answered]


async def _ready_to_interrupt(bench: Bench, machines: list[Handle]) -> list[tuple[Handle, Ask]]:
    """Calls of different kinds, one a machine. Each machine is brought to where its call is legal."""
    asks = []
    for machine, call in zip(machines, bench.facts.round_trip, strict=False):
        if call is Call.DRAIN:
            await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        elif call is Call.CREATE:
            await machine.drive(Call.DELETE)
        asks.append((machine, machine.asking(call, cluster=bench.cluster())))
    return asks


async def _inventory(bench: Bench) -> dict[str, pb.Machine]:
    return by_id("List after a restart", (await bench.target.list()).machines)


def _answer(done: str, fact: "_T | BrokenError") -> _T:
    if isinstance(fact, BrokenError):
        raise BrokenError(f"{done} after a restart", "no error", str(fact))
    return fact


async def _story(bench: Bench) -> Story:
    if bench.restart is None:
        raise NotCheckedError("durable", "only a provider that the suite starts can be killed: give --launch CMD")
    return await bench.restart.story(bench)


@AREA.check(
    "B1001", "fencing marks survive kill -9, to the last call that was answered", Profile.DURABLE, phase=Phase.ALONE
)
async def _marks_survive(bench: Bench) -> None:
    expected = "FAILED_PRECONDITION: it was answered before the kill, so its token is used"
    for ask, fact in (await _story(bench)).stale:
        if isinstance(fact, pb.TransitionAck):
            raise BrokenError(f"{ask} again after a restart", expected, f"an ack with {told(fact.machine)}")
        if not isinstance(fact, RefusedError):
            raise fact
        if fact.code is not grpc.StatusCode.FAILED_PRECONDITION:
            raise RefusedError(f"{ask} again after a restart", fact.code, fact.details, expected)


@AREA.check(
    "B1002", "operation ids survive kill -9: a repeat still gets the first one", Profile.DURABLE, phase=Phase.ALONE
)
async def _operations_survive(bench: Bench) -> None:
    story = await _story(bench)
    ack = _answer(str(story.repeat[0]), story.repeat[1])
    if ack.operation_id != story.operation:
        expected = f"operation {story.operation!r}, as before it"
        raise BrokenError(f"{story.repeat[0]} after a restart", expected, f"operation {ack.operation_id!r}")


@AREA.check("B1003", "bindings and metadata survive kill -9", Profile.DURABLE, phase=Phase.ALONE)
async def _bindings_survive(bench: Bench) -> None:
    story = await _story(bench)
    record = _answer(f"Get of machine {story.bound.id!r}", story.bound_after)
    if (record.state, record.cluster, record.host) != (story.bound.state, story.bound.cluster, story.bound.host):
        raise BrokenError(f"Get of machine {record.id!r} after a restart", told(story.bound), told(record))
    judge("a restart", record, story.bound.shard_metadata, f"Get of machine {record.id!r}")


@AREA.check(
    "B1004",
    "the inventory survives kill -9, and an old cursor still leads to the present",
    Profile.DURABLE,
    phase=Phase.ALONE,
)
async def _inventory_survives(bench: Bench) -> None:
    story = await _story(bench)
    after = _answer("List", story.after)
    same_ids("List after a restart", story.before, after)
    moved = {ask.machine_id for ask, _ in story.interrupted}
    for machine, record in story.before.items():
        now = after[machine]
        if machine not in moved and (now.state, now.host) != (record.state, record.host):
            raise BrokenError("List after a restart", told(record), told(now))
    final = _answer("List", story.final)
    if story.caught_up is not None:
        for machine in sorted({story.bound.id, *moved}):
            record = there("List after a restart", final, machine)
            if story.caught_up.get(machine) != record:
                done = f"the delta from a cursor of before the restart, for machine {machine!r}"
                raise BrokenError(done, told(record), "an older record, or none")


@AREA.check("B1005", "operation ids given after a restart are new", Profile.DURABLE, phase=Phase.ALONE)
async def _fresh_ids(bench: Bench) -> None:
    story = await _story(bench)
    for ask, fact in story.fresh:
        operation = _answer(str(ask), fact).operation_id
        if not operation or operation in story.operations:
            expected = "an operation_id never given before the restart"
            raise BrokenError(f"{ask} after a restart", expected, f"operation {operation!r}")


@AREA.check("B1006", "a transition that kill -9 interrupts ends Failed or stable", Profile.DURABLE, phase=Phase.ALONE)
async def _interrupted_ends(bench: Bench) -> None:
    for ask, fact in (await _story(bench)).interrupted:
        record = _answer(f"{ask}, interrupted:", fact)
        for fault in binding_faults(record):
            raise BrokenError(f"{ask}, interrupted by kill -9", "a stable or Failed machine, consistent", fault)


@AREA.check(
    "B1007", "new shards are still accepted after a restart", Profile.DURABLE, phase=Phase.ALONE, own_shards=True
)
async def _new_shards(bench: Bench) -> None:
    ask, fact = (await _story(bench)).new_shard
    _answer(f"{ask}, the first call of a new shard,", fact)
