"""B3xx: fencing tokens. A provider keeps one mark for each pair of shard and machine."""

import random
from collections.abc import Iterator

import grpc

from bigfleet.conformance.checks.metadata import judge
from bigfleet.conformance.errors import BrokenError, RefusedError
from bigfleet.conformance.suite import Area
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.records import CONFIGURED, state_of, told
from bigfleet.conformance.workbench.requests import INT64_MAX, NO_TOKEN, Ask, Token
from bigfleet.conformance.workbench.target import Target
from bigfleet.conformance.workbench.tasks import together
from bigfleet.model.machine import Call

AREA = Area(3, "fencing")

_FENCED = grpc.StatusCode.FAILED_PRECONDITION
_NOT_FOUND = grpc.StatusCode.NOT_FOUND

_CASES = 40
# So many shards on one machine and so many unknown ids: more marks than a small cache would hold.
_MANY_MARKS = 150


class Oracle:
    """The marks that a correct provider has."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], tuple[int, int]] = {}

    def passes(self, ask: Ask) -> bool:
        """Whether the token passes. A token that passes becomes the mark."""
        if ask.token == NO_TOKEN:
            return True
        key = (ask.token.shard, ask.machine_id)
        mark = self._marks.get(key)
        if mark is not None and ask.token.order <= mark:
            return False
        self._marks[key] = ask.token.order
        return True

    def mark(self, ask: Ask) -> str:
        """The mark against which a request is judged, for messages."""
        return f"the mark is {self._marks.get((ask.token.shard, ask.machine_id), 'not set')}"


async def agrees(target: Target, oracle: Oracle, ask: Ask, case: str) -> None:
    """Send a call for a machine that does not exist. It must be NOT_FOUND if its token passes, and fenced otherwise."""
    mark = oracle.mark(ask)
    code = _NOT_FOUND if oracle.passes(ask) else _FENCED
    await target.refused(ask, f"in {case} {mark}", code)


@AREA.check("B301", "fencing comes before not-found")
async def _before_not_found(bench: Bench) -> None:
    shard, machine_id = bench.shard(), bench.stranger()
    first, older = shard.next(), shard.next()
    newer = shard.next()
    await bench.target.refused(Ask(Call.CREATE, machine_id, newer), "no such machine exists", _NOT_FOUND)
    for call in (Call.CREATE, Call.CONFIGURE, Call.DRAIN):
        for token in (newer, older, first):
            ask = Ask(call, machine_id, token, cluster=bench.cluster())
            await bench.target.refused(ask, f"{newer} came before, for an id that does not exist", _FENCED)


@AREA.check(
    "B302",
    "marks are kept per (shard, machine): a high token of one shard, or on one machine, fences no other",
    own_shards=True,
)
async def _marks_are_isolated(bench: Bench) -> None:
    async with bench.several(1, 2) as machines:
        loud, quiet = bench.shard(), bench.shard()
        here, there = machines[0].id, machines[-1].id if len(machines) > 1 else bench.stranger()
        high = Token(loud.id, loud.epoch + 9, 900)
        await machines[0].drive(Call.CONFIGURE, high, cluster=bench.cluster())
        for token, machine_id, whose in (
            (Token(quiet.id, 1, 1), here, "another shard"),
            (Token(loud.id, 1, 1), there, "another machine"),
        ):
            ask = Ask(Call.CREATE, machine_id, token)
            try:
                await bench.target.ask(ask)
            except RefusedError as refused:
                if refused.code is _FENCED:
                    expected = f"no fencing: {high} was for {whose}"
                    raise RefusedError(refused.done, refused.code, refused.details, expected) from None
        await _many_marks(bench, here)


async def _many_marks(bench: Bench, bound: str) -> None:
    """Judge that no mark is forgotten while many shards and many unknown ids set marks."""
    shard = bench.shard().id
    asks = [Ask(Call.CREATE, bound, Token(bench.shard().id, 1, 1)) for _ in range(_MANY_MARKS)]
    asks += [Ask(Call.CREATE, bench.stranger(), Token(shard, 1, 1)) for _ in range(_MANY_MARKS)]

    async def first(ask: Ask) -> None:
        refusal = await bench.target.refused(ask, "its machine is bound or does not exist")
        if refusal.code is _FENCED:
            raise RefusedError(refusal.done, refusal.code, refusal.details, "no fencing: the pair has no mark yet")

    async def again(ask: Ask) -> None:
        await bench.target.refused(ask, f"it passed before, and {len(asks) - 1} marks of other pairs with it", _FENCED)

    await together(map(first, asks))
    await together(map(again, asks))


# Pairs of epoch and sequence: equal, older and newer in each part. The last ones are in another order as text.
_TOKEN_CASES = (
    (5, 5), (5, 5), (5, 4), (5, 6), (4, 900), (6, 0), (6, 0), (5, 900), (6, 1), (7, 0), (6, INT64_MAX), (7, 9), (7, 10),
    (7, 9), (9, 3), (10, 0), (9, 900), (10, 1),
)  # fmt: skip


@AREA.check("B303", "tokens are ordered by epoch, then sequence, on a real machine", own_shards=True)
async def _ordered_on_a_machine(bench: Bench) -> None:
    async with bench.idle() as machine:
        oracle, shard = Oracle(), bench.shard()
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        for case, (epoch, sequence) in enumerate(_TOKEN_CASES):
            # Create is not legal on a bound machine, so a token that passes changes nothing.
            ask = machine.asking(Call.CREATE, Token(shard.id, epoch, sequence))
            mark, passes = oracle.mark(ask), oracle.passes(ask)
            refusal = await bench.target.refused(ask, f"in case {case} the machine is Configured and {mark}")
            if passes is (refusal.code is _FENCED):
                expected = f"{'no fencing' if passes else 'FAILED_PRECONDITION'} in case {case}, where {mark}"
                raise RefusedError(refusal.done, refusal.code, refusal.details, expected)


@AREA.check("B305", "reads are never fenced and move no mark")
async def _reads_never_fence(bench: Bench) -> None:
    async with bench.idle() as machine:
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        before = await machine.get()
        if await machine.listed() != before:
            raise BrokenError(f"Get and List of machine {machine.id!r}", "the same record", "two different ones")
        await machine.drive(Call.DRAIN)


async def _stale_repeat(bench: Bench, *, at_rest: bool) -> None:
    async with bench.idle() as machine:
        cluster, metadata = bench.cluster(), {"stamp": "first"}
        stale, token = machine.shard.next(), machine.shard.next()
        ack = await machine.ask(Call.CONFIGURE, token, cluster=cluster, metadata=metadata)
        before = (await machine.watched(ack)).end if at_rest else None
        # The repeats carry other metadata, as a shard with an old state would send. None of it may be taken over.
        for repeated, wanted in ((token, cluster), (stale, cluster), (stale, bench.cluster())):
            ask = machine.asking(Call.CONFIGURE, repeated, cluster=wanted, metadata={"stamp": "stale", "more": "1"})
            await bench.target.refused(
                ask, f"{token} came before, though the machine is bound or being configured", _FENCED
            )
        end = (await machine.watched(ack)).end
        if state_of(end) is not CONFIGURED or end.cluster != cluster or (before is not None and end != before):
            raise BrokenError("a fenced repeat of Configure", "no effect on the first one", told(end))
        judge("a fenced repeat of Configure", end, metadata, "Get, as of the first one")


@AREA.check("B306", "fencing comes before the idempotency short-cut at the target state")
async def _before_shortcut_at_rest(bench: Bench) -> None:
    await _stale_repeat(bench, at_rest=True)


@AREA.check("B307", "fencing comes before the idempotency short-cut while the transition runs")
async def _before_shortcut_in_flight(bench: Bench) -> None:
    await _stale_repeat(bench, at_rest=False)


@AREA.check("B308", "an empty shard_id with epoch 0 and sequence 0 is not fenced", own_shards=True)
async def _no_token(bench: Bench) -> None:
    async with bench.idle() as machine:
        await machine.drive(Call.CONFIGURE, Token(bench.shard().id, INT64_MAX, 1), cluster=bench.cluster())
        await machine.drive(Call.DRAIN, NO_TOKEN)
        await machine.drive(Call.CONFIGURE, NO_TOKEN, cluster=bench.cluster())


@AREA.check("B309", "all RPCs share one mark for good: a token used on one is stale on every other, also after Delete")
async def _in_order_across_calls(bench: Bench) -> None:
    async with bench.idle() as machine:
        calls = [call for call in Call if call is not Call.DELETE or bench.facts.deletable]
        first: Token | None = None
        for used in bench.facts.round_trip:
            token = machine.shard.next()
            await machine.drive(used, token, cluster=bench.cluster())
            first = first or token
            for call in calls:
                for stale in dict.fromkeys((token, first)):
                    ask = machine.asking(call, stale, cluster=bench.cluster())
                    await bench.target.refused(ask, f"{token} was used on {used.value}", _FENCED)


@AREA.check("B310", "an old epoch is refused after a new one, and a new epoch resets the sequence", own_shards=True)
async def _old_epoch(bench: Bench) -> None:
    async with bench.idle() as machine:
        shard = bench.shard().id
        await machine.drive(Call.CONFIGURE, Token(shard, 10, 1000), cluster=bench.cluster())
        newest = 10
        # Each step uses a new epoch. After none of them, not even Delete, may an old epoch pass.
        for call in bench.facts.round_trip[1:]:
            newest += 1
            await machine.drive(call, Token(shard, newest, 1))
            for sequence in (1, 1001, INT64_MAX):
                ask = machine.asking(Call.CONFIGURE, Token(shard, newest - 1, sequence), cluster=bench.cluster())
                await bench.target.refused(ask, f"epoch {newest} came before", _FENCED)
        await machine.drive(Call.CONFIGURE, Token(shard, newest, 2), cluster=bench.cluster())


@AREA.check("B311", "a passing token whose operation fails still moves the mark")
async def _failed_operation_moves_mark(bench: Bench) -> None:
    async with bench.idle() as machine:
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        lower, passing = machine.shard.next(), machine.shard.next()
        illegal = machine.asking(Call.CREATE, passing)
        await bench.target.refused(illegal, "Create is not legal on a bound machine")
        for token in (lower, passing):
            ask = machine.asking(Call.DRAIN, token)
            await bench.target.refused(ask, f"{passing} passed on a call that then failed", _FENCED)
        await machine.drive(Call.DRAIN)


def random_tokens(rng: random.Random, shards: list[str], count: int) -> Iterator[Token]:
    """Random tokens that are close to each other, so that many are equal, older or of the next epoch."""
    edges = (0, INT64_MAX - 1, INT64_MAX)
    for _ in range(count):
        epoch = rng.choice(edges) if rng.random() < 0.04 else rng.choice((1, 2, 9, 10))
        sequence = rng.choice(edges) if rng.random() < 0.1 else rng.randint(0, 12)
        yield Token(rng.choice(shards), epoch, sequence)


@AREA.check("B312", "random tokens are judged as an oracle judges them, machine by machine", own_shards=True)
async def _random_order(bench: Bench) -> None:
    oracle, machines = Oracle(), [bench.stranger() for _ in range(2)]
    for case, token in enumerate(random_tokens(bench.rng, [bench.shard().id], _CASES)):
        ask = Ask(Call.CREATE, bench.rng.choice(machines), token)
        await agrees(bench.target, oracle, ask, f"case {case}")
