"""Which test runs the commands of which page."""

from collections.abc import Iterator
from pathlib import Path

CHEAP = "tests/docs/test_pages.py"
"""Runs pages that take seconds, in `make test`."""

LONG = "tests/e2e/test_pages.py"
"""Runs pages that take longer or have a control plane, in `make e2e`."""

RUN_BY = {
    "docs/capacity-requests.md": CHEAP,
    "docs/dev-clusters.md": LONG,
    "docs/playground.md": LONG,
    "docs/provider-author-guide.md": "tests/providerkit/test_author_guide.py",
    "docs/quickstart.md": "tests/e2e/test_quickstart.py",
    "docs/running-a-shard.md": CHEAP,
    "docs/security.md": CHEAP,
    "docs/simulated-cloud.md": CHEAP,
    "docs/why-is-my-need-unmet.md": LONG,
}
"""The test that runs each page's commands from top to bottom."""

NEEDS = ("cloud", "cluster", "long")
"""What commands may need so that no test runs them: a cloud or hosts of the reader's, a cluster of the reader's, or
minutes and the reader's checkout itself.
"""


def pages(root: Path) -> Iterator[Path]:
    """Every page that a person reads."""
    yield root / "README.md"
    yield root / "CONTRIBUTING.md"
    yield from sorted((root / "docs").rglob("*.md"))
    yield from sorted((root / "examples").rglob("README.md"))


def run_by(test: str) -> list[str]:
    """The pages that this test runs."""
    return [name for name, by in RUN_BY.items() if by == test]
