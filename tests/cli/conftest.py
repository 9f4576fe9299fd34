"""Many of these start whole shards."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled(compiled_engine: None) -> None:
    """All of them need it."""
