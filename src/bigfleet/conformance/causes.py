"""Failures put together by their cause: one defect of a provider often breaks dozens of behaviours."""

from collections.abc import Iterable
from dataclasses import dataclass

from bigfleet.conformance.suite import Result


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, and the failures that it explains, in the order of their ids."""

    text: str
    results: tuple[Result, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the behaviours that broke."""
        return tuple(result.behaviour.id for result in self.results)


def causes(results: Iterable[Result]) -> list[Cause]:
    """The causes of all failures, in the order in which they are first met."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.cause:
            found.setdefault(result.cause, []).append(result)
    return [Cause(text, tuple(broken)) for text, broken in found.items()]
