"""Probes: what the target can do, found out before any check runs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import grpc

from bigfleet.conformance.errors import BrokenError, RefusedError, TargetError
from bigfleet.conformance.suite import Profile
from bigfleet.conformance.workbench.bench import Facts
from bigfleet.conformance.workbench.faults import Fault, fault_of
from bigfleet.conformance.workbench.pool import Hand, leasable
from bigfleet.conformance.workbench.records import IDLE, SPECULATIVE, capacity_of, state_of
from bigfleet.conformance.workbench.target import Target
from bigfleet.model.labels import CONFORMANCE_FAULT
from bigfleet.model.machine import Call, CapacityType
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

# More machines would not make a run faster, and nobody else can use a machine while the suite does.
_MOST_MACHINES_USED = 64


@dataclass(frozen=True, slots=True)
class Found:
    """What the probes found, and the machines that the suite may use."""

    facts: Facts
    machines: tuple[pb.Machine, ...]


async def probe(target: Target, hand: Hand, asked: Collection[Profile], *, tls: bool, launched: bool) -> Found:
    """List the machines once, and try Delete on one of those that the suite may use."""
    try:
        listing = await target.list()
    except RefusedError as refused:
        raise TargetError(_no_provider(target, refused)) from None
    free = _of_one_sort([record for record in listing.machines if leasable(record)], asked)
    ordinary = [record for record in free if not fault_of(record)]
    try:
        deletable = await _can_delete(hand, ordinary)
    except BrokenError as error:
        raise TargetError(f"the probe for Delete at {target.address} failed: {error}") from None
    if not deletable:
        # Without Delete a Speculative machine could not be given back once it is created.
        free = [record for record in free if state_of(record) is IDLE]
        ordinary = [record for record in ordinary if state_of(record) is IDLE]
    facts = Facts(
        machines=len(listing.machines),
        ordinary=len(ordinary),
        deletable=deletable,
        cursors=bool(listing.revision),
        spot=sum(capacity_of(record) is CapacityType.SPOT for record in listing.machines),
        faults=tuple(sorted({fault_of(record) for record in free} & set(Fault))),
        tls=tls,
        launched=launched,
    )
    # Spot machines may be taken away in the middle of a check, so they are used last.
    ordinary.sort(key=lambda record: capacity_of(record) is CapacityType.SPOT)
    return Found(facts, (*ordinary[:_MOST_MACHINES_USED], *(record for record in free if fault_of(record))))


def _of_one_sort(machines: list[pb.Machine], asked: Collection[Profile]) -> list[pb.Machine]:
    """The bare-metal machines if that profile was asked for, else the others. One run judges one sort."""
    metal = [record for record in machines if capacity_of(record) is CapacityType.BARE_METAL]
    others = [record for record in machines if capacity_of(record) is not CapacityType.BARE_METAL]
    return metal if not others or (metal and Profile.BARE_METAL in asked) else others


async def _can_delete(hand: Hand, machines: Sequence[pb.Machine]) -> bool:
    """Delete a Speculative machine, which changes nothing. If there is none, delete an Idle one and create it again."""
    if not machines:
        return False
    machine = next((record for record in machines if state_of(record) is SPECULATIVE), machines[0])
    handle = hand(machine)
    try:
        await handle.ask(Call.DELETE)
    except RefusedError as refused:
        if refused.code is grpc.StatusCode.UNIMPLEMENTED:
            return False
    if state_of(machine) is IDLE:
        await handle.reach(IDLE, await handle.rest())
    return True


def _no_provider(target: Target, refused: RefusedError) -> str:
    if refused.code is grpc.StatusCode.UNIMPLEMENTED:
        return f"{target.address} answers, but is no CapacityProvider: List is UNIMPLEMENTED; check the address"
    if refused.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{target.address} does not answer: List took longer than {target.settle_seconds:g} s (--settle-seconds)"
    return f"{target.address} cannot be listed: {refused.code.name}: {refused.details}"


def active_profiles(asked: Collection[Profile], facts: Facts) -> tuple[frozenset[Profile], list[str]]:
    """The profiles that a run checks, and a sentence for each profile that was asked for and does not fit the target.

    If no profile was asked for, the probes decide. Scale takes long and is checked only if it was asked for.
    """
    found = {Profile.CORE}
    found |= {Profile.CLOUD if facts.deletable else Profile.BARE_METAL} if facts.ordinary else set()
    found |= {Profile.SPOT} if facts.spot else set()
    found |= {Profile.DURABLE} if facts.launched else set()
    found |= {Profile.FAULT} if facts.faults else set()
    problems = []
    if not facts.ordinary:
        problems.append("nothing could be shown: the target lists no machine that is Idle or Speculative and unbound")
    if not asked:
        return frozenset(found), problems
    why = {
        Profile.CLOUD: "Delete is UNIMPLEMENTED on this target, which makes it bare-metal",
        Profile.BARE_METAL: "Delete works on this target, which makes it cloud",
        Profile.SPOT: "the target lists no spot machine",
        Profile.DURABLE: "the suite must start the provider itself: give --launch CMD",
        Profile.FAULT: f"the target lists no unbound machine with the label {CONFORMANCE_FAULT}",
    }
    contradicted = sorted(set(asked) - found - {Profile.SCALE}) if facts.ordinary else []
    problems += [f"profile {profile} was asked for, but {why[profile]}" for profile in contradicted]
    return frozenset({Profile.CORE, *asked} - set(contradicted)), problems
