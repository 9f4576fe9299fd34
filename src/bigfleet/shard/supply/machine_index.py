"""Machines by cluster: those that are bound to it, and those that a commitment is to bind to it.

A machine that has left a cluster is remembered for a while: a late report about it is no offence (protocol rule 30).
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

_REMEMBERED_SECONDS = 3600.0
"""How long it is remembered that a machine has left a cluster."""

_NONE: frozenset[str] = frozenset()


class MachineIndex:
    """Machines by cluster, and clusters by machine."""

    def __init__(self) -> None:
        self._clusters: dict[str, frozenset[str]] = {}
        self._machines: dict[str, set[str]] = {}
        self._left: dict[tuple[str, str], float] = {}

    def concern(self, machine_id: str, clusters: Iterable[str], now: float) -> AbstractSet[str]:
        """The machine concerns these clusters now. Returns the clusters that it no longer concerns."""
        before, after = self._clusters.get(machine_id, _NONE), frozenset(clusters)
        if before == after:
            return _NONE
        for cluster in after - before:
            self._machines.setdefault(cluster, set()).add(machine_id)
            self._left.pop((machine_id, cluster), None)
        for cluster in before - after:
            self._machines[cluster].discard(machine_id)
            if not self._machines[cluster]:
                del self._machines[cluster]
            self._left[machine_id, cluster] = now
        if after:
            self._clusters[machine_id] = after
        else:
            del self._clusters[machine_id]
        return before - after

    def of(self, cluster: str) -> AbstractSet[str]:
        """The machines that concern a cluster."""
        return self._machines.get(cluster, _NONE)

    def clusters(self, machine_id: str) -> AbstractSet[str]:
        """The clusters that a machine concerns."""
        return self._clusters.get(machine_id, _NONE)

    def has_left(self, machine_id: str, cluster: str) -> bool:
        """Whether the machine concerned the cluster lately and no longer does."""
        return (machine_id, cluster) in self._left

    def forget(self, now: float) -> None:
        """Forget which machines left a cluster long ago."""
        for pair in [pair for pair, at in self._left.items() if now - at >= _REMEMBERED_SECONDS]:
            del self._left[pair]
