"""One machine, its operators and the execute part, for tests that play the life of one action."""

import itertools
from collections.abc import Iterable

from bigfleet.engine.records import Action, Kind, Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import Call, CapacityType, Host, Machine, MachineState
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.execution.effects import (
    Effect,
    Ended,
    Held,
    HoldOut,
    Keep,
    Outcome,
    Problem,
    ProviderCall,
)
from bigfleet.shard.execution.steps import EMPTY_GRACE_SECONDS, Step
from tests.shard.execution.alone import LifecycleAlone

S = MachineState
BOUND = frozenset({S.CONFIGURING, S.CONFIGURED, S.DRAINING})
BLOB_SECONDS = 60.0
GRACE = 600
M, P = "m-1", "sim"


def stamp(number: int) -> Stamp:
    return Stamp(NeedKey("f", "", ()), 100, PenaltyBucket.ZERO, PenaltyBucket.ZERO, number)


ACTIONS = {
    Kind.BOOTSTRAP: Action(Kind.BOOTSTRAP, M, "prod", "short", 0, stamp(7)),
    Kind.PROVISION: Action(Kind.PROVISION, M, "prod", "short", 0, stamp(7)),
    Kind.PREEMPT: Action(Kind.PREEMPT, M, "prod", "short", GRACE, stamp(7)),
    Kind.RECLAIM: Action(Kind.RECLAIM, M, "old", "excess", GRACE),
    Kind.DELETE: Action(Kind.DELETE, M, "", "idle"),
}


class World:
    """One machine, its operators, and the execute part that acts on them. Every effect is kept, in order."""

    def __init__(self, state: MachineState, cluster: str = "old", sessions: Iterable[str] = ("prod", "old")) -> None:
        self.sessions, self.bypass, self.reports = set(sessions), False, True
        self.ids = itertools.count(1)
        self.now = 1000.0
        self.execute = LifecycleAlone(self, BLOB_SECONDS)
        self.is_(state, cluster)

    # Surroundings

    def machine(self, machine_id: str) -> Machine | None:
        assert machine_id == M
        return self.seen

    def provider(self, machine_id: str) -> str:
        assert machine_id == M
        return P

    def holds(self, commitment: Commitment, machine: Machine) -> bool:
        number = None if commitment.stamp is None else {"number": str(commitment.stamp.number)}
        return machine.cluster == commitment.cluster and machine.shard_metadata == number

    def has_session(self, cluster_id: str) -> bool:
        return cluster_id in self.sessions

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        return self.bypass

    def reports_drained(self, cluster_id: str) -> bool:
        return self.reports

    def new_id(self) -> str:
        return f"id-{next(self.ids)}"

    # What happens

    def is_(self, state: MachineState, cluster: str = "old", number: int = 1) -> None:
        """The machine is as last seen."""
        bound = state in BOUND
        self.seen: Machine | None = Machine(
            id=M,
            state=state,
            instance_type="c8",
            capacity_type=CapacityType.SPOT,
            host=None if state in (S.SPECULATIVE, S.CREATING) else Host(P, M),
            cluster=cluster if bound else "",
            shard_metadata={"number": str(number)} if bound else {},
            last_error="boom" if state is S.FAILED else "",
        )

    def moved(self, state: MachineState, cluster: str = "old", number: int = 1) -> list[Effect]:
        self.is_(state, cluster, number)
        return self.execute.moved(M, self.now)

    def acked(self, state: MachineState, cluster: str = "old", number: int = 1) -> list[Effect]:
        self.is_(state, cluster, number)
        return self.execute.acknowledged(M, self.now)

    def got(self, state: MachineState, cluster: str = "old", number: int = 1) -> list[Effect]:
        self.is_(state, cluster, number)
        return self.execute.settled(M, self.now)

    def start(self, kind: Kind) -> list[Effect]:
        self.execute.decided(ACTIONS[kind], self.now)
        return self.execute.begin([M], self.now)

    def lost(self) -> list[Effect]:
        return self.execute.call_failed(M, Problem.UNAVAILABLE, "no answer")

    def later(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.execute.tick(self.now)

    def restart(self, paused: bool = False) -> list[Effect]:
        """A new life with what the old one wrote down; its clock goes on, as if no time had passed."""
        left = list(self.execute)
        self.execute = LifecycleAlone(self, BLOB_SECONDS)
        if paused:
            self.execute.pause(self.now)
        return self.execute.restore(left, self.now)

    @property
    def step(self) -> Step | None:
        commitment = self.execute.get(M)
        return None if commitment is None else commitment.step


def without_keeps(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Keep)]


def outcome(effects: list[Effect]) -> Outcome:
    return next(effect.outcome for effect in effects if isinstance(effect, Ended))


def held(effects: list[Effect]) -> list[Held]:
    return [effect.held for effect in effects if isinstance(effect, HoldOut)]


DRAIN_EMPTY = ProviderCall(M, P, Call.DRAIN, grace_seconds=EMPTY_GRACE_SECONDS)
CONFIGURE = ProviderCall(M, P, Call.CONFIGURE, "prod", stamp(7), b"blob")
