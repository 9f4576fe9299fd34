"""What slows giving back: since when a cluster has had excess, what it gave lately, which machines would not empty.

Times are seconds on the shard's clock. The engine gets whole seconds, rounded up so that no machine goes early.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

WINDOW_SECONDS = 10.0
"""The rail limits reclaims in so many seconds, however many cycles there are in them (protocol rule 17)."""

_TIMER_SLACK = 0.05
"""How much early a timer may fire. A cycle is as long as the window, so the window must not end just after a cycle."""

GIVEN_UP_SECONDS = 30 * 60.0
"""How long a machine that would not empty is no candidate (protocol rule 14)."""


class GiveBackRails:
    """The excess and the reclaims of each cluster, and the machines that would not empty."""

    def __init__(self, excess_since: Mapping[str, float], holds: Mapping[str, float]) -> None:
        self._excess = dict(excess_since)
        self._given: dict[str, deque[float]] = {}
        self._holds = dict(holds)

    def with_excess(self) -> Iterable[str]:
        """The clusters that have excess."""
        return self._excess.keys()

    def excess(self, clusters: AbstractSet[str], now: float) -> set[str]:
        """These clusters, and no others, have excess. Returns the clusters for which that has changed."""
        changed = clusters ^ self._excess.keys()
        self._excess = {cluster: self._excess.get(cluster, now) for cluster in clusters}
        return changed

    def given_back(self, cluster: str, now: float) -> None:
        """A machine of the cluster is being reclaimed."""
        self._given.setdefault(cluster, deque()).append(now)

    def tick(self, now: float) -> set[str]:
        """Time has passed. Returns the clusters with fewer reclaims in their window than before."""
        changed = set()
        for cluster, times in list(self._given.items()):
            while times and now - times[0] >= WINDOW_SECONDS - _TIMER_SLACK:
                times.popleft()
                changed.add(cluster)
            if not times:
                del self._given[cluster]
        for machine_id in [machine_id for machine_id, until in self._holds.items() if until <= now]:
            del self._holds[machine_id]
        return changed

    def hold(self, machine_id: str, now: float) -> None:
        """The machine would not empty: it is no candidate for a while."""
        self._holds[machine_id] = now + GIVEN_UP_SECONDS

    def excess_since(self, cluster: str) -> int | None:
        """For ClusterRecord.excess_since: since when the cluster has had excess."""
        since = self._excess.get(cluster)
        return None if since is None else math.ceil(since)

    def in_window(self, cluster: str) -> int:
        """For ClusterRecord.reclaimed_in_window: how many machines the cluster gave in the window."""
        return len(self._given.get(cluster, ()))

    def hold_until(self, machine_id: str) -> int:
        """For MachineRecord.reclaim_hold_until: until when the machine is no candidate."""
        return math.ceil(self._holds.get(machine_id, 0.0))

    def kept(self) -> tuple[dict[str, float], dict[str, float]]:
        """What the local file holds: excess by cluster, holds by machine."""
        return dict(self._excess), dict(self._holds)
