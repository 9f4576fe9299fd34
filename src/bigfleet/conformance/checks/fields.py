"""B8xx: what each record must and must not say."""

from collections.abc import Iterable

from bigfleet.conformance.errors import BrokenError
from bigfleet.conformance.suite import Area, Phase, Profile
from bigfleet.conformance.workbench.bench import Bench
from bigfleet.conformance.workbench.records import CONFIGURED, JUDGES, Judge, has_host, state_of, told
from bigfleet.model.machine import HOSTED, Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

AREA = Area(8, "fields")

_NAMED_FAULTS = 3


def no_faults(records: Iterable[pb.Machine], judge: Judge, expected: str) -> None:
    """Judge that none of the records has a fault of this kind. A failure names the first few."""
    faults = [fault for record in records for fault in judge(record)]
    if faults:
        more = f" and {len(faults) - _NAMED_FAULTS} more" if len(faults) > _NAMED_FAULTS else ""
        raise BrokenError("reading List", expected, "; ".join(faults[:_NAMED_FAULTS]) + more)


def _register(behaviour: str, sentence: str, expected: str) -> None:
    """Register a check that judges the whole list, and every record of the run's acks and Gets."""

    async def check(bench: Bench) -> None:
        witness = bench.target.witness
        if CONFIGURED not in witness.states:
            async with bench.idle() as machine:
                for call in bench.facts.round_trip:
                    await machine.drive(call, cluster=bench.cluster(), metadata={"stamp": "1"})
        no_faults((await bench.target.list()).machines, JUDGES[behaviour], expected)
        if faults := witness.record_faults[behaviour]:
            raise BrokenError("reading acks and Gets of the whole run", expected, "; ".join(faults))

    AREA.check(behaviour, sentence, phase=Phase.LAST)(check)


_register(
    "B801",
    "state and instance_type are set, and nothing is hidden in labels",
    "state and instance_type in every record, and no label that says otherwise",
)
_register(
    "B802",
    "price and interruption probability are within their bounds",
    "price_per_hour finite and >= 0, interruption_probability in [0, 1] and > 0 for spot",
)
_register("B803", "host and cluster are as the state requires", "host, cluster and last_error as the state requires")
_register("B804", "allocatable and resources are usable", "quantities that parse, no more allocatable than there is")
_register("B806", "zone and capacity_type are set where a host is set", "a zone and a capacity type beside every host")


@AREA.check("B805", "a host's identity is stable from Idle to Idle, the same in Get and List, and no other machine's")
async def _stable_host(bench: Bench) -> None:
    async with bench.idle() as machine:
        first = await machine.get()
        for call in (Call.CONFIGURE, Call.DRAIN):
            journey = await machine.drive(call, cluster=bench.cluster())
            for record in (journey.ack.machine, *journey.seen, await machine.listed()):
                if record.host != first.host:
                    raise BrokenError(
                        f"{call.value} of machine {machine.id!r}", f"host as in {told(first)}", told(record)
                    )
        for record in (await bench.target.list()).machines:
            if record.id != machine.id and state_of(record) in HOSTED and record.host == first.host:
                raise BrokenError("List", f"no other machine with the host of {told(first)}", told(record))


@AREA.check("B807", "Delete clears host, cluster and metadata", Profile.CLOUD)
async def _delete_clears(bench: Bench) -> None:
    async with bench.idle() as machine:
        await machine.drive(Call.CONFIGURE, cluster=bench.cluster(), metadata={"stamp": "1"})
        await machine.drive(Call.DRAIN)
        end = (await machine.drive(Call.DELETE)).end
        for record in (end, await machine.listed()):
            if has_host(record) or record.cluster or record.shard_metadata:
                raise BrokenError(f"Delete of machine {machine.id!r}", "no host, no cluster, no metadata", told(record))
