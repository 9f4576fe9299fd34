"""What a pod takes from a node, against tables and against the pod's life told moment by moment."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.kube.objects.kinds import Pod
from bigfleet.kube.objects.pod_requests import asked
from bigfleet.model.quantity import QuantityError
from bigfleet.model.resources import demand


def pod(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Pod:
    return msgspec.convert({"metadata": {"name": "a"}, "spec": spec, "status": status or {}}, Pod)


def box(
    name: str = "main", limits: dict[str, Any] | None = None, sidecar: bool = False, **requests: Any
) -> dict[str, Any]:
    """A container; `cpu="1"` is a request."""
    made: dict[str, Any] = {"name": name, "resources": {"requests": requests, "limits": limits or {}}}
    return made | {"restartPolicy": "Always"} if sidecar else made


GPUS: dict[str, Any] = {"nvidia.com/gpu": 2}
HUGE: dict[str, Any] = {"hugepages-2Mi": "4Mi"}

CASES: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("one container", {"containers": [box(cpu="500m", memory="1Gi")]}, {"cpu": "500m", "memory": "1Gi"}),
    ("two add up", {"containers": [box(cpu="500m"), box("b", cpu="1500m")]}, {"cpu": "2"}),
    (
        "a small init container adds nothing",
        {"containers": [box(cpu="2")], "initContainers": [box("i", cpu="1")]},
        {"cpu": "2"},
    ),
    (
        "a large init container counts",
        {"containers": [box(cpu="2")], "initContainers": [box("i", cpu="3")]},
        {"cpu": "3"},
    ),
    (
        "init containers run one after the other",
        {"containers": [box(cpu="1")], "initContainers": [box("i", cpu="3"), box("j", cpu="4")]},
        {"cpu": "4"},
    ),
    (
        "each dimension has its own peak",
        {"containers": [box(cpu="1", memory="4Gi")], "initContainers": [box("i", cpu="3", memory="1Gi")]},
        {"cpu": "3", "memory": "4Gi"},
    ),
    (
        "a sidecar runs beside the containers",
        {"containers": [box(cpu="1")], "initContainers": [box("s", cpu="500m", sidecar=True)]},
        {"cpu": "1500m"},
    ),
    (
        "an init container after a sidecar runs beside it",
        {"containers": [box(cpu="1")], "initContainers": [box("s", cpu="2", sidecar=True), box("i", cpu="5")]},
        {"cpu": "7"},
    ),
    (
        "an init container before a sidecar does not",
        {"containers": [box(cpu="1")], "initContainers": [box("i", cpu="5"), box("s", cpu="2", sidecar=True)]},
        {"cpu": "5"},
    ),
    (
        "overhead comes on top",
        {"containers": [box(cpu="1")], "overhead": {"cpu": "250m", "memory": "64Mi"}},
        {"cpu": "1250m", "memory": "64Mi"},
    ),
    (
        "overhead comes on top of a large init container",
        {"containers": [box(cpu="1")], "initContainers": [box("i", cpu="3")], "overhead": {"cpu": "250m"}},
        {"cpu": "3250m"},
    ),
    (
        "a limit stands in for a missing request",
        {"containers": [box(limits={"cpu": "2", "memory": "1Gi"}, cpu="1")]},
        {"cpu": "1", "memory": "1Gi"},
    ),
    (
        "a request of zero is not missing, and leaves nothing",
        {"containers": [box(limits={"cpu": "2"}, cpu="0", memory="1Mi")]},
        {"memory": "1Mi"},
    ),
    (
        "extended resources and huge pages",
        {"containers": [box(**GPUS, **HUGE), box("b", **GPUS)]},
        {"hugepages-2Mi": "4Mi", "nvidia.com/gpu": "4"},
    ),
    ("a pod that asks for nothing takes a place", {"containers": [box()]}, {"pods": "1"}),
    ("so does one without any containers known", {}, {"pods": "1"}),
    (
        "fractions are summed before they are rounded",
        {"containers": [box(cpu="100u"), box("b", cpu="300u")]},
        {"cpu": "1m"},
    ),
    ("bytes round up to a KiB", {"containers": [box(memory="1025")]}, {"memory": "2Ki"}),
    (
        "requests of the whole pod replace the sum",
        {"containers": [box(cpu="1", memory="1Gi")], "resources": {"requests": {"cpu": "4"}}},
        {"cpu": "4", "memory": "1Gi"},
    ),
    ("also downwards", {"containers": [box(cpu="8")], "resources": {"requests": {"cpu": "4"}}}, {"cpu": "4"}),
    (
        "limits of the whole pod count where no container says",
        {"containers": [box(cpu="1")], "resources": {"limits": {"cpu": "4", "memory": "2Gi"}}},
        {"cpu": "1", "memory": "2Gi"},
    ),
    (
        "of the whole pod only cpu, memory and huge pages can be said",
        {"containers": [box(cpu="1")], "resources": {"requests": {"nvidia.com/gpu": "4", "hugepages-1Gi": "1Gi"}}},
        {"cpu": "1", "hugepages-1Gi": "1Gi"},
    ),
    (
        "overhead comes on top of the whole pod's",
        {"containers": [box(cpu="1")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "1"}},
        {"cpu": "5"},
    ),
]


@pytest.mark.parametrize(("spec", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_pod_asks_for(spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert asked(pod(spec)) == expected


def resized(wish: str, has: str, allocated: str, condition: dict[str, str] | None = None) -> dict[str, str]:
    status = {"name": "main", "resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": allocated}}
    conditions = [condition] if condition else []
    return asked(pod({"containers": [box(cpu=wish)]}, {"containerStatuses": [status], "conditions": conditions}))


@pytest.mark.parametrize(
    ("wish", "has", "allocated", "expected"),
    [("1", "2", "2", "2"), ("4", "2", "2", "4"), ("1", "1", "3", "3"), ("1", "1", "1", "1")],
)
def test_while_a_container_is_resized_the_largest_counts(wish: str, has: str, allocated: str, expected: str) -> None:
    assert resized(wish, has, allocated) == {"cpu": expected}


def test_a_resize_that_can_never_be_takes_nothing() -> None:
    never = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    later = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    assert resized("64", "2", "2", never) == {"cpu": "2"}
    assert resized("64", "2", "2", later) == {"cpu": "64"}


def test_a_sidecar_is_resized_and_an_init_container_is_not() -> None:
    status = [
        {"name": "s", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}},
        {"name": "i", "resources": {"requests": {"cpu": "9"}}, "allocatedResources": {"cpu": "9"}},
    ]
    inits = [box("s", cpu="1", sidecar=True), box("i", cpu="1")]
    made = pod({"containers": [box(cpu="1")], "initContainers": inits}, {"initContainerStatuses": status})
    assert asked(made) == {"cpu": "4"}


def test_what_is_no_quantity_is_said() -> None:
    with pytest.raises(QuantityError, match="fast"):
        asked(pod({"containers": [box(cpu="fast")]}))


Amounts = dict[str, int]
amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "x.io/gpu"]), st.integers(0, 9), max_size=3)


def told(vector: Amounts) -> dict[str, Any]:
    return {name: str(value * 1024) if name == "memory" else str(value) for name, value in vector.items()}


@given(st.lists(amounts, max_size=4), st.lists(st.tuples(st.booleans(), amounts), max_size=5), amounts)
def test_a_pod_asks_for_the_most_that_ever_runs_at_once(
    containers: list[Amounts], inits: list[tuple[bool, Amounts]], overhead: Amounts
) -> None:
    """The pod's life moment by moment: whatever runs at each of them, summed; then the highest of each dimension."""
    moments: list[list[Amounts]] = []
    staying: list[Amounts] = []
    for stays, vector in inits:
        moments.append([*staying, vector])
        if stays:
            staying.append(vector)
    moments.append([*staying, *containers])
    peak = {
        name: max(sum(vector.get(name, 0) for vector in running) for running in moments) + overhead.get(name, 0)
        for name in ("cpu", "memory", "x.io/gpu")
    }
    spec = {
        "containers": [box(f"c{i}", **told(vector)) for i, vector in enumerate(containers)],
        "initContainers": [box(f"i{i}", sidecar=stays, **told(vector)) for i, (stays, vector) in enumerate(inits)],
        "overhead": told(overhead),
    }
    assert demand(asked(pod(spec))) == (demand(told(peak)) or (("pods", 1),))
