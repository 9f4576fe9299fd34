"""B11xx: a fleet of ten thousand machines or more."""

import asyncio
import time
from collections import Counter

from bigfleet.conformance.checks.fields import no_faults
from bigfleet.conformance.checks.listing import by_id, pages, same_ids, there, unmoved, walk
from bigfleet.conformance.errors import BrokenError, NotApplicableError
from bigfleet.conformance.suite import Area, Phase, Profile
from bigfleet.conformance.workbench.bench import LARGE_FLEET, Bench, sample
from bigfleet.conformance.workbench.handle import Handle
from bigfleet.conformance.workbench.records import JUDGES, told
from bigfleet.conformance.workbench.tasks import together
from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(11, "scale")

_PAGE = 1_000
_CHURNED = 16
_TURNS = 3
_GETS = 200
_WALKERS = 4
_MEASUREMENTS = 3
_COMPARED = 50
# Eight times the machines may take 8^1.5 times as long. A List that takes less than a moment is not judged.
_FRACTION = 8
_ALLOWED = _FRACTION**1.5
_MOMENT_SECONDS = 0.2


def _large(bench: Bench, *, cursors: bool = False) -> None:
    if bench.facts.machines < LARGE_FLEET:
        raise NotApplicableError(f"needs {LARGE_FLEET:,} machines or more; the target has {bench.facts.machines:,}")
    if cursors and not bench.facts.cursors:
        raise NotApplicableError("the provider returns no revision, which B903 counts against it at this size")


async def _everything(bench: Bench) -> dict[str, pb.Machine]:
    return by_id("List", (await bench.target.list()).machines)


async def _bind(bench: Bench, machine: Handle) -> None:
    await machine.drive(Call.CONFIGURE, cluster=bench.cluster(), metadata={"stamp": machine.id})


async def _churn(bench: Bench, machines: tuple[Handle, ...], turns: int) -> None:
    """Configure and drain all of the machines, so many times."""

    async def turn(machine: Handle) -> None:
        await _bind(bench, machine)
        await machine.drive(Call.DRAIN)

    for _ in range(turns):
        await together(turn(machine) for machine in machines)


@AREA.check("B1101", "the full list of a large fleet is valid", Profile.SCALE, phase=Phase.ALONE)
async def _valid_list(bench: Bench) -> None:
    _large(bench)
    everything = await _everything(bench)
    for behaviour, judge in JUDGES.items():
        no_faults(everything.values(), judge, f"records as {behaviour} requires")


@AREA.check("B1102", "deltas of a large fleet are exact", Profile.SCALE, phase=Phase.ALONE)
async def _exact_deltas(bench: Bench) -> None:
    _large(bench, cursors=True)
    async with bench.several(1, _CHURNED) as machines:
        start = await bench.target.list()
        await together(_bind(bench, machine) for machine in machines)
        done = f"the delta over {len(machines)} Configures"
        delta = by_id(done, (await bench.target.list(since=start.revision)).machines)
        unmoved(done, by_id("List", start.machines), delta.values())
        if missing := {machine.id for machine in machines} - set(delta):
            raise BrokenError(done, "every changed machine", f"{len(delta)} machines, without {min(missing)!r}")


@AREA.check(
    "B1103", "paging through a large fleet is complete and without duplicates", Profile.SCALE, phase=Phase.ALONE
)
async def _large_paging(bench: Bench) -> None:
    _large(bench, cursors=True)
    everything = await _everything(bench)
    _judge_walk(everything, await walk(bench.target, _PAGE, pages(len(everything), _PAGE)))


def _judge_walk(everything: dict[str, pb.Machine], records: list[pb.Machine]) -> None:
    done = f"paging by {_PAGE} through {len(everything):,} machines"
    counted = Counter(record.id for record in records)
    moved = {record.id for record in records if everything.get(record.id) != record}
    for machine, count in counted.items():
        if count > 1 and machine not in moved:
            raise BrokenError(done, "no machine twice", f"machine {machine!r} {count} times")
    same_ids(done, everything, counted)


