"""How long things took lately, by kind: what is expected of the next."""

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

_REMEMBERED = 64
_MOST_KINDS = 4096


class Medians:
    """The last times of each kind. Kinds are few: instance types."""

    def __init__(self, kept: Mapping[str, Iterable[float]] | None = None) -> None:
        self._seen = {kind: deque(seconds, _REMEMBERED) for kind, seconds in (kept or {}).items()}

    def add(self, kind: str, seconds: float) -> None:
        """It took so long."""
        if kind not in self._seen and len(self._seen) >= _MOST_KINDS:
            return
        self._seen.setdefault(kind, deque(maxlen=_REMEMBERED)).append(max(0.0, seconds))

    def of(self, kind: str) -> float | None:
        """The median of the kind, None before the first."""
        seen = self._seen.get(kind)
        return None if seen is None else median(seen)

    def overall(self) -> float | None:
        """The median over all kinds, None before the first."""
        seen = [seconds for times in self._seen.values() for seconds in times]
        return median(seen) if seen else None

    def kept(self) -> dict[str, tuple[float, ...]]:
        """For the local file."""
        return {kind: tuple(seen) for kind, seen in self._seen.items()}
