"""B2xx: which calls are refused, with which code, and what a repeated call does."""

import grpc

from bigfleet.conformance.checks.metadata import judge
from bigfleet.conformance.errors import BrokenError, RefusedError
from bigfleet.conformance.suite import Area
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.handle import Handle
from bigfleet.conformance.workbench.records import CONFIGURED, state_of, told
from bigfleet.conformance.workbench.requests import INT64_MAX, Token
from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(2, "matrix and errors")

_FENCED = grpc.StatusCode.FAILED_PRECONDITION
_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_NOT_FOUND = grpc.StatusCode.NOT_FOUND
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED

_OVERSIZED_BYTES = 1 << 20


async def _refused_without_effect(machine: Handle, call: Call, bench: Bench, *codes: grpc.StatusCode) -> None:
    before = await machine.get()
    ask = machine.asking(call, cluster=bench.cluster(), metadata={"stamp": "refused"})
    refusal = await machine.target.refused(ask, f"{call.value} is not legal from {told(before)}", *codes)
    if refusal.code is _FENCED:
        expected = "any code but FAILED_PRECONDITION, which means fencing"
        raise RefusedError(refusal.done, refusal.code, refusal.details, expected)
    await _unchanged(machine, before, str(ask))


async def _refused_or_nothing(machine: Handle, call: Call) -> None:
    """Judge that the call changes nothing. It asks for what is so already, so the provider may take it or refuse it."""
    before = await machine.get()
    ask = machine.asking(call)
    try:
        await machine.target.ask(ask)
    except RefusedError as refusal:
        if refusal.code is _FENCED:
            expected = "an ack or any code but FAILED_PRECONDITION, which means fencing"
            raise RefusedError(refusal.done, refusal.code, refusal.details, expected) from None
    await _unchanged(machine, before, str(ask))


async def _unchanged(machine: Handle, before: pb.Machine, done: str) -> None:
    after = await machine.get()
    if after != before:
        raise BrokenError(done, f"nothing to change from {told(before)}", told(after))


@AREA.check("B201", "Create from a wrong stable state is refused, not with FAILED_PRECONDITION, and changes nothing")
async def _create_from_wrong_states(bench: Bench) -> None:
    async with bench.idle() as machine:
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        await _refused_without_effect(machine, Call.CREATE, bench)
        await machine.drive(Call.DRAIN)
        await _refused_or_nothing(machine, Call.CREATE)


@AREA.check("B202", "Configure from a wrong stable state is refused, not with FAILED_PRECONDITION, and changes nothing")
async def _configure_from_wrong_states(bench: Bench) -> None:
    async with bench.speculative() as machine:
        await _refused_without_effect(machine, Call.CONFIGURE, bench)


@AREA.check("B203", "Drain from a wrong stable state is refused, not with FAILED_PRECONDITION, and changes nothing")
async def _drain_from_wrong_states(bench: Bench) -> None:
    if bench.facts.deletable:
        async with bench.speculative() as machine:
            await _refused_without_effect(machine, Call.DRAIN, bench)
            await machine.drive(Call.CREATE)
            await _refused_or_nothing(machine, Call.DRAIN)
    else:
        async with bench.idle() as machine:
            await _refused_or_nothing(machine, Call.DRAIN)


@AREA.check("B204", "Delete from a wrong stable state is refused, not with FAILED_PRECONDITION, and changes nothing")
async def _delete_from_wrong_states(bench: Bench) -> None:
    async with bench.idle() as machine:
        if not bench.facts.deletable:
            await _refused_without_effect(machine, Call.DELETE, bench, _UNIMPLEMENTED)
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        await _refused_without_effect(machine, Call.DELETE, bench)


async def _repeat_is_nothing(machine: Handle, call: Call, cluster: str) -> None:
    """Drive the call, then repeat it with other metadata and grace. The repeat must not take them over."""
    journey = await machine.drive(call, cluster=cluster, metadata={"stamp": "first"})
    again = machine.asking(call, cluster=cluster, metadata={"stamp": "second"}, grace=2)
    ack = await machine.target.ask(again)
    if not ack.operation_id or ack.operation_id != journey.ack.operation_id:
        expected = f"operation {journey.ack.operation_id!r} again"
        raise BrokenError(str(again), expected, f"operation {ack.operation_id!r}")
    if ack.machine != journey.end:
        raise BrokenError(str(again), f"an ack that shows {told(journey.end)}, unchanged", told(ack.machine))
    await _unchanged(machine, journey.end, str(again))


