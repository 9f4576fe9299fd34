"""A server with no object in it, and controllers that run against it."""

from collections.abc import AsyncIterator

import pytest

from tests.podcontroller.api_server import ApiServer, api_server


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server
