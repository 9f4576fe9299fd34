"""B9xx: List with its filters, pages and cursor."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from bigfleet.conformance.errors import BrokenError, NotApplicableError, NotCheckedError
from bigfleet.conformance.suite import Area, Phase
from bigfleet.conformance.workbench.bench import LARGE_FLEET, Bench
from bigfleet.conformance.workbench.handle import Handle
from bigfleet.conformance.workbench.records import CONFIGURED, IDLE, state_of, told
from bigfleet.conformance.workbench.target import Target, shown_cursor
from bigfleet.conformance.workbench.tasks import together
from bigfleet.model.machine import Call, MachineState
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(9, "list")

_ATTEMPTS = 3
_GARBAGE_CASES = 12
_FOLLOWERS = 4
_TURNS = 2
_FIRST_PAUSE_SECONDS = 0.001
_PAUSE_GROWTH = 1.5
_LONGEST_PAUSE_SECONDS = 0.25
# Pages that a walk may need more than the machines fill, because machines change meanwhile.
_SPARE_PAGES = 12


def _needs_cursors(bench: Bench) -> None:
    if not bench.facts.cursors:
        raise NotApplicableError(f"the provider returns no revision; {bench.facts.cursor_need}")


def by_id(done: str, records: Iterable[pb.Machine]) -> dict[str, pb.Machine]:
    """The records by machine id. Fails if a machine is there twice."""
    found: dict[str, pb.Machine] = {}
    for record in records:
        if record.id in found:
            raise BrokenError(done, "no machine twice", f"machine {record.id!r} twice")
        found[record.id] = record
    return found


def there(done: str, records: Mapping[str, pb.Machine], machine_id: str) -> pb.Machine:
    """The record of this machine. Fails if there is none."""
    if machine_id not in records:
        raise BrokenError(done, f"machine {machine_id!r} in it", f"{len(records)} others")
    return records[machine_id]


def same_ids(done: str, expected: Iterable[str], found: Iterable[str]) -> None:
    """Judge that exactly the expected machines were found."""
    wanted, listed = set(expected), set(found)
    missing, extra = wanted - listed, listed - wanted
    if missing or extra:
        parts = [f"without {min(missing)!r}" if missing else "", f"with {min(extra)!r}" if extra else ""]
        came = f"{len(listed)}, {len(missing)} missing and {len(extra)} too many: {' and '.join(filter(None, parts))}"
        raise BrokenError(done, f"exactly {len(wanted)} machines", came)


@AREA.check("B901", "state filters and their unions are exact", phase=Phase.ALONE)
async def _filters(bench: Bench) -> None:
    async with bench.several(1, 3) as machines:
        await machines[0].drive(Call.CONFIGURE, cluster=bench.cluster())
        unions = [(state,) for state in MachineState] + list(itertools.combinations(MachineState, 2))[::5]
        wanted = [*unions, tuple(MachineState)[:4], tuple(MachineState)]
        for _ in range(_ATTEMPTS):
            before = await bench.target.list()
            answers = [(states, await bench.target.list(states)) for states in wanted]
            if _states(before) == _states(await bench.target.list()):
                break
        else:
            text = f"machines kept changing their states during {_ATTEMPTS} attempts to list them all"
            raise NotCheckedError("state filters", text)
        for states, answer in answers:
            done = f"List of states {', '.join(state.label for state in states)}"
            expected = [record.id for record in before.machines if state_of(record) in states]
            same_ids(done, expected, by_id(done, answer.machines))
            _only(done, states, answer.machines)


def _states(listing: pb.MachineList) -> dict[str, int]:
    return {record.id: record.state for record in listing.machines}


@AREA.check("B902", "max_results bounds the answer, and 0 means no bound", phase=Phase.ALONE)
async def _max_results(bench: Bench) -> None:
    everything = by_id("List", (await bench.target.list()).machines)
    for bound in sorted({1, 2, max(1, len(everything) - 1), len(everything) + 5}):
        await _bounded(bench, everything, (), bound)
    async with bench.several(1, 2) as machines:
        await _bind(bench, machines[0])
        # The bound counts the machines that the filter selects, so both states are tried.
        for state in (CONFIGURED, IDLE)[: len(machines)]:
            await _bounded(bench, everything, (state,), 1)


async def _bounded(
    bench: Bench, everything: Mapping[str, pb.Machine], states: tuple[MachineState, ...], bound: int
) -> None:
    done = f"List of states {', '.join(state.label for state in states) or 'all'} with max_results {bound}"
    found = by_id(done, (await bench.target.list(states, max_results=bound)).machines)
    if len(found) > bound or (everything and not found):
        raise BrokenError(done, f"1 to {bound} machines, as there are some", f"{len(found)}")
    if unknown := set(found) - set(everything):
        raise BrokenError(done, "machines of the full list", f"machine {min(unknown)!r}")
    _only(done, states, found.values())


def _only(done: str, states: Collection[MachineState], records: Iterable[pb.Machine]) -> None:
    for record in records:
        if states and state_of(record) not in states:
            raise BrokenError(done, "only these states", told(record))


async def _bind(bench: Bench, machine: Handle) -> pb.Machine:
    return (await machine.drive(Call.CONFIGURE, cluster=bench.cluster(), metadata={"stamp": "1"})).end


@AREA.check("B903", "the cursor advances when something changed", phase=Phase.ALONE)
async def _cursor_advances(bench: Bench) -> None:
    if not bench.facts.cursors and bench.facts.machines > LARGE_FLEET:
        raise BrokenError("List", f"a revision, as {bench.facts.cursor_need}", "none")
    _needs_cursors(bench)
    async with bench.idle() as machine:
        before = await bench.target.list()
        await _bind(bench, machine)
        delta = await bench.target.list(since=before.revision)
        after = await bench.target.list()
        for done, listing in (("the delta after a Configure", delta), ("a full List after a Configure", after)):
            if not listing.revision or listing.revision == before.revision:
                came = f"revision {listing.revision.hex() or 'none'}"
                raise BrokenError(done, f"a revision newer than {before.revision.hex()}", came)


@AREA.check("B904", "the delta is empty when nothing changed", phase=Phase.ALONE)
async def _empty_delta(bench: Bench) -> None:
    _needs_cursors(bench)
    listing = await bench.target.list()
    base = by_id("List", listing.machines)
    delta = await bench.target.list(since=listing.revision)
    unmoved("the delta right after a full List", base, delta.machines)
    again = await bench.target.list(since=delta.revision)
    unmoved("the delta right after an empty delta", base, again.machines)


def unmoved(done: str, base: dict[str, pb.Machine], records: Iterable[pb.Machine]) -> None:
    """Judge that no record in a delta is unchanged. A machine that somebody else changed may be there."""
    for record in records:
        if base.get(record.id) == record:
            raise BrokenError(done, "only what changed after the cursor", f"unchanged {told(record)}")


@AREA.check(
    "B905", "a delta is complete and monotonic, under a state filter and while machines move", phase=Phase.ALONE
)
async def _complete_delta(bench: Bench) -> None:
    _needs_cursors(bench)
    async with bench.several(2, 3) as machines:
        start = await bench.target.list()
        base = by_id("List", start.machines)
        bound = [await _bind(bench, machine) for machine in machines]
        first = await bench.target.list(since=start.revision)
        _holds(f"the delta over {len(bound)} Configures", base, first.machines, bound)
        drained = (await machines[0].drive(Call.DRAIN)).end
        second = await bench.target.list(since=first.revision)
        known = {**base, **by_id("the delta", first.machines)}
        _holds("the delta over one Drain, from the delta before", known, second.machines, [drained])
        whole = await bench.target.list(since=start.revision)
        _holds("the delta from the first cursor again", base, whole.machines, [drained, *bound[1:]])
        for state, changed in ((CONFIGURED, bound[1:]), (IDLE, [drained])):
            done = f"the delta from the first cursor, of state {state.label} only"
            filtered = await bench.target.list([state], since=start.revision)
            _only(done, [state], filtered.machines)
            _holds(done, base, filtered.machines, changed)
        merged = known | by_id("the delta", second.machines)
        fresh = by_id("List", (await bench.target.list()).machines)
        for machine in machines:
            kept, record = there("the deltas", merged, machine.id), there("List", fresh, machine.id)
            if kept != record:
                done = "a full List beside the base with its deltas applied"
                raise BrokenError(done, f"both to show {told(kept)}", told(record))
        await machines[0].drive(Call.CONFIGURE, cluster=bench.cluster())
        await _followed(bench, machines)


class _Follower:
    """Keeps a copy of the fleet up to date by deltas, as a shard does."""

    def __init__(self, target: Target) -> None:
        self.kept: dict[str, pb.Machine] = {}
        self._target = target
        self._since = b""

    async def look(self) -> bool:
        """Take one delta. True if it was not empty."""
        delta = await self._target.list(since=self._since)
        self.kept.update((record.id, record) for record in delta.machines)
        self._since = delta.revision
        return bool(delta.machines)

    async def follow(self, resting: asyncio.Event) -> None:
        """Take deltas until the machines have settled, less often while they are empty, and one at the end."""
        pause = 0.0
        while not resting.is_set():
            slower = pause * _PAUSE_GROWTH + _FIRST_PAUSE_SECONDS
            pause = 0.0 if await self.look() else min(_LONGEST_PAUSE_SECONDS, slower)
            await asyncio.sleep(pause)
        await self.look()


async def _followed(bench: Bench, machines: Sequence[Handle]) -> None:
    """Move machines while deltas are taken. A change that falls between a delta's rows and its cursor would be lost."""
    followers = [_Follower(bench.target) for _ in range(_FOLLOWERS)]
    for call in (Call.DRAIN, Call.CONFIGURE) * _TURNS:
        resting = asyncio.Event()

        async def move(call: Call = call, resting: asyncio.Event = resting) -> None:
            try:
                await together(_driven(bench, machine, call) for machine in machines)
            finally:
                resting.set()

        await together([move(), *(follower.follow(resting) for follower in followers)])
        for machine in machines:
            record = await machine.get()
            for follower in followers:
                done = f"deltas taken one after the other during {call.value}s"
                if (kept := there(done, follower.kept, machine.id)) != record:
                    raise BrokenError(done, f"to end with {told(record)}", told(kept))


