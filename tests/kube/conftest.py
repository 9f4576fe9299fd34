"""API servers whose every answer a test writes, and clients of theirs."""

from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from bigfleet.kube.client import Client
from tests.kube.scripted_server import (
    Server,
    Serving,
    refused,
    serve,
)


@pytest.fixture(scope="session")
def serving() -> Serving:
    """`async with serving(tls=None) as server`."""
    return serve


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serve() as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.config, qps=10_000, burst=10_000) as client:
        yield client


@pytest.fixture
def refusal() -> Callable[..., web.Response]:
    return refused
