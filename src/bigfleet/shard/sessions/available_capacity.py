"""What each cluster was told that it could still have, and when to look again. Events in, frames out.

A cluster is looked at right after its first roll-up and after one with a new profile, else every `AGAIN_SECONDS`; of
many that are due at once the longest waiting come first, as many as the time since the last look allows.

*News.* A frame is sent when somebody would act on the difference: another confidence, another kind of machine, all
together or not. Counts of 100 and more are cut to two digits, and stand until they promise too much or 10 % too little;
a price within 5 % of what was told is no news by itself, nor is a time within 20 % or 5 s.
"""

import math
from collections.abc import Callable, Iterable

import msgspec

from bigfleet.engine.available import Available, Supply
from bigfleet.model.demand.profile import INT32_MAX, Profile
from bigfleet.model.resources import Resources, quantities
from bigfleet.wire.needs import requirements_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

AGAIN_SECONDS = 20.0
"""Asked every 10 s what is due, nobody waits for more than 30 s."""

AT_LEAST = 100
"""So many clusters may be looked at however soon that is asked."""

_EXACT = 100
"""Counts below are told as they are."""

Eta = Callable[[str], float | None]
"""Seconds until a slot of an instance type is a node, by what was seen; None before the first."""

_Confidence = pb.AvailableCapacityUpdate.Confidence


class _Told(msgspec.Struct, frozen=True, gc=False):
    """One profile as its operator knows it."""

    profile: Profile
    count: int = 0
    confidence: _Confidence.ValueType = pb.AvailableCapacityUpdate.CONFIDENCE_NONE
    cost: float = 0.0
    eta: int | None = None
    atomic: bool = False
    room: Resources = ()

    def frame(self) -> pb.AvailableCapacityUpdate:
        """The frame that says it."""
        return pb.AvailableCapacityUpdate(
            supersedes_key=f"available:{self.profile.fingerprint}",
            requirements=requirements_to_wire(self.profile.requirements),
            resources=provider_pb2.Resources(resources=quantities(self.room)),
            available_count=self.count,
            confidence=self.confidence,
            cost_per_hour=self.cost,
            eta_seconds=self.eta,
            atomic=self.atomic,
        )


class _Cluster:
    """One cluster: the profiles of its last roll-up, what it was told, and when it is looked at again."""

    def __init__(self, now: float) -> None:
        self.profiles: frozenset[str] = frozenset()
        self.told: dict[str, _Told] = {}
        # Those of them that were out of a roll-up since the last look: the operator has let go of what it was told.
        self.left: set[str] = set()
        self.due = now


class AvailableCapacity:
    """What could still be given to whom, as far as clusters have heard of it."""

    def __init__(self) -> None:
        self._clusters: dict[str, _Cluster] = {}
        self._asked = -math.inf

    def rolled_up(self, cluster_id: str, profiles: Iterable[Profile], now: float) -> None:
        """A roll-up with these profiles became the demand."""
        cluster = self._clusters.setdefault(cluster_id, _Cluster(now))
        fingerprints = frozenset(profile.fingerprint for profile in profiles)
        if not fingerprints <= cluster.profiles:
            cluster.due = min(cluster.due, now)
        cluster.left |= cluster.told.keys() - fingerprints
        cluster.profiles = fingerprints

    def forget(self, cluster_id: str) -> None:
        """The cluster is known no more."""
        self._clusters.pop(cluster_id, None)

    def due(self, now: float) -> list[str]:
        """The clusters to look at now."""
        share = min(1.0, (now - self._asked) / AGAIN_SECONDS)
        self._asked = now
        waiting = sorted((cluster.due, name) for name, cluster in self._clusters.items() if cluster.due <= now)
        return [name for _, name in waiting[: max(AT_LEAST, math.ceil(len(self._clusters) * share))]]

    def worked_out(
        self, cluster_id: str, answers: Iterable[Available], eta: Eta, now: float
    ) -> list[pb.AvailableCapacityUpdate]:
        """The cluster was looked at: what it must hear of. A profile that it asks for no more ends with nothing."""
        cluster = self._clusters.get(cluster_id)
        if cluster is None:
            return []
        cluster.due = now + AGAIN_SECONDS
        before, cluster.told = cluster.told, {}
        news = []
        for answer in answers:
            fingerprint = answer.profile.fingerprint
            told, known = _told(answer, eta), before.pop(fingerprint, None)
            if known is None or fingerprint in cluster.left or _is_news(told, known):
                known = told
                news.append(told)
            cluster.told[fingerprint] = known
        cluster.left.clear()
        return [told.frame() for told in (*news, *(_Told(gone.profile) for gone in before.values()))]

    def replay(self, cluster_id: str) -> list[pb.AvailableCapacityUpdate]:
        """What the cluster was told last, for an operator that connects."""
        cluster = self._clusters.get(cluster_id)
        return [] if cluster is None else [told.frame() for told in cluster.told.values()]


def _told(answer: Available, eta: Eta) -> _Told:
    supply = answer.supply
    return _Told(
        profile=answer.profile,
        count=_cut(min(supply.count, INT32_MAX)),
        confidence=_confidence(supply),
        cost=supply.price,
        eta=_eta(supply, eta),
        atomic=supply.atomic,
        room=supply.room,
    )


def _confidence(supply: Supply) -> _Confidence.ValueType:
    """How sure it is that one unit more could be had."""
    if supply.idle:
        return pb.AvailableCapacityUpdate.CONFIDENCE_HIGH
    if supply.owned or supply.on_demand:
        return pb.AvailableCapacityUpdate.CONFIDENCE_MEDIUM
    return pb.AvailableCapacityUpdate.CONFIDENCE_LOW if supply.count else pb.AvailableCapacityUpdate.CONFIDENCE_NONE


def _eta(supply: Supply, eta: Eta) -> int | None:
    """Whole seconds until the first of them is a node; how long a preemption takes is not known."""
    if supply.idle:
        return 0
    if not supply.count or supply.preemptible:
        return None
    seconds = eta(supply.instance_type)
    return None if seconds is None else math.ceil(seconds)


def _cut(count: int) -> int:
    """The count with all but its first two digits 0."""
    step = 1
    while count // step >= _EXACT:
        step *= 10
    return count // step * step


def _is_news(told: _Told, known: _Told) -> bool:
    if (told.confidence, told.atomic, told.room) != (known.confidence, known.atomic, known.room):
        return True
    if known.count < _EXACT and told.count != known.count:
        return True
    if told.count < known.count or told.count * 10 > known.count * 11:
        return True
    if told.eta is None or known.eta is None:
        late = told.eta != known.eta
    else:
        late = abs(told.eta - known.eta) > max(5, known.eta // 5)
    return late or abs(told.cost - known.cost) * 20 > known.cost
