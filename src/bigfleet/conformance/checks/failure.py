"""B7xx: what a provider shows when its own world lets it down."""

import asyncio
import shlex
import time
from subprocess import DEVNULL, PIPE

from bigfleet.conformance.errors import BrokenError, NotApplicableError, StuckError
from bigfleet.conformance.suite import Area, Profile
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.faults import Fault, how_to_offer, seconds_of
from bigfleet.conformance.workbench.handle import END, VIA, Handle
from bigfleet.conformance.workbench.records import FAILED, IDLE, SPECULATIVE, has_host, state_of, told
from bigfleet.model.labels import CONFORMANCE_SECONDS
from bigfleet.model.machine import Call, can
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(7, "failure")

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
    """Let the fault strike and return the Failed record."""
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


def _offered(bench: Bench, *faults: Fault) -> list[Fault]:
    offered = [fault for fault in faults if bench.offers(fault)]
    if not offered:
        raise NotApplicableError(how_to_offer(*faults))
    return offered


@AREA.check("B701", "an actuator error in Create or Delete ends in Failed with last_error", Profile.FAULT)
async def _host_errors(bench: Bench) -> None:
    for fault in _offered(bench, Fault.CREATE_ERROR, Fault.DELETE_ERROR):
        async with bench.faulty(fault) as machine:
            await _failed(bench, machine, fault)


@AREA.check("B702", "an actuator error in Configure or Drain ends in Failed with last_error", Profile.FAULT)
async def _binding_errors(bench: Bench) -> None:
    for fault in _offered(bench, Fault.CONFIGURE_ERROR, Fault.DRAIN_ERROR):
        async with bench.faulty(fault) as machine:
            await _failed(bench, machine, fault)


@AREA.check("B703", "a time-out ends in Failed with last_error", Profile.FAULT)
async def _time_outs(bench: Bench) -> None:
    for fault in _offered(bench, Fault.CREATE_HANG, Fault.CONFIGURE_HANG):
        async with bench.faulty(fault) as machine:
            await _failed(bench, machine, fault)


async def _failed_and_late(bench: Bench, machine: Handle) -> pb.Machine:
    """Let Create time out, and wait until its success has come after all."""
    late = seconds_of(await machine.get())
    if late is None:
        raise NotApplicableError(f"machine {machine.id!r} has no usable label {CONFORMANCE_SECONDS}")
    failed = await _failed(bench, machine, Fault.CREATE_LATE)
    # Counted from here: a busy provider may have begun much later than the call was sent.
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


@AREA.check("B705", "a Failed machine is recovered by the calls of protocol.md 1", Profile.FAULT)
async def _recovery(bench: Bench) -> None:
    errors = (Fault.CREATE_ERROR, Fault.CONFIGURE_ERROR, Fault.DRAIN_ERROR, Fault.DELETE_ERROR)
    for fault in _offered(bench, *errors):
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
    fault = _offered(bench, Fault.CONFIGURE_ERROR, Fault.CREATE_ERROR, Fault.DRAIN_ERROR, Fault.DELETE_ERROR)[0]
    async with bench.faulty(fault) as machine:
        failed = await _failed(bench, machine, fault)
        for where, record in (("Get", await machine.get()), ("List", await machine.listed())):
            if record != failed:
                raise BrokenError(f"{where} of the Failed machine {machine.id!r}", told(failed), told(record))


@AREA.check("B708", "no host outlives its machine", Profile.FAULT)
async def _no_orphan(bench: Bench) -> None:
    if bench.hosts_command is None:
        raise NotApplicableError("only the cloud can show it: give --hosts-cmd CMD, which prints every host's ref")
    async with bench.faulty(Fault.CREATE_LATE) as machine:
        seconds = bench.target.settle_seconds
        before = await _hosts(bench.hosts_command, seconds)
        await _failed_and_late(bench, machine)
        await machine.drive(Call.DELETE if bench.facts.deletable else Call.CREATE)
        end = time.monotonic() + seconds
        while orphans := (await _hosts(bench.hosts_command, seconds)) - before - await _claimed(bench):
            if time.monotonic() > end:
                done = f"Create of machine {machine.id!r} that timed out, succeeded late and was then given up"
                raise StuckError(done, "no host that no machine has", f"hosts {', '.join(sorted(orphans)[:5])}")
            await asyncio.sleep(0.1)


async def _claimed(bench: Bench) -> set[str]:
    return {record.host.ref for record in (await bench.target.list()).machines if has_host(record)}


async def _hosts(command: str, seconds: float) -> set[str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command), stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )
    except OSError as error:
        raise NotApplicableError(f"--hosts-cmd {command!r}: {error.strerror or error}") from None
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        raise NotApplicableError(f"--hosts-cmd {command!r} did not end within {seconds:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise NotApplicableError(f"--hosts-cmd {command!r} ended with code {process.returncode}")
    return set(output.decode(errors="replace").split())
