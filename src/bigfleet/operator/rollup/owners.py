"""Who asks for each row: a few names, so that a person who sees a row of a shard knows whose it is.

Names decide nothing. Of each kind of request only a few are remembered, so that a quarter of a million cost nothing.
"""

from collections.abc import Callable, Hashable, Iterable

from bigfleet.wire.needs import MAX_OWNER, MAX_OWNERS

Key = tuple[str, str]
"""Namespace and name of a request."""

_SAMPLED = 8
"""How many requests of a kind are remembered. Several may have one owner."""

OwnerOfPod = Callable[[str], str]
"""The name of what owns the pod of a UID; the pod's own name where nothing does; empty for a pod that is not known."""


class Owners:
    """Some requests of each kind. Requests of a kind are always counted in one row."""

    def __init__(self) -> None:
        self._samples: dict[Hashable, dict[Key, str]] = {}
        self._kind_of: dict[Key, Hashable] = {}

    def put(self, key: Key, kind: Hashable, owner: str) -> None:
        """A request of this kind is there, and its owner has this name."""
        if self._kind_of.get(key, kind) != kind:
            self.remove(key)
        sample = self._samples.setdefault(kind, {})
        if key in sample or len(sample) < _SAMPLED:
            sample[key], self._kind_of[key] = owner, kind

    def remove(self, key: Key) -> None:
        """A request is gone, or no longer counts."""
        kind = self._kind_of.pop(key, None)
        if kind is not None:
            sample = self._samples[kind]
            del sample[key]
            if not sample:
                del self._samples[kind]

    def knows(self, kind: Hashable) -> bool:
        """Whether a request of the kind is remembered."""
        return kind in self._samples

    def samples(self) -> Iterable[dict[Key, str]]:
        """The requests that are remembered and the names of their owners, kind by kind."""
        return self._samples.values()


def told(names: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """At most so many of these (namespace, owner), in a fixed order."""
    found = sorted({f"{namespace}/{owner}"[:MAX_OWNER] for namespace, owner in names})
    return tuple(found[:MAX_OWNERS])
