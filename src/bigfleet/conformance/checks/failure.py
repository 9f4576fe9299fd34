"""B7xx: what a provider shows when its substrate fails."""

import asyncio
import time

from bigfleet.conformance.errors import BrokenError, NotCheckedError
from bigfleet.conformance.suite import Area, Phase, Profile
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.faults import Fault, seconds_of
from bigfleet.conformance.workbench.handle import END, VIA, Handle
from bigfleet.conformance.workbench.hosts import HostList
from bigfleet.conformance.workbench.records import FAILED, IDLE, SPECULATIVE, has_host, state_of, told
from bigfleet.model.labels import CONFORMANCE_SECONDS
from bigfleet.model.machine import Call, can
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(7, "failure")

_LOOK_SECONDS = 0.1
_NAMED_HOSTS = 5

_CALLS = {
    Fault.CREATE_ERROR: Call.CREATE,
    Fault.CONFIGURE_ERROR: Call.CONFIGURE,
    Fault.DRAIN_ERROR: Call.DRAIN,
    Fault.DELETE_ERROR: Call.DELETE,
    Fault.CREATE_HANG: Call.CREATE,
    Fault.CONFIGURE_HANG: Call.CONFIGURE,
    Fault.CREATE_LATE: Call.CREATE,
}


async def _failed(bench: Bench, machine: Handle, fault: Fault) -> pb.Machine:
    """Send the call on which the fault strikes, and return the Failed record."""
    call = _CALLS[fault]
    if call is Call.DRAIN:
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
    ask = machine.asking(call, cluster=bench.cluster())
    journey = await machine.watched(await bench.target.ask(ask))
    if state_of(journey.end) is not FAILED or not journey.end.last_error:
        raise BrokenError(f"{ask}, on which {fault} strikes", "Failed with a last_error", told(journey.end))
    for record in journey.seen[:-1]:
        if state_of(record) is not VIA[call]:
            raise BrokenError(f"{ask}, on which {fault} strikes", f"{VIA[call].label}, then Failed", told(record))
    return journey.end


@AREA.check("B701", "an actuator error in Create or Delete ends in Failed with last_error", Profile.FAULT)
async def _host_errors(bench: Bench) -> None:
    for fault in bench.offered(Fault.CREATE_ERROR, Fault.DELETE_ERROR):
        async with bench.faulty(fault) as machine:
            await _failed(bench, machine, fault)


@AREA.check("B702", "an actuator error in Configure or Drain ends in Failed with last_error", Profile.FAULT)
async def _binding_errors(bench: Bench) -> None:
    for fault in bench.offered(Fault.CONFIGURE_ERROR, Fault.DRAIN_ERROR):
        async with bench.faulty(fault) as machine:
            await _failed(bench, machine, fault)


@AREA.check("B703", "a time-out ends in Failed with last_error", Profile.FAULT)
async def _time_outs(bench: Bench) -> None:
    for fault in bench.offered(Fault.CREATE_HANG, Fault.CONFIGURE_HANG):
        async with bench.faulty(fault) as machine:
            await _failed(bench, machine, fault)


async def _failed_and_late(bench: Bench, machine: Handle) -> pb.Machine:
    """Let Create time out, and wait until the host that it made late is there."""
    late = seconds_of(await machine.get())
    if late is None:
        raise NotCheckedError("fault", f"machine {machine.id!r} has no usable label {CONFORMANCE_SECONDS}")
    failed = await _failed(bench, machine, Fault.CREATE_LATE)
    # Waiting begins only now, because a busy provider may have begun much later than the call was sent.
    await asyncio.sleep(late + bench.quiet_seconds)
    return failed


@AREA.check("B704", "a late success after failure is ignored", Profile.FAULT)
async def _late_success(bench: Bench) -> None:
    async with bench.faulty(Fault.CREATE_LATE) as machine:
        failed = await _failed_and_late(bench, machine)
        record = await machine.get()
        if state_of(record) is not FAILED or record.host != failed.host:
            raise BrokenError(
                f"Create of machine {machine.id!r} that timed out and succeeded after that",
                f"still {told(failed)}",
                told(record),
            )


@AREA.check("B705", "Drain, Delete or Create lead out of Failed, as protocol rule 1 says", Profile.FAULT)
async def _recovery(bench: Bench) -> None:
    errors = (Fault.CREATE_ERROR, Fault.CONFIGURE_ERROR, Fault.DRAIN_ERROR, Fault.DELETE_ERROR)
    for fault in bench.offered(*errors):
        async with bench.faulty(fault) as machine:
            for call in (Call.CREATE, Call.DRAIN, Call.DELETE):
                failed = await _failed(bench, machine, fault)
                if can(call, FAILED, has_host(failed)) and (call is not Call.DELETE or bench.facts.deletable):
                    await _recovered(machine, call)
                await machine.reach(SPECULATIVE if fault.startswith("create") else IDLE, await machine.rest())


async def _recovered(machine: Handle, call: Call) -> None:
    end = (await machine.drive(call)).end
    if end.cluster or end.shard_metadata or end.last_error:
        done = f"{call.value} of machine {machine.id!r} out of Failed"
        raise BrokenError(done, f"{END[call].label} without cluster, metadata and last_error", told(end))


@AREA.check("B706", "Drain with grace 0 ends in Idle or Failed")
async def _drain_without_grace(bench: Bench) -> None:
    async with bench.idle() as machine:
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster())
        ask = machine.asking(Call.DRAIN, grace=0)
        end = (await machine.watched(await bench.target.ask(ask))).end
        if state_of(end) not in {IDLE, FAILED}:
            raise BrokenError(str(ask), "Idle or Failed", told(end))


@AREA.check("B707", "a Failed machine still answers reads", Profile.FAULT)
async def _failed_is_readable(bench: Bench) -> None:
    fault = bench.offered(Fault.CONFIGURE_ERROR, Fault.CREATE_ERROR, Fault.DRAIN_ERROR, Fault.DELETE_ERROR)[0]
    async with bench.faulty(fault) as machine:
        failed = await _failed(bench, machine, fault)
        for where, record in (("Get", await machine.get()), ("List", await machine.listed())):
            if record != failed:
                raise BrokenError(f"{where} of the Failed machine {machine.id!r}", told(failed), told(record))


@AREA.check("B708", "no host outlives its machine", Profile.CLOUD, phase=Phase.LAST)
async def _no_orphan(bench: Bench) -> None:
    if bench.hosts is None:
        raise NotCheckedError("hosts", "give --hosts-cmd CMD, which prints the reference of every host, one a line")
    await _no_host_without_machine(bench, bench.hosts, "the whole run")
    async with bench.faulty(Fault.CREATE_LATE) as machine:
        await _failed_and_late(bench, machine)
        await machine.drive(Call.DELETE)
        done = f"Create of machine {machine.id!r} that timed out and succeeded late, then Delete"
        await _no_host_without_machine(bench, bench.hosts, done)


async def _no_host_without_machine(bench: Bench, hosts: HostList, done: str) -> None:
    """Every host that the run made is some machine's; a provider has the settle time to end the others."""
    end = time.monotonic() + bench.target.settle_seconds
    while orphans := await hosts.made_since() - await _hosts_of_machines(bench):
        if time.monotonic() > end:
            named = ", ".join(sorted(orphans)[:_NAMED_HOSTS])
            raise BrokenError(done, "no host that no machine has", f"{len(orphans)}: {named}")
        await asyncio.sleep(_LOOK_SECONDS)


async def _hosts_of_machines(bench: Bench) -> set[str]:
    return {record.host.ref for record in (await bench.target.list()).machines if has_host(record)}
