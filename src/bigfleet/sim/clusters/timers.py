"""What is to be done later, in the order of its time."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Timers(Generic[T]):
    """Acts to come. None is ever taken back: an act looks for itself whether it still has a point."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], T]]] = []
        self._order = itertools.count()

    def at(self, when: float, act: Callable[Concatenate[float, P], T], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have it done at that time, which comes before its other arguments."""
        heapq.heappush(self._heap, (when, next(self._order), lambda: act(when, *args, **kwargs)))

    def next(self) -> float | None:
        """When the first is due."""
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> Iterator[T]:
        """Do what is due and what that makes due, each as at its own time, however late this is."""
        while self._heap and self._heap[0][0] <= now:
            _, _, act = heapq.heappop(self._heap)
            yield act()