@AREA.check("B205", "a repeat of Create or Configure at its target is a no-op with the same operation_id")
async def _forward_repeats(bench: Bench) -> None:
    if bench.facts.deletable:
        async with bench.speculative() as machine:
            await _repeat_is_nothing(machine, Call.CREATE, "")
            await _repeat_is_nothing(machine, Call.CONFIGURE, bench.cluster())
    else:
        async with bench.idle() as machine:
            await _repeat_is_nothing(machine, Call.CONFIGURE, bench.cluster())


@AREA.check("B206", "a repeat of Drain or Delete at its target is a no-op with the same operation_id")
async def _backward_repeats(bench: Bench) -> None:
    async with bench.idle() as machine:
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        await _repeat_is_nothing(machine, Call.DRAIN, "")
        if bench.facts.deletable:
            await _repeat_is_nothing(machine, Call.DELETE, "")


@AREA.check("B207", "a mutating call for an unknown id is NOT_FOUND")
async def _unknown_id(bench: Bench) -> None:
    for call in Call:
        codes = (_NOT_FOUND,) if call is not Call.DELETE or bench.facts.deletable else (_NOT_FOUND, _UNIMPLEMENTED)
        machine = Handle(bench.target, pb.Machine(id=bench.stranger()), bench.shard(), b"")
        ask = machine.asking(call, cluster=bench.cluster())
        await bench.target.refused(ask, "no such machine exists", *codes)


@AREA.check("B208", "an empty id is INVALID_ARGUMENT")
async def _empty_id(bench: Bench) -> None:
    for call in Call:
        codes = (_INVALID,) if call is not Call.DELETE or bench.facts.deletable else (_INVALID, _UNIMPLEMENTED)
        machine = Handle(bench.target, pb.Machine(id=""), bench.shard(), b"")
        ask = machine.asking(call, cluster=bench.cluster())
        await bench.target.refused(ask, "the id is empty", *codes)
    await _get_refused(bench, "", _INVALID)


async def _get_refused(bench: Bench, machine_id: str, code: grpc.StatusCode) -> None:
    try:
        record = await bench.target.get(machine_id)
    except RefusedError as refusal:
        if refusal.code is not code:
            raise RefusedError(refusal.done, refusal.code, refusal.details, code.name) from None
        return
    raise BrokenError(f"Get of machine {machine_id!r}", code.name, told(record))


async def _whole_or_refused(bench: Bench, metadata: dict[str, str], what: str, padding: bytes = b"") -> None:
    async with bench.idle() as machine:
        before = await machine.get()
        cluster = bench.cluster()
        ask = machine.asking(Call.CONFIGURE, cluster=cluster, metadata=metadata, blob=machine.blob + padding)
        done = f"Configure of machine {machine.id!r} with {what}"
        try:
            journey = await machine.watched(await machine.target.ask(ask))
        except RefusedError as refusal:
            if refusal.code is not _INVALID:
                expected = "it stored whole or INVALID_ARGUMENT"
                raise RefusedError(done, refusal.code, refusal.details, expected) from None
            await _unchanged(machine, before, done)
            return
        if state_of(journey.end) is CONFIGURED and dict(journey.end.shard_metadata) != metadata:
            sizes = sum(len(key) + len(value) for key, value in journey.end.shard_metadata.items())
            raise BrokenError(done, "it stored whole or INVALID_ARGUMENT", f"{sizes} characters of it at Configured")
        if state_of(journey.end) is not CONFIGURED:
            raise BrokenError(done, "Configured, or INVALID_ARGUMENT at once", told(journey.end))


