"""Tests of faults run whole shards."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled(compiled_engine: None) -> None:
    """All of them need it."""
