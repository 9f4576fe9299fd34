"""Behaviours with their ids, and what became of each."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from bigfleet.conformance.workbench.bench import Bench

Check = Callable[[Bench], Awaitable[None]]
"""Returns if the behaviour holds; raises BrokenError if it does not, NotApplicableError if it cannot be shown."""


class Profile(StrEnum):
    """What a provider may be beyond the core."""

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
    ALONE = "alone"
    LAST = "last"


class Outcome(StrEnum):
    """What became of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One sentence that must hold, and the check that shows it."""

    id: str
    sentence: str
    check: Check
    profile: Profile
    phase: Phase
    own_shards: bool

    @property
    def number(self) -> int:
        """The id's number, by which behaviours are ordered."""
        return int(self.id[1:])

    @property
    def area(self) -> int:
        """The hundred that the id belongs to: 3 for B301, 12 for B1201."""
        return self.number // 100


@dataclass(frozen=True, slots=True)
class Result:
    """What one check came to."""

    behaviour: Behaviour
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


class Area:
    """The behaviours of one hundred; a decorator puts each check in its place."""

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
        """Register a check. `own_shards`: it needs shard ids that it may use up, which a certificate does not give."""

        def register(check: Check) -> Check:
            self.behaviours.append(Behaviour(behaviour_id, sentence, check, profile, phase, own_shards))
            return check

        return register


_SELECTOR = re.compile(r"B([0-9]{1,2}|[0-9]{3,4})", re.IGNORECASE)


def selects(selector: str, behaviour: Behaviour) -> bool:
    """True if a selector (`B3` an area, `B301` one behaviour) names this behaviour."""
    match = _SELECTOR.fullmatch(selector.strip())
    if match is None:
        return False
    number = int(match[1])
    return behaviour.area == number if len(match[1]) <= 2 else behaviour.number == number
