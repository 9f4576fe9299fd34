"""Lifecycle and recovery without the rest of a shard: each with tables and an actuation of its own."""

from collections.abc import Iterator

from bigfleet.shard.execution import recovery
from bigfleet.shard.execution.actuation import Actuation
from bigfleet.shard.execution.commitment import Commitment, Commitments
from bigfleet.shard.execution.effects import Effect
from bigfleet.shard.execution.lifecycle import Lifecycle
from bigfleet.shard.execution.next_step import ExecutionLookups
from bigfleet.shard.execution.operator_requests import OperatorRequests


def acting() -> Actuation:
    """Nothing keeps the shard from acting."""
    return Actuation(1, dry_run=False, paused=False, pause_reason="", now=0.0)


class LifecycleAlone(Lifecycle):
    """A lifecycle with its commitments, which a pause reaches directly."""

    def __init__(self, lookups: ExecutionLookups, blob_seconds: float) -> None:
        self.fenced: set[str] = set()
        super().__init__(lookups, Commitments(OperatorRequests()), acting(), self.fenced, blob_seconds)

    def __iter__(self) -> Iterator[Commitment]:
        return iter(self._commitments)

    def __len__(self) -> int:
        return len(self._commitments)

    def get(self, machine_id: str) -> Commitment | None:
        return self._commitments.get(machine_id)

    def pause(self, now: float) -> list[Effect]:
        return self.held() if self._actuation.pause("", now) else []

    def resume(self, now: float) -> list[Effect]:
        held_since = self._actuation.resume(now)
        return [] if held_since is None else self.released_from_hold(held_since, now)


class RecoveryAlone(recovery.Recovery):
    """A recovery which a pause reaches directly."""

    def __init__(self, lookups: recovery.RecoveryLookups, fenced: set[str]) -> None:
        super().__init__(lookups, OperatorRequests(), acting(), fenced)

    def pause(self, now: float) -> list[recovery.Effect]:
        return self.held(now) if self._actuation.pause("", now) else []

    def resume(self, now: float) -> list[recovery.Effect]:
        return [] if self._actuation.resume(now) is None else self.tick(now)
