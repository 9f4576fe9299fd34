"""What a pod takes from a node, counted as kube-scheduler counts it.

Containers run together, and with them the init containers that never end (sidecars). Any other init container runs
before them, beside the sidecars started so far. The larger of the two sums counts, and the runtime's overhead is added.
Sums are exact, and rounded up once at the end.
"""

from collections.abc import Mapping

from bigfleet.kube.objects.kinds import Container, ContainerStatus, Pod
from bigfleet.model.quantity import parse
from bigfleet.model.resources import PODS, quantity, unit_nano

_Sum = dict[str, int]

_SIDECAR = "Always"
_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"


def asked(pod: Pod) -> dict[str, str]:
    """The resources of the pod's request; a pod that asks for nothing takes a place on a node all the same.

    Raises QuantityError for what no API server lets in.
    """
    total = _containers(pod)
    _apply_pod_level(total, pod)
    _add(total, _nano(pod.spec.overhead))
    units = {name: -(-nano // unit_nano(name)) for name, nano in total.items()}
    return {name: quantity(name, units[name]) for name in sorted(units) if units[name] > 0} or {PODS: "1"}


def _containers(pod: Pod) -> _Sum:
    statuses = {status.name: status for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    infeasible = any(
        condition.type == "PodResizePending" and condition.status == "True" and condition.reason == "Infeasible"
        for condition in pod.status.conditions
    )
    running: _Sum = {}
    for container in pod.spec.containers:
        _add(running, _container(container, statuses.get(container.name), infeasible))
    starting: _Sum = {}
    sidecars: _Sum = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == _SIDECAR:
            asks = _container(container, statuses.get(container.name), infeasible)
            _add(running, asks)
            _add(sidecars, asks)
        else:
            # An init container cannot be resized, so its status does not matter.
            asks = _container(container, None, infeasible)
            _add(asks, sidecars)
            _raise(starting, asks)
    _raise(running, starting)
    return running


def _container(container: Container, status: ContainerStatus | None, infeasible: bool) -> _Sum:
    """One container's requests. During a resize, the largest of what it has, was promised and asks for."""
    resources = container.resources
    wish = {} if resources is None else _nano({**resources.limits, **resources.requests})
    if status is None or status.resources is None:
        return wish
    # A resize that the node can never grant does not count.
    held = {} if infeasible else wish
    _raise(held, _nano(status.resources.requests))
    _raise(held, _nano(status.allocated_resources))
    return held


def _apply_pod_level(total: _Sum, pod: Pod) -> None:
    """Requests of the pod as a whole replace the sum of its containers; its limits stand in where neither says."""
    if pod.spec.resources is None:
        return
    limits = {name: value for name, value in pod.spec.resources.limits.items() if name not in total}
    for name, nano in _nano({**limits, **pod.spec.resources.requests}).items():
        if name in _POD_LEVEL or name.startswith(_HUGE_PAGES):
            total[name] = nano


def _nano(quantities: Mapping[str, str | int]) -> _Sum:
    return {name: parse(text).nano for name, text in quantities.items()}


def _add(total: _Sum, part: Mapping[str, int]) -> None:
    for name, nano in part.items():
        total[name] = total.get(name, 0) + nano


def _raise(total: _Sum, floor: Mapping[str, int]) -> None:
    for name, nano in floor.items():
        total[name] = max(total.get(name, nano), nano)
