"""Needs, conditions and amounts in short words, for every command that shows them to a person."""

from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Operator, Requirement, WhenUnsatisfiable
from bigfleet.model.resources import Resources, quantities


def conditions(need: Need) -> str:
    """What the machines of a need must be like, with short keys."""
    profile = need.profile
    parts = [condition(requirement, short(requirement.key)) for requirement in profile.requirements]
    for spread in profile.spread:
        strictness = "" if spread.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE else "rather "
        parts.append(f"{strictness}spread ≤ {spread.max_skew} over {short(spread.topology_key)}")
    if profile.max_per_machine:
        parts.append(f"at most {profile.max_per_machine} a machine")
    return ", ".join(parts) or "anything"


def condition(requirement: Requirement, key: str) -> str:
    """One requirement, its label called `key`."""
    values = "|".join(requirement.values)
    match requirement.operator:
        case Operator.IN:
            return f"{key} {values}"
        case Operator.NOT_IN:
            return f"{key} not {values}"
        case Operator.EXISTS:
            return f"any {key}"
        case Operator.DOES_NOT_EXIST:
            return f"no {key}"
        case Operator.SAME:
            return f"all in one {key}" + (f" of {values}" if values else "")


def amounts(vector: Resources) -> str:
    """A resource vector as Kubernetes writes it, with short names."""
    return ", ".join(f"{short(name)} {amount}" for name, amount in quantities(vector).items())


def count(number: int, noun: str) -> str:
    """A number of things, with the noun in the singular or the plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def short(key: str) -> str:
    """A label's key or a resource's name without its domain."""
    return key.rsplit("/", maxsplit=1)[-1]


def plain(text: str) -> str:
    """Foreign text without characters that would move a terminal's cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
