"""One Failed machine, its operator and the part that recovers it, for tests that play its way out."""

import itertools

import pytest

from bigfleet.model.machine import Call, CapacityType, Host, Machine, MachineState
from bigfleet.shard.execution.effects import Instruct, Problem, ProviderCall, Settle
from bigfleet.shard.execution.recovery import (
    FIRST_SECONDS,
    Alert,
    Effect,
)
from bigfleet.shard.execution.steps import EMPTY_GRACE_SECONDS, TAKEN_BACK_GRACE_SECONDS
from tests.shard.execution.alone import RecoveryAlone

S = MachineState
M, P = "m-1", "sim"
GRACE = TAKEN_BACK_GRACE_SECONDS


class World:
    """One machine that is Failed, its operator, and the part that recovers it."""

    def __init__(self, cluster: str = "old", host: bool = True, ready: bool = False, session: bool = True) -> None:
        self.ready, self.session, self.bypass, self.reports = ready, session, False, True
        self.is_committed, self.is_usable, self.acts = False, True, True
        self.ids = itertools.count(1)
        self.now = 1000.0
        self.fenced: set[str] = set()
        self.recovery = RecoveryAlone(self, self.fenced)
        assert self.fails(cluster, host) == []

    # Surroundings

    def machine(self, machine_id: str) -> Machine | None:
        assert machine_id == M
        return self.seen

    def node_ready(self, machine_id: str) -> bool:
        assert machine_id == M
        return self.ready

    def has_session(self, cluster_id: str) -> bool:
        return self.session

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        return self.bypass

    def reports_drained(self, cluster_id: str) -> bool:
        return self.reports

    def committed(self, machine_id: str) -> bool:
        return self.is_committed

    def usable(self, machine_id: str) -> bool:
        return self.is_usable

    def may_act(self) -> bool:
        return self.acts

    def new_id(self) -> str:
        return f"id-{next(self.ids)}"

    # What happens

    def is_(self, state: MachineState, cluster: str = "", host: bool = True) -> Machine:
        self.seen: Machine | None = Machine(
            id=M,
            state=state,
            instance_type="c8",
            capacity_type=CapacityType.SPOT,
            host=Host(P, M) if host else None,
            cluster=cluster,
            last_error="boom" if state is S.FAILED else "",
        )
        return self.seen

    def fails(self, cluster: str = "old", host: bool = True) -> list[Effect]:
        return self.recovery.failed(self.is_(S.FAILED, cluster, host), P, self.now)

    def moves(self, state: MachineState, cluster: str = "", host: bool = True) -> list[Effect]:
        self.is_(state, cluster, host)
        return self.recovery.left(M)

    def acked(self, state: MachineState, cluster: str = "", host: bool = True) -> list[Effect]:
        return self.moves(state, cluster, host) + self.recovery.acknowledged(M, self.now)

    def refused(self, problem: Problem) -> list[Effect]:
        return self.recovery.call_failed(M, problem, self.now)

    def got(self) -> list[Effect]:
        return self.recovery.settled(M, self.now)

    def later(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.recovery.tick(self.now)

    def first(self) -> list[Effect]:
        return self.later(FIRST_SECONDS)

    def hinder(self, what: str) -> None:
        """Let nothing be done, for one reason or (empty) none."""
        self.is_committed, self.is_usable, self.acts = what == "committed", what != "unusable", what != "file"
        if what == "paused":
            self.recovery.pause(self.now)
        else:
            self.recovery.resume(self.now)

    def waits(self, most: int = 100_000) -> float:
        """Seconds until something other than a Get or an alert is wanted."""
        for seconds in range(most):
            effects = [effect for effect in self.later(1) if not isinstance(effect, Settle | Alert)]
            if effects:
                return 1.0 + seconds
        raise AssertionError(f"nothing for {most} s")


DRAIN = ProviderCall(M, P, Call.DRAIN, grace_seconds=GRACE)
DRAIN_EMPTY = ProviderCall(M, P, Call.DRAIN, grace_seconds=EMPTY_GRACE_SECONDS)
DRAIN_NOBODY = ProviderCall(M, P, Call.DRAIN)
DELETE = ProviderCall(M, P, Call.DELETE)
CREATE = ProviderCall(M, P, Call.CREATE)
HINDRANCES = pytest.mark.parametrize("what", ["committed", "unusable", "file", "paused"])
TELL = Instruct("old", "id-1", M, GRACE)


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]
