"""B5xx: shard_metadata, which a provider stores and never interprets."""

from collections.abc import Mapping

import grpc

from bigfleet.conformance.errors import BrokenError, RefusedError
from bigfleet.conformance.suite import Area
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.handle import Handle
from bigfleet.conformance.workbench.records import CONFIGURED, IDLE, state_of, told
from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(5, "metadata")

_KEYS = 55
_SHOWN_KEY_CHARACTERS = 80
# Keys and values go through the odd texts at different paces, so that many pairs of texts come up.
_STRIDE = 7
_ODD_TEXTS = (
    "", "\0", "\0\0tail", "\x01\x02\x1f\x7f", "\r\n\t", "Ünïcødé", "日本語", "🜁🜂", "\u202e\u200b", "e\u0301",
    "é", " leading and trailing ", '"quoted\\"', "{{ template }}", "${SHELL}", "a=b,c=d", "null", "0", "\ufeffbom",
)  # fmt: skip


def awkward() -> dict[str, str]:
    """As many keys as a shard may send, with characters that a careless store would damage."""
    keys = [f"k{number}{_ODD_TEXTS[number % len(_ODD_TEXTS)]}" for number in range(_KEYS)]
    return {key: _ODD_TEXTS[(number * _STRIDE) % len(_ODD_TEXTS)] for number, key in enumerate(keys)}


def difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    """What is missing, extra or changed, for messages."""
    missing = sorted(set(expected) - set(found), key=len)
    extra = sorted(set(found) - set(expected), key=len)
    changed = sorted((key for key in expected if key in found and expected[key] != found[key]), key=len)
    parts = [f"{len(found)} keys"]
    for what, keys in (("missing", missing), ("extra", extra), ("changed", changed)):
        if keys:
            parts.append(f"{len(keys)} {what}, such as {keys[0][:_SHOWN_KEY_CHARACTERS]!r}")
    return ", ".join(parts)


def judge(done: str, record: pb.Machine, expected: Mapping[str, str], where: str) -> None:
    """Judge that the record has exactly this metadata."""
    if dict(record.shard_metadata) != dict(expected):
        wanted = f"{len(expected)} keys of metadata byte for byte in {where}"
        raise BrokenError(done, wanted, difference(expected, record.shard_metadata))


async def echoed(machine: Handle, cluster: str, metadata: Mapping[str, str], case: str = "") -> None:
    """Configure with this metadata, and judge that the ack, every Get and List show it."""
    ask = machine.asking(Call.CONFIGURE, cluster=cluster, metadata=metadata)
    journey = await machine.watched(await machine.target.ask(ask))
    done = f"{ask}{case}"
    judge(done, journey.ack.machine, metadata, "the ack")
    for record in journey.seen:
        judge(done, record, metadata, f"Get at state {record.state}")
    if state_of(journey.end) is not CONFIGURED:
        raise BrokenError(done, "Configured", told(journey.end))
    judge(done, await machine.listed(), metadata, "List")


@AREA.check("B501", "55 keys with NUL, control bytes, unicode and empty values are echoed byte for byte")
async def _byte_for_byte(bench: Bench) -> None:
    async with bench.idle() as machine:
        await echoed(machine, bench.cluster(), awkward())
        repeat = await machine.get()
        judge(f"Get of machine {machine.id!r} again", repeat, awkward(), "a later Get")


@AREA.check("B502", "metadata is cleared on Drain and leaves no residue on the next Configure")
async def _cleared_on_drain(bench: Bench) -> None:
    async with bench.idle() as machine:
        await echoed(machine, bench.cluster(), {"old": "1", "shared": "old"})
        drained = await machine.drive(Call.DRAIN)
        for record in (drained.ack.machine, *drained.seen, await machine.listed()):
            if state_of(record) is IDLE:
                judge(f"Drain of machine {machine.id!r}", record, {}, "Idle")
        await echoed(machine, bench.cluster(), {"new": "2", "shared": "new"})
        await machine.drive(Call.DRAIN)
        await echoed(machine, bench.cluster(), {})


@AREA.check("B503", "metadata is never truncated, in keys, in values or in number")
async def _never_truncated(bench: Bench) -> None:
    async with bench.idle() as machine:
        for metadata in (
            {"k" * 300: "long key", "v": "v" * 5_000},
            {"v": "ü" * 70_000},
            {f"key-{number}": "x" * 20 for number in range(600)},
        ):
            try:
                await echoed(machine, bench.cluster(), metadata)
            except RefusedError as refused:
                # A provider may refuse metadata that is too large for it. It must not truncate it.
                if refused.code is not grpc.StatusCode.INVALID_ARGUMENT:
                    expected = "it stored whole or INVALID_ARGUMENT"
                    raise RefusedError(refused.done, refused.code, refused.details, expected) from None
            else:
                await machine.drive(Call.DRAIN)


@AREA.check("B504", "cluster and metadata are visible while Configuring")
async def _visible_while_configuring(bench: Bench) -> None:
    async with bench.idle() as machine:
        cluster, metadata = bench.cluster(), {"stamp": "visible"}
        ask = machine.asking(Call.CONFIGURE, cluster=cluster, metadata=metadata)
        ack = await machine.target.ask(ask)
        listed = await machine.listed()
        journey = await machine.watched(ack)
        for where, record in (("the ack", ack.machine), ("List", listed), *(("Get", seen) for seen in journey.seen)):
            judge(str(ask), record, metadata, where)
            if record.cluster != cluster:
                raise BrokenError(str(ask), f"cluster {cluster!r} in {where}", told(record))


@AREA.check("B505", "metadata is not aliased: a change on one machine does not change another's")
async def _no_aliasing(bench: Bench) -> None:
    async with bench.several(2, 2) as (one, two):
        same = {"shared": "value", "more": "of it"}
        await echoed(one, bench.cluster(), same)
        await echoed(two, bench.cluster(), same)
        await one.drive(Call.DRAIN)
        judge(f"Drain of machine {one.id!r}", await two.get(), same, f"Get of machine {two.id!r}")
        await echoed(one, bench.cluster(), {"shared": "another"})
        done = f"Configure of machine {one.id!r} anew"
        judge(done, await two.get(), same, f"Get of machine {two.id!r}")
        judge(done, await two.listed(), same, f"List of machine {two.id!r}")
