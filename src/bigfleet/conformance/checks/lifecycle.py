"""B1xx: the life cycle of a machine."""

import asyncio
import time

from bigfleet.conformance.errors import BrokenError, NotCheckedError
from bigfleet.conformance.suite import Area, Check, Profile
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.faults import Fault, seconds_of
from bigfleet.conformance.workbench.handle import END, VIA, Handle, Journey
from bigfleet.conformance.workbench.records import CONFIGURED, IDLE, SPECULATIVE, at_work, has_host, state_of, told
from bigfleet.model.labels import CONFORMANCE_SECONDS
from bigfleet.model.machine import ASKS, UNASKED, Call, MachineState
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(1, "lifecycle")

# A timer may fire a little early.
_EARLY = 0.98
_ROUND_TRIPS = 4
# How often a machine is looked at while it must not change.
_LOOKS = 10
_LONGEST_PAUSE_SECONDS = 0.05


@AREA.check("B101", "four full round trips leave cluster, metadata and last_error empty at each Idle")
async def _round_trips(bench: Bench) -> None:
    async with bench.idle() as machine:
        for turn in range(_ROUND_TRIPS):
            cluster = bench.cluster()
            for call in bench.facts.round_trip:
                end = (await machine.drive(call, cluster=cluster, metadata={"turn": str(turn)})).end
                if state_of(end) is IDLE and (end.cluster or end.shard_metadata or end.last_error):
                    done = f"round trip {turn + 1} of machine {machine.id!r}, after {call.value}"
                    raise BrokenError(done, "no cluster, no metadata and no last_error at Idle", told(end))


def _judge_states(call: Call, journey: Journey) -> None:
    """Judge that the machine shows only the call's own transitional state and the state in which the call ends."""
    for record in (journey.ack.machine, *journey.seen):
        if state_of(record) not in {VIA[call], END[call]}:
            allowed = f"only {VIA[call].label}, then {END[call].label}"
            raise BrokenError(f"watching {call.value} of machine {record.id!r}", allowed, told(record))


def _only_its_own(call: Call) -> Check:
    async def check(bench: Bench) -> None:
        if call is Call.CREATE:
            async with bench.speculative() as machine:
                _judge_states(call, await machine.drive(call))
            return
        async with bench.idle() as machine:
            for step in (Call.CONFIGURE, Call.DRAIN) if call is not Call.DELETE else (Call.DELETE,):
                journey = await machine.drive(step, cluster=bench.cluster())
                if step is call:
                    _judge_states(call, journey)

    return check


AREA.check("B102", "the only transitional state seen during Create is Creating")(_only_its_own(Call.CREATE))
AREA.check("B103", "the only transitional state seen during Configure is Configuring")(_only_its_own(Call.CONFIGURE))
AREA.check("B104", "the only transitional state seen during Drain is Draining")(_only_its_own(Call.DRAIN))
AREA.check("B109", "the only transitional state seen during Delete is Deleting", Profile.CLOUD)(
    _only_its_own(Call.DELETE)
)


@AREA.check("B105", "machines move only along legal edges and the unasked ones of protocol rule 2")
async def _legal_edges(bench: Bench) -> None:
    async with bench.idle() as machine:
        state = state_of(await machine.get())
        for call in bench.facts.round_trip * 2:
            journey = await machine.drive(call, cluster=bench.cluster())
            for record in (journey.ack.machine, *journey.seen):
                new = state_of(record)
                if not _may_follow(call, state, new):
                    was = "no state" if state is None else state.label
                    raise BrokenError(f"tracing {call.value}", f"a legal step from {was}", told(record))
                state = new


def _may_follow(call: Call, old: MachineState | None, new: MachineState | None) -> bool:
    """True if a Get may show `new` after one that showed `old`. The state between the two may have been missed."""
    steps = {
        step
        for ask in ASKS
        if ask.call is call
        for step in (
            (ask.source, ask.via),
            (ask.via, ask.end),
            (ask.source, ask.end),
            (ask.via, MachineState.FAILED),
        )
    }
    return old is new or (old, new) in steps or (old, new) in UNASKED


@AREA.check("B106", "cluster is set while the machine is bound and empty after Drain")
async def _cluster_while_bound(bench: Bench) -> None:
    async with bench.idle() as machine:
        cluster = bench.cluster()
        bound = await machine.drive(Call.CONFIGURE, cluster=cluster)
        drained = await machine.drive(Call.DRAIN)
        for record in (bound.ack.machine, *bound.seen, drained.ack.machine, *drained.seen):
            expected = "" if state_of(record) is IDLE else cluster
            if record.cluster != expected:
                done = f"Configure of machine {machine.id!r} for cluster {cluster!r}, then Drain"
                raise BrokenError(done, f"cluster {expected!r} in this state", told(record))


@AREA.check("B107", "host is empty for Speculative and set for Idle and Configured")
async def _host_by_state(bench: Bench) -> None:
    async with bench.idle() as machine:
        _judge_host(await machine.get())
        for call in bench.facts.round_trip:
            _judge_host((await machine.drive(call, cluster=bench.cluster())).end)


def _judge_host(record: pb.Machine) -> None:
    if has_host(record) is (state_of(record) is SPECULATIVE):
        done = f"a round trip of machine {record.id!r}"
        raise BrokenError(done, "a host exactly where the machine is Idle or Configured", told(record))


@AREA.check("B108", "a settled machine stays settled")
async def _stays_settled(bench: Bench) -> None:
    async with bench.idle() as machine:
        await _watch_still(bench, machine, await machine.get())
        journey = await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        await _watch_still(bench, machine, journey.end)


async def _watch_still(bench: Bench, machine: Handle, settled: pb.Machine) -> None:
    end = time.monotonic() + bench.quiet_seconds
    while time.monotonic() < end:
        await asyncio.sleep(bench.quiet_seconds / _LOOKS)
        record = await machine.get()
        if _facts(record) != _facts(settled):
            done = f"watching machine {machine.id!r} for {bench.quiet_seconds:g} s without a call"
            raise BrokenError(done, f"it to stay {told(settled)}", told(record))


def _facts(record: pb.Machine) -> tuple[int, str, str, str, dict[str, str]]:
    return record.state, record.host.provider, record.host.ref, record.cluster, dict(record.shard_metadata)


@AREA.check("B110", "a machine is never Configured before its node has joined and is Ready", Profile.FAULT)
async def _readiness_gate(bench: Bench) -> None:
    async with bench.faulty(Fault.JOIN_LATE) as machine:
        late = seconds_of(await machine.get())
        if late is None:
            raise NotCheckedError("fault", f"machine {machine.id!r} has no usable label {CONFORMANCE_SECONDS}")
        ask = machine.asking(Call.CONFIGURE, cluster=bench.cluster())
        sent = time.monotonic()
        record = (await machine.target.ask(ask)).machine
        while at_work(record) or time.monotonic() - sent < late * _EARLY:
            if state_of(record) is CONFIGURED:
                early = f"Configured after {time.monotonic() - sent:.3f} s"
                expected = f"it to stay Configuring until its node joins, {late:g} s after Configure"
                raise BrokenError(str(ask), expected, early)
            if time.monotonic() - sent > late + bench.target.settle_seconds:
                machine.stuck = True
                raise BrokenError(str(ask), f"Configured soon after its node joined at {late:g} s", told(record))
            await asyncio.sleep(min(_LONGEST_PAUSE_SECONDS, late / _LOOKS))
            record = await machine.get()
        if state_of(record) is not CONFIGURED:
            raise BrokenError(str(ask), f"Configured after its node joined at {late:g} s", told(record))
