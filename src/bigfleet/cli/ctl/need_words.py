"""One need as a person understands it: what it asks, what it has, why it is short and what to do about it."""

import shlex

import msgspec

from bigfleet.cli.wording import amounts, condition, count, short
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Operator, WhenUnsatisfiable
from bigfleet.model.resources import MAX_TOTAL, Resources, demand
from bigfleet.wire.needs import need_from_wire
from bigfleet.wire.v1alpha1 import shardread_pb2 as pb
from bigfleet.wire.v1alpha1.shardadmin_pb2 import ClusterStanding

CYCLE_SECONDS = 10
"""The default time between two decisions. A shard may be configured otherwise, and changed demand brings one sooner."""


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


def unmet_for(view: pb.NeedView) -> str:
    """For how long a need has been short. The shard counts cycles; the time that they took is only known roughly."""
    if view.satisfied:
        return "-"
    cycles = view.age_cycles_unmet
    return f"{count(cycles, 'cycle')} (up to {span(cycles * CYCLE_SECONDS)} at {CYCLE_SECONDS} s each)"


def explain(each: InspectedNeed, cluster: ClusterStanding | None) -> Explanation:
    """Why a need is short. `cluster` is how its shard sees the cluster; None where that is not known."""
    view, need = each.view, each.need
    if cluster is not None and not cluster.live:
        name = cluster.cluster_id
        return Explanation(
            f"The operator of cluster {name} has had no session for {span(cluster.seconds_away)}, so the shard keeps "
            "what the cluster has and acquires nothing for it.",
            "Bring its operator back, or see why it cannot reach this shard; if the cluster is gone for good, "
            f"`bigfleetctl clusters forget {shlex.quote(name)} --yes` gives its machines back.",
        )
    # A shard of somebody else's may park a need for other reasons. Ours, which is known by its cluster standings, has
    # only this reason left here.
    if cluster is not None and view.acquisition_parked and view.same_satisfiable:
        return Explanation(
            "The cluster's operator had no user data for a machine of this profile, so the shard holds the need out: 1 "
            "min, then twice as long each time, up to 1 h.",
            "Mend what the operator's log says about the bootstrap; the shard tries again by itself.",
        )
    like = _like(need)
    match view.unmet_reason:
        case pb.UNMET_REASON_NO_MATCHING_SUPPLY:
            return _no_supply(each, like)
        case pb.UNMET_REASON_TOPOLOGY_UNSATISFIABLE:
            return _no_place(need)
        case pb.UNMET_REASON_PRIORITY_STARVED:
            enough = f"Enough machines of one {_domain(need)} match" if need.profile.same else "Enough machines match"
            return Explanation(
                f"{enough}, but needs of higher or equal rank have them, or they cannot be had now: failed lately, out "
                "of stock, or of a provider that does not answer.",
                f"Raise its priority above {need.profile.priority}, or add machines {like}; `bigfleetctl status` shows "
                "providers that do not answer.",
            )
        case pb.UNMET_REASON_PREEMPTION_EXHAUSTED:
            return Explanation(
                "It takes every machine of lower needs that it may, and that is not enough.",
                f"Wait for those to drain, which may take 10 min, and add machines {like} for the rest.",
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


def _no_supply(each: InspectedNeed, like: str) -> Explanation:
    if each.view.claimed_machine_count:
        return Explanation(
            f"All machines of this shard {like} would not hold its {each.need.units:,} units, even if they were empty.",
            "Add such machines, or ask for less.",
        )
    unit = f"holds one unit ({amounts(each.need.unit)})" if each.need.unit else "has something of it free"
    few = f", or too few to hold all {each.need.units:,} units even if they were empty" if each.need.unit else ""
    return Explanation(
        f"This shard knows no machine {like} that {unit}{few}.",
        "Check its requirements for a label or a value that no machine has, and its size; if both are meant so, add "
        "such machines.",
    )


def _no_place(need: Need) -> Explanation:
    hard = [each for each in need.profile.spread if each.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE]
    if need.profile.same:
        domain, skew = _domain(need), " within its skew" if hard else ""
        return Explanation(
            f"Enough machines match, but no one {domain} holds all {need.units:,} units{skew}, even if it were empty; "
            "nothing is done for it until that changes.",
            f"Make the gang smaller, let it share something wider than one {domain}, or add machines to one {domain}.",
        )
    skews = " and ".join(f"{each.max_skew} over {short(each.topology_key)}" for each in hard)
    domains = " or ".join(short(each.topology_key) for each in hard)
    return Explanation(
        f"Enough machines match, but they lie too unevenly for a skew of {skews}: what would exceed it does not count.",
        f"Add machines in the emptiest {domains}, raise maxSkew, or make the spread ScheduleAnyway.",
    )


def _domain(need: Need) -> str:
    """What the machines of a gang share one of."""
    return " and ".join(short(each.key) for each in need.profile.same)


def _like(need: Need) -> str:
    """Which machines would help, with whole keys: a typo in one is a common cause."""
    parts = [condition(each, each.key) for each in need.profile.requirements if each.operator is not Operator.SAME]
    return f"with {', '.join(parts)}" if parts else "of any kind"