async def _driven(bench: Bench, machine: Handle, call: Call) -> None:
    await machine.drive(call, cluster=bench.cluster(), metadata={"stamp": "2"})


def _holds(done: str, base: dict[str, pb.Machine], records: Iterable[pb.Machine], changed: list[pb.Machine]) -> None:
    found = by_id(done, records)
    mine = {record.id for record in changed}
    # A machine that went to another state and back has changed, though its record is the same as before.
    unmoved(done, base, (record for record in found.values() if record.id not in mine))
    for record in changed:
        if record.id not in found:
            raise BrokenError(done, f"{told(record)} in it", f"{len(found)} other machines")
        if found[record.id] != record:
            raise BrokenError(done, f"the newest record, {told(record)}", told(found[record.id]))


async def _full_for(bench: Bench, expected: Iterable[str], cursor: bytes, case: str) -> None:
    done = f"List since {case} ({shown_cursor(cursor)})"
    same_ids(done, expected, by_id(done, (await bench.target.list(since=cursor)).machines))


@AREA.check("B906", "a garbage cursor gives the full list", phase=Phase.ALONE)
async def _garbage_cursor(bench: Bench) -> None:
    full = by_id("List", (await bench.target.list()).machines)
    for case in range(_GARBAGE_CASES):
        await _full_for(bench, full, bench.rng.randbytes(bench.rng.randint(16, 80)), f"random bytes, case {case}")
    await _full_for(bench, full, b"\xff" * 4096, "4 KiB of 0xff")