@AREA.check("B1104", "churn neither loses nor adds a machine", Profile.SCALE, phase=Phase.ALONE)
async def _churn_keeps_machines(bench: Bench) -> None:
    _large(bench)
    async with bench.several(1, _CHURNED) as machines:
        before = await _everything(bench)
        await _churn(bench, machines, _TURNS)
        after = await _everything(bench)
        done = f"{_TURNS} rounds of Configure and Drain on {len(machines)} machines"
        same_ids(done, before, after)
        for machine in machines:
            was, now = there(done, before, machine.id), there(done, after, machine.id)
            if now != was:
                raise BrokenError(done, f"every machine as it was, {told(was)}", told(now))


@AREA.check(
    "B1105",
    "a delta over churn has one row a machine",
    Profile.SCALE,
    phase=Phase.ALONE,
)
async def _churn_leaves_one_row(bench: Bench) -> None:
    _large(bench, cursors=True)
    async with bench.several(1, _CHURNED) as machines:
        start = await bench.target.list()
        await _churn(bench, machines, _TURNS)
        done = f"the delta over {_TURNS} rounds on {len(machines)} machines"
        delta = by_id(done, (await bench.target.list(since=start.revision)).machines)
        mine = {machine.id for machine in machines}
        bystanders = by_id("List", (record for record in start.machines if record.id not in mine))
        unmoved(done, bystanders, delta.values())


@AREA.check("B1106", "the p99 of each call is recorded", Profile.SCALE, phase=Phase.ALONE)
async def _latencies(bench: Bench) -> None:
    _large(bench)
    for record in sample(bench.rng, list((await bench.target.list()).machines), _GETS):
        await bench.target.get(record.id)
    for method in ("Create", "Configure", "Drain", "Delete", "Get", "List"):
        p99 = bench.target.witness.p99(method)
        if p99 is not None:
            bench.notes.append(f"{method} p99 {p99 * 1000:.1f} ms")


@AREA.check("B1107", "the cost of List grows less than quadratically", Profile.SCALE, phase=Phase.ALONE)
async def _list_cost(bench: Bench) -> None:
    _large(bench)
    whole = await _best_seconds(bench, bench.facts.machines)
    part = await _best_seconds(bench, bench.facts.machines // _FRACTION)
    bench.notes.append(f"List of {bench.facts.machines:,} machines {whole:.3f} s, of an eighth {part:.3f} s")
    if whole > _MOMENT_SECONDS and whole > part * _ALLOWED:
        done = f"List of {bench.facts.machines:,} machines beside List of an eighth of them"
        raise BrokenError(done, f"at most {_ALLOWED:.0f} times as long", f"{whole:.3f} s beside {part:.3f} s")


async def _best_seconds(bench: Bench, count: int) -> float:
    times = []
    for _ in range(_MEASUREMENTS):
        start = time.perf_counter()
        await bench.target.list(max_results=count)
        times.append(time.perf_counter() - start)
    return min(times)


@AREA.check("B1108", "parallel walks are each complete", Profile.SCALE, phase=Phase.ALONE)
async def _parallel_walks(bench: Bench) -> None:
    _large(bench, cursors=True)
    everything = await _everything(bench)
    limit = pages(len(everything), _PAGE)
    for records in await asyncio.gather(*(walk(bench.target, _PAGE, limit) for _ in range(_WALKERS))):
        _judge_walk(everything, records)


@AREA.check("B1109", "no drift: a copy kept up by deltas equals a fresh List and Get", Profile.SCALE, phase=Phase.ALONE)
async def _no_drift(bench: Bench) -> None:
    _large(bench, cursors=True)
    async with bench.several(1, _CHURNED) as machines:
        listing = await bench.target.list()
        kept = by_id("List", listing.machines)
        since = listing.revision
        for _ in range(_TURNS):
            await _churn(bench, machines, 1)
            delta = await bench.target.list(since=since)
            kept.update((record.id, record) for record in delta.machines)
            since = delta.revision
        fresh = await _everything(bench)
        same_ids(f"a fresh List after {_TURNS} deltas", kept, fresh)
        mine = (there("List", fresh, machine.id) for machine in machines)
        for record in (*mine, *sample(bench.rng, list(fresh.values()), _COMPARED)):
            got = await bench.target.get(record.id)
            if not kept[record.id] == record == got:
                done = f"machine {record.id!r} kept up by deltas, in a fresh List and in Get"
                raise BrokenError(done, told(record), f"{told(kept[record.id])}; {told(got)}")
