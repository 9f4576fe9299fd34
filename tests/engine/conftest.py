"""Tests of the engine run it as it is compiled."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled(compiled_engine: None) -> None:
    """All of them need it."""
