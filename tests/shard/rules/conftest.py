"""Whole shards with a compiled engine and quiet logs: a rule is judged by what the shard does."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def _compiled(compiled_engine: None) -> None:
    """All of them need it."""