@AREA.check("B909", "a cursor that looks right but is unknown gives the full list", phase=Phase.ALONE)
async def _unknown_cursor(bench: Bench) -> None:
    listing = await bench.target.list()
    full, revision = by_id("List", listing.machines), listing.revision or b"1"
    # Cursors that are larger than the real one, whatever encoding of a counter the provider uses.
    larger = bytes(ord("9") if ord("0") <= byte <= ord("9") else byte for byte in revision)
    for cursor, case in (
        (revision + b"\0", "a real cursor and one byte more"),
        (revision + b"9" * 12, "a real cursor and twelve digits more"),
        (larger + b"999999", "a cursor with larger digits"),
        (b"\x7f" + b"\xff" * (max(8, len(revision)) - 1), "the largest counter of that length"),
        (b"9" * max(12, len(revision)), "the largest number of that length"),
    ):
        await _full_for(bench, full, cursor, case)


async def walk(target: Target, page: int, limit: int, states: Collection[MachineState] = ()) -> list[pb.Machine]:
    """Page through all machines. The walk ends at the first empty page, and fails after `limit` pages."""
    records: list[pb.Machine] = []
    since = b""
    for _ in range(limit):
        listing = await target.list(states, max_results=page, since=since)
        done = f"paging by {page}"
        if len(listing.machines) > page:
            raise BrokenError(done, f"at most {page} machines a page", f"{len(listing.machines)}")
        if not listing.machines:
            return records
        if listing.revision == since:
            raise BrokenError(done, "a cursor that moves with every page", f"{since.hex()} twice")
        records += listing.machines
        since = listing.revision
    raise BrokenError(f"paging by {page}", f"an empty page after at most {limit - 1}", f"{len(records)} records so far")


