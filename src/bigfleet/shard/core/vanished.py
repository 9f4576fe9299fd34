"""Bound machines that are gone (protocol rule 7). One loss is one line in the log, however long it took to see."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

_MOST_WAIT = 60.0
"""How long after the first machine of a loss the loss is told at the latest."""


class Loss(NamedTuple):
    """Machines of one provider that are gone."""

    provider: str
    #: How many machines each cluster has lost.
    clusters: Counter[str]

    @property
    def machines(self) -> int:
        """How many machines are gone."""
        return sum(self.clusters.values())


class Vanished:
    """Losses that are not told yet, by provider."""

    def __init__(self) -> None:
        self._losses: dict[str, tuple[float, Loss]] = {}

    def lost(self, provider: str, cluster: str, now: float) -> None:
        """A machine that served the cluster, or was about to, is gone."""
        _, loss = self._losses.setdefault(provider, (now, Loss(provider, Counter())))
        loss.clusters[cluster] += 1

    def told(self, goes_on: Callable[[str], bool], now: float) -> list[Loss]:
        """Take the losses that are to be told now. `goes_on` says whether more machines of a provider may be gone."""
        due = [
            provider
            for provider, (since, _) in self._losses.items()
            if now - since >= _MOST_WAIT or not goes_on(provider)
        ]
        return [self._losses.pop(provider)[1] for provider in due]
