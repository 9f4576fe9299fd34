"""Which machines a List asks for: by state, and by labels. Three labels are made from the machine's fields."""

from bigfleet.model.demand.profile import Operator, Requirement
from bigfleet.model.labels import of_fields, satisfies
from bigfleet.providerkit.ledger.entry import Entry
from bigfleet.providerkit.offer import Shape

MOST_REQUIREMENTS = 64
"""The most conditions that one List may have."""


class Selector:
    """Selects machines. Labels are compared once for each shape."""

    def __init__(self, states: frozenset[int], requirements: tuple[Requirement, ...]) -> None:
        self._states, self._requirements = states, requirements
        self._fits: dict[int, bool] = {}

    def admits(self, entry: Entry) -> bool:
        """Whether this machine is asked for."""
        if self._states and entry.state not in self._states:
            return False
        if not self._requirements:
            return True
        fits = self._fits.get(id(entry.shape))
        if fits is None:
            fits = self._fits[id(entry.shape)] = self._fitting(entry.shape)
        return fits

    def _fitting(self, shape: Shape) -> bool:
        labels = {**shape.labels, **of_fields(shape.instance_type, shape.zone, shape.capacity_type)}
        return all(satisfies(labels, requirement) for requirement in self._requirements)


def problem(requirements: tuple[Requirement, ...]) -> str:
    """What is wrong with a label selector, or an empty text."""
    if len(requirements) > MOST_REQUIREMENTS:
        return f"{len(requirements)} conditions, at most {MOST_REQUIREMENTS} are taken"
    if any(requirement.operator is Operator.SAME for requirement in requirements):
        return "SAME compares several machines and cannot select one"
    return ""