def pages(total: int, page: int) -> int:
    """The number of pages that a walk may take."""
    return total // page + _SPARE_PAGES


@AREA.check("B907", "paging is complete and without duplicates", phase=Phase.ALONE)
async def _paging(bench: Bench) -> None:
    _needs_cursors(bench)
    everything = by_id("List", (await bench.target.list()).machines)
    total = len(everything)
    for page in sorted({max(1, total // 5), max(1, total // 2), total + 1}):
        records = await walk(bench.target, page, pages(total, page))
        twice = [machine for machine, count in Counter(record.id for record in records).items() if count > 1]
        moved = {record.id for record in records if everything.get(record.id) != record}
        if unexplained := set(twice) - moved:
            raise BrokenError(f"paging by {page}", "no machine twice", f"machine {min(unexplained)!r} twice")
        same_ids(f"paging by {page}", everything, {record.id for record in records})
    async with bench.several(1, 3) as machines:
        await _page_over_a_change(bench, machines[0], max(1, total // 3))
        # Some machines are Configured then and, if there are two or more, one stays Idle.
        for machine in machines[1:-1]:
            await _bind(bench, machine)
        for state in (CONFIGURED, IDLE):
            await _page_of_one_state(bench, state)


async def _page_of_one_state(bench: Bench, state: MachineState) -> None:
    """Judge that pages under a filter hold each machine of that state once, and no other machine."""
    before = await _in_state(bench, state)
    page = max(1, len(before) // 4)
    done = f"paging by {page} through the machines that are {state.label}"
    records = await walk(bench.target, page, pages(len(before), page), [state])
    _only(done, [state], records)
    # A machine whose state changed meanwhile may be there or not.
    lasting = before & await _in_state(bench, state)
    counted = Counter(record.id for record in records)
    same_ids(done, lasting, lasting & set(counted))
    if twice := [machine for machine in lasting if counted[machine] > 1]:
        raise BrokenError(done, "no machine twice", f"machine {min(twice)!r} twice")


async def _in_state(bench: Bench, state: MachineState) -> set[str]:
    return {record.id for record in (await bench.target.list([state])).machines}


async def _page_over_a_change(bench: Bench, machine: Handle, page: int) -> None:
    """Judge that a machine which changes between two pages is in a later page, with its new record."""
    first = await bench.target.list(max_results=page)
    bound = await _bind(bench, machine)
    latest = {record.id: record for record in first.machines}
    since = first.revision
    for _ in range(pages(bench.facts.machines, page)):
        listing = await bench.target.list(max_results=page, since=since)
        if not listing.machines:
            break
        latest.update((record.id, record) for record in listing.machines)
        since = listing.revision
    done = f"paging by {page} while machine {machine.id!r} is configured"
    same_ids(done, (record.id for record in (await bench.target.list()).machines), latest)
    if (seen := there(done, latest, machine.id)) != bound:
        raise BrokenError(done, f"its newest record, {told(bound)}", told(seen))


@AREA.check("B908", "the cursor is not bumped by idle ticks", phase=Phase.ALONE)
async def _no_idle_bump(bench: Bench) -> None:
    _needs_cursors(bench)
    before = await bench.target.list()
    base = by_id("List", before.machines)
    await asyncio.sleep(bench.quiet_seconds)
    delta = await bench.target.list(since=before.revision)
    done = f"the delta over {bench.quiet_seconds:g} s without a call"
    unmoved(done, base, delta.machines)
    if not delta.machines and delta.revision != before.revision:
        came = f"revision {delta.revision.hex()} and nothing that changed"
        raise BrokenError(done, f"revision {before.revision.hex()} again", came)
