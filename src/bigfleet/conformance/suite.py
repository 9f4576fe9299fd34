"""A behaviour with its id and its check, and the result of a check."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from bigfleet.conformance.workbench.bench import Bench

_IDS_OF_AN_AREA = 100

Check = Callable[[Bench], Awaitable[None]]
"""Returns if the behaviour holds; raises BrokenError if it does not, NotApplicableError if it cannot be shown."""


class Profile(StrEnum):
    """A set of behaviours that a provider may have; every provider has the core."""

    CORE = "core"
    CLOUD = "cloud"
    BARE_METAL = "bare-metal"
    SPOT = "spot"
    SCALE = "scale"
    DURABLE = "durable"
    FAULT = "fault"


class Phase(StrEnum):
    """When a check runs, and beside which others."""

    TOGETHER = "together"
    """First, several checks at a time."""
    ALONE = "alone"
    """After those, one check at a time."""
    LAST = "last"
    """At the end, one check at a time: the check judges what the whole run has seen."""


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One sentence that must hold for a provider, and the check that shows whether it does."""

    id: str
    sentence: str
    check: Check
    profile: Profile
    phase: Phase
    own_shards: bool
    """The check uses up shard ids. Over TLS there is only the certificate's, so the check is skipped."""

    @property
    def number(self) -> int:
        """The id's number, by which behaviours are ordered."""
        return int(self.id[1:])

    @property
    def area(self) -> int:
        """The area that the id belongs to: 3 for B301, 12 for B1201."""
        return self.number // _IDS_OF_AN_AREA


@dataclass(frozen=True, slots=True)
class Result:
    """How the check of one behaviour ended."""

    behaviour: Behaviour
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    cause: str = ""
    """Of a failure: why, without numbers and ids. Failures that share a cause are reported together."""
    unchecked: str = ""
    """Of a skipped behaviour that applies to the provider: the word by which the verdict names it as not checked."""


class Area:
    """The behaviours of one area. Its decorator `check` registers the check of a behaviour."""

    def __init__(self, number: int, title: str) -> None:
        self.number = number
        self.title = title
        self.behaviours: list[Behaviour] = []

    def check(
        self,
        behaviour_id: str,
        sentence: str,
        profile: Profile = Profile.CORE,
        *,
        phase: Phase = Phase.TOGETHER,
        own_shards: bool = False,
    ) -> Callable[[Check], Check]:
        """Register the decorated function as the check of this behaviour."""

        def register(check: Check) -> Check:
            self.behaviours.append(Behaviour(behaviour_id, sentence, check, profile, phase, own_shards))
            return check

        return register


_MOST_AREA_DIGITS = 2
_SELECTOR = re.compile(r"B([0-9]{1,2}|[0-9]{3,4})", re.IGNORECASE)


def selects(selector: str, behaviour: Behaviour) -> bool:
    """True if a selector (`B3` an area, `B301` one behaviour) names this behaviour."""
    match = _SELECTOR.fullmatch(selector.strip())
    if match is None:
        return False
    number = int(match[1])
    return behaviour.area == number if len(match[1]) <= _MOST_AREA_DIGITS else behaviour.number == number