@AREA.check("B209", "oversized metadata is stored whole or INVALID_ARGUMENT")
async def _oversized_metadata(bench: Bench) -> None:
    what = f"{_OVERSIZED_BYTES} bytes of metadata"
    await _whole_or_refused(bench, {"large": "m" * _OVERSIZED_BYTES}, what)


@AREA.check("B213", "an oversized bootstrap blob is taken whole or INVALID_ARGUMENT")
async def _oversized_blob(bench: Bench) -> None:
    # The blob that makes nodes join, followed by a long comment: a blob that is taken must still work.
    padding = b"\n# " + b"b" * _OVERSIZED_BYTES
    await _whole_or_refused(bench, {"stamp": "1"}, f"a blob of over {_OVERSIZED_BYTES} bytes", padding)


@AREA.check("B210", "a negative grace is INVALID_ARGUMENT")
async def _negative_grace(bench: Bench) -> None:
    async with bench.idle() as machine:
        bound = (await machine.drive(Call.CONFIGURE, cluster=bench.cluster())).end
        ask = machine.asking(Call.DRAIN, grace=-1)
        await bench.target.refused(ask, "the grace is negative", _INVALID)
        await _unchanged(machine, bound, str(ask))


@AREA.check("B211", "a negative epoch or sequence is INVALID_ARGUMENT")
async def _negative_token(bench: Bench) -> None:
    async with bench.idle() as machine:
        before = await machine.get()
        for epoch, sequence in ((-1, 5), (5, -1), (-INT64_MAX - 1, -INT64_MAX - 1)):
            token = Token(machine.shard.id, epoch, sequence)
            ask = machine.asking(Call.CONFIGURE, token, cluster=bench.cluster())
            await bench.target.refused(ask, "its token is negative", _INVALID)
            await _unchanged(machine, before, str(ask))


@AREA.check("B212", "a token of the largest int64 is accepted", own_shards=True)
async def _largest_token(bench: Bench) -> None:
    async with bench.idle() as machine:
        token = Token(bench.shard().id, INT64_MAX, INT64_MAX)
        await machine.drive(Call.CONFIGURE, token, cluster=bench.cluster())
        lower = machine.asking(Call.DRAIN, Token(token.shard, INT64_MAX, INT64_MAX - 1))
        await bench.target.refused(lower, f"{token} came before", _FENCED)


@AREA.check("B214", "a new transition has a new operation_id")
async def _new_operation_ids(bench: Bench) -> None:
    async with bench.several(1, 2) as machines:
        given: dict[str, str] = {}
        for machine in machines:
            for call in bench.facts.round_trip * 2:
                ask = machine.asking(call, cluster=bench.cluster())
                operation = (await machine.watched(await bench.target.ask(ask))).ack.operation_id
                if not operation or operation in given:
                    came = f"operation {operation!r}, given before to {given[operation]}" if operation else "none"
                    raise BrokenError(str(ask), "an operation_id never given before", came)
                given[operation] = str(ask)


@AREA.check("B215", "Get of an unknown id is NOT_FOUND")
async def _get_unknown(bench: Bench) -> None:
    await _get_refused(bench, bench.stranger(), _NOT_FOUND)


@AREA.check("B216", "Configure for another cluster is no repeat: it is refused and changes nothing")
async def _configure_for_another(bench: Bench) -> None:
    async with bench.idle() as machine:
        first, metadata = bench.cluster(), {"stamp": "first"}
        await machine.ask(Call.CONFIGURE, cluster=first, metadata=metadata)
        other = machine.asking(Call.CONFIGURE, cluster=bench.cluster(), metadata={"stamp": "second", "more": "1"})
        refusal = await bench.target.refused(other, f"the machine is being configured for {first!r}")
        if refusal.code is _FENCED:
            raise RefusedError(refusal.done, refusal.code, refusal.details, "any code but FAILED_PRECONDITION")
        end = await machine.settled()
        if end.cluster != first or state_of(end) is not CONFIGURED:
            raise BrokenError(str(other), f"the machine to end Configured for {first!r}", told(end))
        judge(str(other), end, metadata, f"Get, as of the Configure for {first!r}")
        await _refused_without_effect(machine, Call.CONFIGURE, bench)
