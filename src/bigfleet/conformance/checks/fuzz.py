"""B12xx: laws that hold for random cases. The seed and the number of a case repeat it."""

import random
from dataclasses import replace

import grpc

from bigfleet.conformance.checks.fencing import Oracle, agrees, random_tokens
from bigfleet.conformance.checks.metadata import echoed, judge
from bigfleet.conformance.errors import BrokenError, RefusedError
from bigfleet.conformance.suite import Area, Phase
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.handle import END, Handle
from bigfleet.conformance.workbench.records import CONFIGURED, FAILED, has_host, state_of, told
from bigfleet.conformance.workbench.requests import NO_TOKEN, Ask, Token
from bigfleet.model.machine import Call, can

AREA = Area(12, "property and fuzz")

_FENCED = grpc.StatusCode.FAILED_PRECONDITION
_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_NOT_FOUND = grpc.StatusCode.NOT_FOUND

_TOKEN_CASES = 50
_METADATA_CASES = 5
_WALK_STEPS = 24
_BAD_CASES = 40
# UTF-8 cannot encode these code points.
_SURROGATES = range(0xD800, 0xE000)
_REPLACEMENT = 0xFFFD


@AREA.check(
    "B1201",
    "any sequence of tokens, over shards, machines and calls, is judged as an oracle judges it",
    own_shards=True,
)
async def _token_order(bench: Bench) -> None:
    oracle = Oracle()
    shards, machines = [bench.shard().id for _ in range(2)], [bench.stranger() for _ in range(2)]
    calls = [call for call in Call if call is not Call.DELETE or bench.facts.deletable]
    for case, token in enumerate(random_tokens(bench.rng, shards, _TOKEN_CASES)):
        drawn = NO_TOKEN if bench.rng.random() < 0.05 else token
        ask = Ask(bench.rng.choice(calls), bench.rng.choice(machines), drawn, cluster=bench.cluster())
        await agrees(bench.target, oracle, ask, f"case {case}")


def _random_text(rng: random.Random, longest: int) -> str:
    """Random text of any code points that UTF-8 can encode."""
    points = []
    for _ in range(rng.randint(0, longest)):
        point = rng.choice((rng.randrange(0x20), rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x110000)))
        points.append(point if point not in _SURROGATES else _REPLACEMENT)
    return "".join(map(chr, points))


@AREA.check("B1202", "any metadata makes the round trip byte for byte")
async def _metadata_round_trip(bench: Bench) -> None:
    async with bench.idle() as machine:
        for case in range(_METADATA_CASES):
            metadata = {
                _random_text(bench.rng, 24): _random_text(bench.rng, 60) for _ in range(bench.rng.randint(1, 40))
            }
            await echoed(machine, bench.cluster(), metadata, f", case {case}")
            await machine.drive(Call.DRAIN)


@AREA.check("B1203", "random walks of legal and illegal calls lead where the life cycle says")
async def _random_walks(bench: Bench) -> None:
    async with bench.idle() as machine:
        calls = [call for call in Call if call is not Call.DELETE or bench.facts.deletable]
        record = await machine.get()
        last: tuple[Call, str, str] | None = None
        for step in range(_WALK_STEPS):
            call, cluster = bench.rng.choice(calls), bench.cluster()
            if last is not None and last[0] is call and bench.rng.random() < 0.5:
                cluster = last[1]
            ask = machine.asking(call, cluster=cluster, metadata={"step": str(step)})
            done = f"step {step}, {ask} on {told(record)}"
            state = state_of(record)
            repeats = last is not None and last[0] is call and (call is not Call.CONFIGURE or last[1] == cluster)
            if state is not None and can(call, state, has_host(record)):
                ack = await bench.target.ask(ask)
                # In half of the cases the call is repeated before its transition has ended.
                if bench.rng.random() < 0.5:
                    await _same_operation(machine, ask, ack.operation_id, done)
                record = (await machine.watched(ack)).end
                bound_to, stamp = (cluster, ask.metadata) if call is Call.CONFIGURE else ("", {})
                if state_of(record) is not END[call] or record.cluster != bound_to:
                    raise BrokenError(done, f"{END[call].label} with cluster {bound_to!r}", told(record))
                judge(done, record, stamp, "Get, as of the first call")
                last = (call, cluster, ack.operation_id)
                continue
            if repeats and last is not None and state is END[call]:
                await _same_operation(machine, ask, last[2], done)
            else:
                await _without_effect(machine, ask, lenient=state is END[call] and call is not Call.CONFIGURE)
            if (after := await machine.get()) != record:
                raise BrokenError(done, "nothing to change", told(after))


