"""What speaks to Kubernetes: caches, roll-ups and the pod controller, the last two on a real control plane."""

from bench import kube_cache, kube_pods, kube_rollup
from bench.harness import Report


def run(report: Report) -> None:
    """Measure all of it."""
    kube_cache.run(report)
    kube_rollup.run(report)
    kube_pods.run(report)
