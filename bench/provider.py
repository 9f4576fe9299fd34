"""The provider side: what the kit takes in, what the client reads, and what the simulated cloud holds."""

from bench import provider_client, provider_cloud, provider_kit
from bench.harness import Report


def run(report: Report) -> None:
    """Measure all three."""
    provider_kit.run(report)
    provider_client.run(report)
    provider_cloud.run(report)
