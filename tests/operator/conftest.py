"""A clock and an API server that tests of the operator share."""

import pytest

from tests.operator.fakes import FakeClock, FakeServer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock) -> FakeServer:
    return FakeServer(clock)
