"""One need as a person understands it: what it asks, what it has, why it is short and what to do about it."""

import shlex

import msgspec

from bigfleet.cli.wording import amounts, condition, count, short
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Operator, WhenUnsatisfiable
from bigfleet.model.resources import MAX_TOTAL, Resources, demand
from bigfleet.wire.needs import need_from_wire
from bigfleet.wire.v1alpha1 import shardread_pb2 as pb

_NANOS = 10**9


class InspectedNeed(msgspec.Struct, frozen=True):
    """A need in a shard's answer, read and checked."""

    view: pb.NeedView
    """The need and what became of it, as the shard sent it."""
    need: Need
    missing: Resources
    """What the last decision left without a place."""

    @property
    def missing_units(self) -> int:
        """How many of its units have no place; a divisible need has no units to count."""
        unit = dict(self.need.unit)
        return max((-(-amount // unit[name]) for name, amount in self.missing if name in unit), default=0)


class Explanation(msgspec.Struct, frozen=True):
    """Why a need is short, and the next step."""

    why: str
    next: str


def inspected_need(view: pb.NeedView) -> InspectedNeed:
    """The need in a frame of the answer; WireError or ResourceError for a frame that breaks the contract."""
    return InspectedNeed(view, need_from_wire(view.need), demand(dict(view.residual_deficit.resources), MAX_TOTAL))


def asks(need: Need) -> str:
    """How much a need asks for, in its own units."""
    if not need.unit:
        return f"{amounts(need.aggregate)}, cut anywhere"
    return f"{count(need.units, 'unit')} of {amounts(need.unit)}"


def has(each: InspectedNeed) -> str:
    """What a need has, on how many machines, and how many of those the last decision chose."""
    machines, new = each.view.claimed_machine_count, each.view.bootstrap_count + each.view.provision_count
    where = f" on {count(machines, 'machine')}" + (f", {new:,} new" if new else "") if machines else ""
    if each.view.satisfied:
        return f"all{where}"
    if not each.need.unit:
        return f"some{where}" if machines else "nothing"
    return f"{each.need.units - each.missing_units:,} of {each.need.units:,}{where}"


def missing(each: InspectedNeed) -> str:
    """What a need lacks."""
    if each.view.satisfied:
        return "-"
    return f"{count(each.missing_units, 'unit')}: {amounts(each.missing)}" if each.need.unit else amounts(each.missing)


def on_their_way(view: pb.NeedView) -> str:
    """The machines that the last decision chose for a need."""
    idle, created = view.bootstrap_count, view.provision_count
    parts = ([f"{idle} idle"] if idle else []) + ([f"{created} to be created"] if created else [])
    return ", ".join(parts) or "-"


def unmet_for(view: pb.NeedView, header: pb.InspectNeedsHeader) -> str:
    """For how long a need has been short. The shard counts cycles, and changed demand brings one sooner."""
    if view.satisfied:
        return "-"
    cycles, each = view.age_cycles_unmet, header.cycle_interval_millis / 1000
    most = f" (up to {span(round(cycles * each))} at {each:g} s each)" if each else ""
    return count(cycles, "cycle") + most


def waits(view: pb.NeedView) -> bool:
    """Whether a need is covered by machines that do not serve yet."""
    return view.satisfied and view.cause != pb.NEED_CAUSE_UNSPECIFIED


def explain(each: InspectedNeed, header: pb.InspectNeedsHeader) -> Explanation:
    """Why the pods of a need wait. A shard that is not ours names no cause, and then its reason has to do."""
    view, need = each.view, each.need
    if view.cause == pb.NEED_CAUSE_UNSPECIFIED:
        return _by_reason(view, need)
    since = (header.computed_at_unix_nanos - view.cause_since_unix_nanos) // _NANOS
    held = f" This has been so for {span(since)}." if view.cause_since_unix_nanos and since > 0 else ""
    return Explanation(f"{view.cause_text}{held}", _next_step(view, need))


def _next_step(view: pb.NeedView, need: Need) -> str:
    """What to do about a cause."""
    like = _like(need)
    match view.cause:
        case pb.NEED_CAUSE_OPERATOR_AWAY:
            return (
                "Bring its operator back, or see why it cannot reach this shard; if the cluster is gone for good, "
                f"`bigfleetctl clusters forget {shlex.quote(view.cluster_id)} --yes` gives its machines back."
            )
        case pb.NEED_CAUSE_NO_MATCH:
            return "Check its requirements for a label or a value that no machine has, or add such machines."
        case pb.NEED_CAUSE_TOO_LARGE:
            return f"Ask for smaller pods, or add larger machines {like}."
        case pb.NEED_CAUSE_TOO_FEW:
            return f"Add machines {like}, or ask for less."
        case pb.NEED_CAUSE_DOMAIN_TOO_SMALL:
            return _to_do_for_gang(need)
        case pb.NEED_CAUSE_SKEW:
            return _to_do_for_spread(need)
        case pb.NEED_CAUSE_OUT_OF_STOCK:
            return "Wait, or let its requirements allow other instance types or zones."
        case pb.NEED_CAUSE_PREEMPTION_EXHAUSTED:
            return _to_do_for_preemptor(like)
        case pb.NEED_CAUSE_OUTRANKED:
            return _to_do_for_outranked(need, like)
    return _NEXT_STEPS.get(view.cause, "Look at the shard's log.")


_NEXT_STEPS: dict[int, str] = {
    pb.NEED_CAUSE_FALL_DOUBTED: "Wait: the shard believes the fall after three such roll-ups over a minute. If the "
    "fall is not meant, see why the operator reports so little.",
    pb.NEED_CAUSE_BOOTSTRAP_FAILED: "Mend what the operator's log says about the bootstrap; the shard tries again by "
    "itself.",
    pb.NEED_CAUSE_PAUSED: "See `bigfleetctl status`; `bigfleetctl resume` ends a pause.",
    pb.NEED_CAUSE_FILE_UNWRITABLE: "Make room on the shard's disk, or mend the permissions of its data directory.",
    pb.NEED_CAUSE_PROVIDER_UNREACHABLE: "Bring the provider back; `bigfleetctl status` shows when it was last listed.",
    pb.NEED_CAUSE_MACHINES_FAILED: "See at the provider why they fail; the shard tries again by itself.",
    pb.NEED_CAUSE_MACHINES_ON_THEIR_WAY: "Wait; `kubectl get upcomingnodes` in the cluster shows how far each one is.",
}
"""What to do about causes for which the need itself does not matter."""


def _by_reason(view: pb.NeedView, need: Need) -> Explanation:
    """What the reason of a shard that is not ours says."""
    like = _like(need)
    match view.unmet_reason:
        case pb.UNMET_REASON_NO_MATCHING_SUPPLY:
            return Explanation(
                f"The shard has too few machines {like} for it, or none.", f"Add machines {like}, or ask for less."
            )
        case pb.UNMET_REASON_TOPOLOGY_UNSATISFIABLE if need.profile.same:
            return Explanation("Machines match, but no one domain holds the gang.", _to_do_for_gang(need))
        case pb.UNMET_REASON_TOPOLOGY_UNSATISFIABLE:
            return Explanation("Machines match, but the skew forbids to use them.", _to_do_for_spread(need))
        case pb.UNMET_REASON_PRIORITY_STARVED:
            return Explanation("Other needs have the machines that match.", _to_do_for_outranked(need, like))
        case pb.UNMET_REASON_PREEMPTION_EXHAUSTED:
            return Explanation(
                "It takes every machine of lower needs that it may, and that is not enough.", _to_do_for_preemptor(like)
            )
    return Explanation("The shard gives no reason.", "Look at the shard's log.")


def span(seconds: int) -> str:
    """A length of time in its two largest units."""
    parts: list[str] = []
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        whole, seconds = divmod(seconds, size)
        if whole or (name == "s" and not parts):
            parts.append(f"{whole} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def _to_do_for_gang(need: Need) -> str:
    domain = _domain(need)
    return f"Make the gang smaller, let it share something wider than one {domain}, or add machines to one {domain}."


def _to_do_for_spread(need: Need) -> str:
    hard = [each for each in need.profile.spread if each.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE]
    domains = " or ".join(short(each.topology_key) for each in hard)
    return f"Add machines in the emptiest {domains}, raise maxSkew, or make the spread ScheduleAnyway."


def _to_do_for_preemptor(like: str) -> str:
    return f"Wait for those to drain, which may take 10 min, and add machines {like} for the rest."


def _to_do_for_outranked(need: Need, like: str) -> str:
    return f"Raise its priority above {need.profile.priority}, or add machines {like}."


def _domain(need: Need) -> str:
    """What the machines of a gang share one of."""
    return " and ".join(short(each.key) for each in need.profile.same)


def _like(need: Need) -> str:
    """Which machines would help, with whole keys: a typo in one is a common cause."""
    parts = [condition(each, each.key) for each in need.profile.requirements if each.operator is not Operator.SAME]
    return f"with {', '.join(parts)}" if parts else "of any kind"
