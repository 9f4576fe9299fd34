"""What a shard must not do yet because it has just started (protocol rule 9)."""

from collections.abc import Iterable

from bigfleet.model.machine import Machine, MachineState
from bigfleet.shard.supply.table import Supply

PREEMPT_WAIT_SECONDS = 15 * 60.0
"""How long at most a shard without its file waits, before it preempts, for what was under way at its start."""

_UNDER_WAY = (MachineState.CREATING, MachineState.DRAINING)


class Startup:
    """Which providers have still to list, and what was under way when they first did."""

    def __init__(self, supply: Supply, providers: tuple[str, ...], has_file: bool, now: float) -> None:
        self._supply, self._providers, self._has_file, self._started = supply, providers, has_file, now
        self._all_listed = False
        # Machines that were under way at the start, for whom nobody knows: the file that would tell was lost.
        self._unsettled: set[str] = set()

    @property
    def unsettled(self) -> int:
        """How many machines that were under way at the start still are."""
        return len(self._unsettled)

    def listed_first(self, machines: Iterable[Machine]) -> None:
        """A provider was listed in full for the first time, with these machines."""
        if not self._has_file:
            self._unsettled.update(machine.id for machine in machines if machine.state in _UNDER_WAY)

    def moved(self, machine_id: str) -> None:
        """The machine has changed its state, or is gone."""
        self._unsettled.discard(machine_id)

    def has_listed_all(self) -> bool:
        """Whether every provider has been listed in full. Says so once."""
        if self._all_listed or not self._have_listed():
            return False
        self._all_listed = True
        return True

    def may_acquire(self) -> bool:
        """Whether machines may be acquired: without its file, a shard waits until every provider has listed."""
        return self._has_file or self._have_listed()

    def may_preempt(self, now: float) -> bool:
        """Whether machines may be preempted: a shard without its file waits for those that were under way, too."""
        waited = now - self._started >= PREEMPT_WAIT_SECONDS
        return self.may_acquire() and (waited or not self._unsettled)

    def _have_listed(self) -> bool:
        return all(map(self._supply.has_listed, self._providers))
