"""Resource vectors: what a unit asks for and what a machine has, in whole integers.

Quantities become integers once, at the edge: cpu in millicores; memory, storage and huge pages in KiB (five
million machines of 24 TiB sum to 1.3e17, well inside 63 bits); everything else in whole units. Demand rounds up
and supply rounds down, so no rounding ever makes demand look covered that is not.
"""

from collections.abc import Iterable, Mapping

from bigfleet.model.quantity import Format, Quantity, QuantityError, parse

Resources = tuple[tuple[str, int], ...]
"""Sorted (name, units) pairs, every unit count above zero. Hashable, and equal exactly when the vectors are."""

MAX_UNITS = 2**44
"""The most that one machine offers or one unit asks for: 16 PiB, 17 billion cores, 17 trillion of anything else."""

MAX_TOTAL = 2**62
"""The most that a sum may come to: 262,144 of the largest units, and twice that still fits 63 bits."""

MAX_NAME_LENGTH = 317
"""A qualified name: a DNS prefix of 253 characters, a slash, a name of 63."""

_NANO = 10**9
_MILLI_NANO = 10**6
_KIB_NANO = 1024 * _NANO
_BYTES = frozenset({"memory", "storage", "ephemeral-storage"})

PODS = "pods"
"""The resource of which every unit takes at least one: places for pods on a machine."""


class ResourceError(ValueError):
    """A resource whose name or quantity cannot be taken; carries the name."""

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(f"resource {name!r}: {problem}")


def unit_nano(name: str) -> int:
    """How many billionths of the base unit one counted unit of this resource is."""
    if name == "cpu":
        return _MILLI_NANO
    if name in _BYTES or name.startswith("hugepages-"):
        return _KIB_NANO
    return _NANO


def demand(quantities: Mapping[str, str | int], limit: int = MAX_UNITS) -> Resources:
    """The vector that pods ask for, rounded up."""
    return _vector(quantities, limit, up=True)


def supply(quantities: Mapping[str, str | int]) -> Resources:
    """The vector that a machine offers, rounded down."""
    return _vector(quantities, MAX_UNITS, up=False)


def _vector(quantities: Mapping[str, str | int], limit: int, *, up: bool) -> Resources:
    pairs = []
    for name, text in quantities.items():
        if not name or len(name) > MAX_NAME_LENGTH:
            raise ResourceError(name[:64], f"a resource name has 1 to {MAX_NAME_LENGTH} characters")
        try:
            amount = parse(text)
        except QuantityError as error:
            raise ResourceError(name, str(error)) from None
        if amount.nano < 0:
            raise ResourceError(name, f"{text!r} is negative")
        units = amount.ceil(unit_nano(name)) if up else amount.floor(unit_nano(name))
        if units > limit:
            raise ResourceError(name, f"{text!r} is more than {quantity(name, limit)} and cannot be counted")
        if units:
            pairs.append((name, units))
    pairs.sort()
    return tuple(pairs)


def quantity(name: str, units: int) -> str:
    """The canonical Kubernetes string for so many units of a resource."""
    unit = unit_nano(name)
    return str(Quantity(units * unit, Format.BINARY_SI if unit == _KIB_NANO else Format.DECIMAL_SI))


def quantities(vector: Resources) -> dict[str, str]:
    """The vector as Kubernetes writes it."""
    return {name: quantity(name, units) for name, units in vector}


def total(parts: Iterable[tuple[Resources, int]]) -> Resources:
    """The sum of vectors, each multiplied by the number beside it."""
    sums: dict[str, int] = {}
    for vector, times in parts:
        for name, units in vector:
            sums[name] = sums.get(name, 0) + units * times
    for name, units in sums.items():
        if units > MAX_TOTAL:
            raise ResourceError(name, f"the sum is more than {quantity(name, MAX_TOTAL)} and cannot be counted")
    return tuple(sorted(sums.items()))


def largest(vectors: Iterable[Resources]) -> Resources:
    """The largest entry of each dimension: the smallest unit into which every one of the vectors fits."""
    peaks: dict[str, int] = {}
    for vector in vectors:
        for name, units in vector:
            if units > peaks.get(name, 0):
                peaks[name] = units
    return tuple(sorted(peaks.items()))
