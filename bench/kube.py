"""The programs that speak to Kubernetes: caches, roll-ups, the pod controller, and all of them together."""

from bench import kube_burst, kube_cache, kube_pods, kube_rollup
from bench.harness import Report


def run(report: Report) -> None:
    """Measure all four."""
    kube_cache.run(report)
    kube_rollup.run(report)
    kube_pods.run(report)
    kube_burst.run(report)
