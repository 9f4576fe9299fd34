"""The cluster's DaemonSets: what each takes from every node that matches it, so that this room is promised to no pod.

A condition that the wire cannot carry is left out, and so are alternatives. Such a daemon is counted on more nodes than
it runs on, so less room is promised than there is.
"""

from collections.abc import Sequence

import structlog

from bigfleet.kube.objects.kinds import DaemonSet, NodeSelectorRequirement, Pod
from bigfleet.kube.objects.pod_requests import asked
from bigfleet.model.demand.need import Daemon
from bigfleet.model.demand.profile import Operator, ProfileError, Requirement
from bigfleet.model.quantity import QuantityError
from bigfleet.model.resources import PODS, ResourceError, demand

_log = structlog.get_logger("bigfleet.operator")

_OPERATORS = {operator.label: operator for operator in Operator if operator is not Operator.SAME}


class Daemons:
    """The sink of a watch on DaemonSets."""

    def __init__(self) -> None:
        self._daemons: dict[tuple[str, str], Daemon] = {}

    def replaced(self, daemon_sets: Sequence[DaemonSet]) -> None:
        """The watch has listed anew: these are all DaemonSets."""
        self._daemons.clear()
        for daemon_set in daemon_sets:
            self.put(daemon_set)

    def put(self, daemon_set: DaemonSet) -> None:
        """A DaemonSet is new, or has changed."""
        key = daemon_set.metadata.namespace, daemon_set.metadata.name
        try:
            self._daemons[key] = _daemon(daemon_set)
        except (ProfileError, QuantityError, ResourceError) as error:
            self._daemons.pop(key, None)
            _log.warning("daemon_set_unreadable", namespace=key[0], name=key[1], error=str(error))

    def removed(self, daemon_set: DaemonSet) -> None:
        """A DaemonSet is gone."""
        self._daemons.pop((daemon_set.metadata.namespace, daemon_set.metadata.name), None)

    def all(self) -> tuple[Daemon, ...]:
        """What the DaemonSets take, in an order that does not depend on which came first."""
        return tuple(self._daemons[key] for key in sorted(self._daemons))


def _daemon(daemon_set: DaemonSet) -> Daemon:
    template = daemon_set.spec.template
    resources = asked(Pod(metadata=template.metadata, spec=template.spec))
    # Every pod takes one place on its node; the shard counts that place itself.
    resources.pop(PODS, None)
    return Daemon(_requirements(template.spec.node_selector, _term(daemon_set)), demand(resources))


def _term(daemon_set: DaemonSet) -> tuple[NodeSelectorRequirement, ...]:
    affinity = daemon_set.spec.template.spec.affinity
    required = None if affinity is None or affinity.node_affinity is None else affinity.node_affinity.required
    terms = () if required is None else required.node_selector_terms
    return terms[0].match_expressions if len(terms) == 1 else ()


def _requirements(
    selector: dict[str, str], expressions: tuple[NodeSelectorRequirement, ...]
) -> tuple[Requirement, ...]:
    found = [Requirement(key, Operator.IN, (value,)) for key, value in sorted(selector.items())]
    found += [
        Requirement(each.key, _OPERATORS[each.operator], each.values)
        for each in expressions
        if each.operator in _OPERATORS
    ]
    return tuple(found)
