"""The sentences in which causes are told to people. Each names its subject and stands by itself."""

from collections.abc import Mapping

from bigfleet.engine.candidates import HeldShape, Size
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import Resources, quantities

DRY_RUN = "The shard is in a dry run, so nothing that it decides is carried out."

_MOST_REASON = 300
"""How many characters a sentence quotes of somebody else's words."""

_ON_THEIR_WAY = {
    MachineState.SPECULATIVE: "to be created",
    MachineState.CREATING: "being created",
    MachineState.IDLE: "to be configured",
    MachineState.CONFIGURING: "being configured",
    MachineState.DRAINING: "being drained for it",
    MachineState.DELETING: "to be created anew",
    MachineState.FAILED: "failed",
}
"""What a machine that is chosen for a need waits for, by its state."""


def away(cluster: str) -> str:
    """The operator has no session."""
    return (
        f"The operator of cluster {cluster} has no session, so the shard keeps what the cluster has and acquires "
        "nothing for it."
    )


def fall_doubted(cluster: str, reason: str) -> str:
    """A roll-up is in quarantine."""
    return (
        f"A roll-up of cluster {cluster} that asks for far less waits for confirmation, and this need is from the "
        f"roll-up before ({_quoted(reason)})."
    )


def bootstrap_failed(said: str, seconds: float) -> str:
    """The need is held out."""
    return f"No machine could be configured for this profile{_because(said)}. The shard tries again {_in(seconds)}."


def no_match(need: Need) -> str:
    """No machine has the labels."""
    parts = [_condition(each) for each in need.profile.requirements]
    if need.profile.interruption is PenaltyBucket.PINNED:
        parts.append("a capacity type other than Spot, since its interruption penalty is pinned")
    return f"This shard knows no machine with {' and '.join(parts)}." if parts else "This shard knows no machine."


def too_large(need: Need, largest: Size) -> str:
    """No machine holds one unit."""
    has = f"The largest machine that matches is {largest.instance_type}, which leaves {_amounts(largest.room)} to pods."
    unit = f"One unit asks for {_amounts(need.unit)}" if need.unit else "The need may be cut anywhere"
    return f"{unit}, and no machine that matches is large enough. {has}"


def too_few(need: Need, machines: int, units: int) -> str:
    """All that match are too few."""
    return (
        f"All {machines:,} machines that match would hold {units:,} of its {need.units:,} units, even if they were "
        "empty."
    )


def domain_too_small(need: Need) -> str:
    """No one domain holds the gang."""
    skew_too = " within its skew" if hard_spreads(need) else ""
    return (
        f"Enough machines match, but no one {_domain(need)} holds all {need.units:,} units{skew_too}, even if it were "
        "empty. Nothing is done for the gang until that changes."
    )


def skew(need: Need, machines: int) -> str:
    """The fleet lies too unevenly."""
    return (
        f"{machines:,} machines match, which would be enough, but they lie too unevenly for {_skews(need)}: what would "
        "exceed the skew does not count."
    )


def free_and_uneven(need: Need, machines: int) -> str:
    """What is free lies too unevenly."""
    return (
        f"{machines:,} free machines match, but {_skews(need)} forbids to use them: the other domains have none free."
    )


def paused(reason: str) -> str:
    """The shard is paused."""
    return f"The shard is paused ({_quoted(reason) or 'by flag'}), so nothing that it decides is carried out."


def stood_down(reason: str) -> str:
    """Another process is this shard."""
    return f"The shard has stood down, since another goes by its name ({_quoted(reason)}); nothing is done."


def file_unwritable(problem: str) -> str:
    """The local file cannot be written."""
    return f"The shard cannot write its local file{_because(problem)}. No action begins until it can."


def unreachable(provider: str, machines: int, problem: str) -> str:
    """A provider does not answer."""
    has = f", which has {machines:,} free machines that match," if machines else ""
    return f"Provider {provider}{has} does not answer{_because(problem)}."


def out_of_stock(shape: HeldShape, said: str, seconds: float, more: int) -> str:
    """Shapes are held out."""
    others = f" The same holds for {more:,} more kinds of machines that match." if more else ""
    kind = f"{shape.capacity_type.label} {shape.instance_type} in zone {shape.zone}"
    return f"The provider is out of stock of {kind}{_because(said)}. The shard tries again {_in(seconds)}.{others}"


def machines_failed(machines: int, example: str, said: str, seconds: float) -> str:
    """Machines that would serve have failed."""
    which = (
        f"1 machine that matches failed lately, {example}"
        if machines == 1
        else (f"{machines:,} machines that match failed lately, {example} among them")
    )
    return f"{which}{_because(said)}. It is tried again {_in(seconds)}."


def on_their_way(states: Mapping[MachineState, int]) -> str:
    """The need's machines do not serve yet."""
    total = sum(states.values())
    parts = [f"{number:,} {_ON_THEIR_WAY.get(state, state.label)}" for state, number in sorted(states.items())]
    return f"It waits for {total:,} {'machine' if total == 1 else 'machines'} on the way: {', '.join(parts)}."


def preemption_exhausted(victims: int) -> str:
    """Victims are not enough."""
    return f"It takes all {victims:,} machines of lower needs that it may, and that is not enough."


def outranked(need: Need, machines: int) -> str:
    """Others have the machines."""
    where = f", but in each {_domain(need)} that could hold the gang" if need.profile.same else ", but"
    return (
        f"{machines:,} machines match, which would be enough{where} needs of higher or equal rank have them, or they "
        "may not be taken from the needs that have them."
    )


def hard_spreads(need: Need) -> list[Spread]:
    """The spreads that are rules and no wishes."""
    return [each for each in need.profile.spread if each.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE]


def _skews(need: Need) -> str:
    return " and ".join(f"a skew of {each.max_skew} over {each.topology_key}" for each in hard_spreads(need))


def _domain(need: Need) -> str:
    return " and ".join(each.key for each in need.profile.same)


def _condition(requirement: Requirement) -> str:
    values = " or ".join(requirement.values)
    match requirement.operator:
        case Operator.IN:
            return f"{requirement.key} {values}"
        case Operator.NOT_IN:
            return f"{requirement.key} other than {values}"
        case Operator.EXISTS:
            return f"any {requirement.key}"
        case Operator.DOES_NOT_EXIST:
            return f"no {requirement.key}"
        case Operator.SAME:
            return f"{requirement.key} {values}" if values else f"any {requirement.key}"


def _amounts(vector: Resources) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in quantities(vector).items()) or "nothing"


def _because(said: str) -> str:
    quoted = _quoted(said)
    return f": {quoted}" if quoted else ""


def _quoted(said: str) -> str:
    return said.strip().rstrip(".")[:_MOST_REASON]


def _in(seconds: float) -> str:
    """When something is tried again."""
    if seconds <= 0:
        return "soon"
    return f"in {seconds:.0f} s" if seconds < 120 else f"in {seconds / 60:.0f} min"