async def _same_operation(machine: Handle, ask: Ask, operation: str, done: str) -> None:
    # The repeat carries other metadata, which must not be taken over.
    ack = await machine.target.ask(replace(ask, token=machine.shard.next(), metadata={"step": "repeated"}))
    if ack.operation_id != operation:
        raise BrokenError(f"{done}, repeated", f"operation {operation!r} again", f"operation {ack.operation_id!r}")


async def _without_effect(machine: Handle, ask: Ask, *, lenient: bool) -> None:
    try:
        ack = await machine.target.ask(ask)
    except RefusedError as refused:
        if refused.code is _FENCED:
            raise RefusedError(
                refused.done, refused.code, refused.details, "any code but FAILED_PRECONDITION"
            ) from None
        return
    if not lenient:
        raise BrokenError(str(ask), "a refusal, as it is not legal", f"an ack with {told(ack.machine)}")


@AREA.check("B1204", "FAILED_PRECONDITION means fencing and nothing else, in the whole run", phase=Phase.LAST)
async def _only_for_fencing(bench: Bench) -> None:
    async with bench.idle() as machine:
        await _ask_all_illegal(bench, machine)
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        await _ask_all_illegal(bench, machine)
    if unfounded := bench.target.witness.unfounded_fences:
        raise BrokenError("the whole run", "FAILED_PRECONDITION for stale tokens only", "; ".join(unfounded))


async def _ask_all_illegal(bench: Bench, machine: Handle) -> None:
    record = await machine.get()
    state = state_of(record) or FAILED
    for call in Call:
        if not can(call, state, has_host(record)):
            ask = machine.asking(call, cluster=bench.cluster())
            await _without_effect(machine, ask, lenient=state is END[call] and call is not Call.CONFIGURE)


@AREA.check("B1205", "random bad requests get the code that the contract names, and change nothing")
async def _code_discipline(bench: Bench) -> None:
    async with bench.idle() as machine:
        before = (await machine.drive(Call.CONFIGURE, cluster=bench.cluster())).end
        for case in range(_BAD_CASES):
            ask, codes, why = _bad_request(bench, machine)
            await bench.target.refused(ask, f"in case {case} {why}", *codes)
        after = await machine.get()
        if after != before or state_of(after) is not CONFIGURED:
            raise BrokenError(f"{_BAD_CASES} bad requests", f"nothing to change from {told(before)}", told(after))


def _bad_request(bench: Bench, machine: Handle) -> tuple[Ask, list[grpc.StatusCode], str]:
    """A request with one to three defects. The code of any of them is right: the contract orders only fencing."""
    rng = bench.rng
    calls = [call for call in Call if call is not Call.DELETE or bench.facts.deletable]
    ask = machine.asking(rng.choice(calls), cluster=bench.cluster(), metadata={"bad": _random_text(rng, 8)})
    codes, reasons = [], []
    defects = rng.sample(["unknown", "empty", "token", "grace"], rng.randint(1, 3))
    if "empty" in defects:
        ask = replace(ask, machine_id="")
        codes.append(_INVALID)
        reasons.append("the id is empty")
    elif "unknown" in defects:
        ask = replace(ask, machine_id=bench.stranger())
        codes.append(_NOT_FOUND)
        reasons.append("the machine is unknown")
    if "token" in defects:
        below = -rng.randint(1, 2**62)
        token = (below, ask.token.sequence) if rng.random() < 0.5 else (ask.token.epoch, below)
        ask = replace(ask, token=Token(ask.token.shard, *token))
        codes.append(_INVALID)
        reasons.append("the token is negative")
    if "grace" in defects or not codes:
        ask = replace(ask, call=Call.DRAIN, grace=-rng.randint(1, 2**62))
        codes.append(_INVALID)
        reasons.append("the grace is negative")
    return ask, codes, " and ".join(reasons)
