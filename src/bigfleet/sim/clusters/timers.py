"""Acts that are to be done later, in the order of their times."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Timers(Generic[T]):
    """Acts to come. None is ever cancelled: an act checks by itself whether there is still something to do."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], T]]] = []
        self._order = itertools.count()

    def at(self, when: float, act: Callable[Concatenate[float, P], T], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have `act` called at `when`, which is passed to it as its first argument."""
        heapq.heappush(self._heap, (when, next(self._order), lambda: act(when, *args, **kwargs)))

    def next(self) -> float | None:
        """When the first act is due; None without any."""
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> Iterator[T]:
        """Do every act that is due, and those that they make due. Each is told its own time, however late it is."""
        while self._heap and self._heap[0][0] <= now:
            _, _, act = heapq.heappop(self._heap)
            yield act()
