"""What each cluster was told that it could still have, and when to look again. Events in, frames out.

A cluster is looked at right after its first roll-up and after a roll-up with a new profile, otherwise every
`AGAIN_SECONDS`. Where many clusters are due at once, those that have waited longest come first, as many as the time
since the last look allows.

*News.* A frame is sent when somebody would act on the difference: another confidence, another kind of machine, or
whether all could be had together. A count of 100 or more is cut to two digits; it is sent again when the last one told
promises too much, or 10 % too little. A price within 5 % of what was told is no news by itself, nor is a time within
20 % or 5 s.
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
"""How often a cluster is looked at. Since the shell asks every 10 s, no cluster waits for more than 30 s."""

AT_LEAST = 100
"""How many clusters may be looked at each time, however short the time since the last look."""

_EXACT = 100
"""A count below this is told as it is."""

_NEWS_COUNT = 11
"""A count is news when it is more than so many tenths of what was told."""

_NEWS_PRICE = 20
"""A price is news when it differs by more than one in so many of what was told."""

_NEWS_TIME, _NEWS_SECONDS = 5, 5
"""A time is news when it differs by more than one in so many of what was told, and by more than so many seconds."""

Eta = Callable[[str], float | None]
"""Seconds that a slot of an instance type takes to become a node; None before any was seen."""

_Confidence = pb.AvailableCapacityUpdate.Confidence


class _Told(msgspec.Struct, frozen=True, gc=False):
    """What an operator was told about one profile."""

    profile: Profile
    count: int = 0
    confidence: _Confidence.ValueType = pb.AvailableCapacityUpdate.CONFIDENCE_NONE
    cost: float = 0.0
    eta: int | None = None
    atomic: bool = False
    room: Resources = ()

    def frame(self) -> pb.AvailableCapacityUpdate:
        """The frame that tells the operator."""
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
    """One cluster."""

    def __init__(self, now: float) -> None:
        #: The fingerprints of the profiles in its last roll-up.
        self.profiles: frozenset[str] = frozenset()
        #: What the operator was told, by fingerprint.
        self.told: dict[str, _Told] = {}
        #: Fingerprints that a roll-up since the last look lacked: the operator has forgotten what it was told of them.
        self.left: set[str] = set()
        #: When the cluster is looked at again.
        self.due = now


class AvailableCapacity:
    """What each cluster was told that it could still have."""

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
        """The cluster is no longer known."""
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
        """The cluster was looked at. Returns the frames for it; a profile no longer asked for gets a last one."""
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
        """What the cluster was last told, for an operator that connects."""
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
    """How sure it is that the cluster could have one unit more."""
    if supply.idle:
        return pb.AvailableCapacityUpdate.CONFIDENCE_HIGH
    if supply.owned or supply.on_demand:
        return pb.AvailableCapacityUpdate.CONFIDENCE_MEDIUM
    return pb.AvailableCapacityUpdate.CONFIDENCE_LOW if supply.count else pb.AvailableCapacityUpdate.CONFIDENCE_NONE


def _eta(supply: Supply, eta: Eta) -> int | None:
    """Whole seconds until the first unit is a node; None for a preemption, whose time is not known."""
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
    if told.count < known.count or told.count * 10 > known.count * _NEWS_COUNT:
        return True
    if told.eta is None or known.eta is None:
        late = told.eta != known.eta
    else:
        late = abs(told.eta - known.eta) > max(_NEWS_SECONDS, known.eta // _NEWS_TIME)
    return late or abs(told.cost - known.cost) * _NEWS_PRICE > known.cost
