"""Requests: what one CapacityRequest asks for, reduced to a profile, a gang and a unit size."""

import contextlib
import hashlib
import json
from collections.abc import Iterator

import msgspec

from bigfleet.model.crd import CapacityRequestSpec, CoLocation
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Profile, ProfileError, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.quantity import QuantityError
from bigfleet.model.resources import PODS, ResourceError, Resources, demand

_CACHE_LIMIT = 65536

_OPERATORS = {operator.label: operator for operator in Operator}
_MODES = {mode.label: mode for mode in WhenUnsatisfiable}


class RequestError(ValueError):
    """A request that cannot become demand; names the request and the field at fault."""

    def __init__(self, name: str, field: str, problem: str) -> None:
        self.name, self.field, self.problem = name, field, problem
        super().__init__(f"CapacityRequest {name}: {field}: {problem}")


class Unit(msgspec.Struct, frozen=True, gc=False):
    """One request as aggregation sees it: what kind of demand it is, and how much."""

    profile: Profile
    group: str
    """The name of its gang; empty for plain demand."""
    size: Resources
    place: tuple[str, str]
    """The profile's fingerprint and the group. Units that agree in both add up."""


class Reader:
    """Turns specs into units. Equal parts are read once: real clusters have few kinds of pods, sizes and gangs."""

    def __init__(self) -> None:
        self._units: dict[tuple[object, ...], Unit] = {}
        self._profiles: dict[tuple[object, ...], Profile] = {}
        self._groups: dict[tuple[object, ...], str] = {}

    def unit(self, spec: CapacityRequestSpec, namespace: str, name: str) -> Unit:
        """The unit that this spec asks for, or RequestError."""
        where = spec.co_location
        gang = None
        if where is not None:
            selector = where.label_selector
            gang = (namespace, where.topology_key, tuple(selector.match_labels.items()), selector.match_expressions)
        kind = (
            spec.requirements,
            spec.priority,
            spec.interruption_penalty,
            spec.reclamation_penalty,
            spec.topology_spread,
            spec.max_per_node,
            None if where is None else where.topology_key,
        )
        key = (tuple(spec.resources.items()), kind, gang)
        unit = self._units.get(key)
        if unit is None:
            if len(self._units) >= _CACHE_LIMIT:
                for cache in (self._units, self._profiles, self._groups):
                    cache.clear()
            full_name = f"{namespace}/{name}"
            profile = self._profiles.get(kind)
            if profile is None:
                profile = self._profiles[kind] = _profile(spec, full_name)
            group = ""
            if gang is not None and where is not None:
                group = self._groups.get(gang) or self._groups.setdefault(gang, _group(namespace, where))
            with _naming(full_name, "spec."):
                # A pod that asks for nothing still takes a place on a node.
                size = demand(spec.resources) or ((PODS, 1),)
            unit = Unit(profile, group, size, (profile.fingerprint, group))
            self._units[key] = unit
        return unit


def _profile(spec: CapacityRequestSpec, name: str) -> Profile:
    requirements = []
    for i, r in enumerate(spec.requirements):
        with _naming(name, f"spec.requirements[{i}]."):
            requirements.append(Requirement(r.key, _OPERATORS[r.operator], r.values))
    spread = []
    for i, s in enumerate(spec.topology_spread):
        with _naming(name, f"spec.topologySpread[{i}]."):
            spread.append(Spread(s.topology_key, s.max_skew, _MODES[s.when_unsatisfiable]))
    if spec.co_location is not None:
        if not spec.co_location.topology_key:
            raise RequestError(name, "spec.coLocation.topologyKey", "is empty")
        requirements.append(Requirement(spec.co_location.topology_key, Operator.SAME))
    with _naming(name, "spec."):
        return Profile(
            requirements=tuple(requirements),
            spread=tuple(spread),
            priority=spec.priority,
            interruption=_bucket("interruptionPenalty", spec.interruption_penalty),
            reclamation=_bucket("reclamationPenalty", spec.reclamation_penalty),
            max_per_machine=spec.max_per_node or 0,
        )


@contextlib.contextmanager
def _naming(name: str, place: str) -> Iterator[None]:
    """Let an error about a part of a request name the request and the field, which begins with `place`."""
    try:
        yield
    except ProfileError as error:
        # The error uses the field's name in the manifest, which is the name that its author knows.
        raise RequestError(name, place + _camel(error.field), error.problem) from None
    except ResourceError as error:
        raise RequestError(name, f"{place}resources[{error.name}]", error.problem) from None


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(map(str.capitalize, rest))


def _bucket(field: str, dollars: str | int) -> PenaltyBucket:
    try:
        return PenaltyBucket.from_dollars(dollars)
    except QuantityError as error:
        raise ProfileError(field, str(error)) from None


def _group(namespace: str, where: CoLocation) -> str:
    """The gang's name: equal for the requests of one namespace that select the same pods for the same domain."""
    selector = where.label_selector
    expressions = sorted((e.key, e.operator, sorted(e.values)) for e in selector.match_expressions)
    canonical = [namespace, where.topology_key, sorted(selector.match_labels.items()), expressions]
    text = json.dumps(canonical, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=12).hexdigest()
