"""What a shard did, in words: one line for all records of its audit log that are alike."""

from collections.abc import Iterable, Mapping, Sequence

from bigfleet.model.machine import Machine
from bigfleet.shard.persistence.audit_log import Record
from bigfleet.sim.story import CAST

_NAMES = {workload.profile.fingerprint: workload.name for workloads in CAST.values() for workload in workloads}


def in_words(records: Iterable[Record], machines: Mapping[str, Machine]) -> list[str]:
    """One line for all actions that were decided for the same reason, and one for each action that failed."""
    alike: dict[tuple[str, ...], list[Record]] = {}
    lines: list[str] = []
    for record in records:
        if record.event == "decided":
            machine = machines.get(record.machine)
            what = "machine" if machine is None else f"{machine.instance_type} {machine.capacity_type.label}"
            key = (record.kind, record.cluster, record.leaves, record.reason, what)
            alike.setdefault(key, []).append(record)
        elif record.outcome not in ("success", "dropped"):
            lines.append(f"{record.kind} of {record.machine} came to nothing ({record.outcome}): {record.detail}")
    return [*lines, *(_line(what, records) for (*_, what), records in alike.items())]


def _line(what: str, records: Sequence[Record]) -> str:
    first, machines = records[0], f"{len(records)} {what}"
    reason = first.reason.replace(first.fingerprint, _NAMES.get(first.fingerprint, first.fingerprint))
    match first.kind:
        case "Provision":
            return f"buy {machines} for {first.cluster}, ${first.price_per_hour:.3f} an hour each: {reason}"
        case "Bootstrap":
            return f"hand {machines} that stand idle to {first.cluster}: {reason}"
        case "Preempt":
            return (
                f"take {machines} from {first.leaves} for {first.cluster}: {reason}, {first.grace_seconds} s to leave"
            )
        case "Reclaim":
            return f"take {machines} back from {first.leaves}: {reason}"
        case "Delete":
            return f"give {machines} back to the cloud: {reason}"
    return f"{first.kind} {machines}: {reason}"
