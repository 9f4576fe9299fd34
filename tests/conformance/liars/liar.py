"""What a liar is: a provider with one defect, and the behaviour that names it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.reference import Reference

# Long enough for calls that are sent together to fall into, on a busy computer too.
TICK = 0.2


@dataclass(frozen=True)
class Liar:
    """A defect, who names it, and the sort of provider it is planted in."""

    make: type[Reference]
    named_by: str
    # Which behaviours still pass beside it.
    spares: tuple[str, ...]
    # Whether it meets the whole suite, or only those behaviours and the one that names it.
    whole: bool
    options: dict[str, Any]


LIARS: dict[str, Liar] = {}


def liar(
    named_by: str, *, whole: bool = False, spares: tuple[str, ...] = ("B208", "B215", "B902"), **options: Any
) -> Callable[[type[Reference]], type[Reference]]:
    """Put a class into the table under its name."""

    def register(make: type[Reference]) -> type[Reference]:
        LIARS[make.__name__] = Liar(make, named_by, spares, whole, options)
        return make

    return register
