"""Fixtures that several rooms share: certificates made on the spot, and a gRPC server that tells what it sees."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, settings

from bigfleet.transport.address import TCPAddress
from bigfleet.transport.grpc_options import SERVER_OPTIONS
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from tests.shared.certificates import PKI
from tests.shared.mirror import Ask, Mirror, Serve
from tests.shared.program import heed_signals_in_children

# How long an example takes says how busy the machine is.
settings.register_profile("bigfleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bigfleet")

heed_signals_in_children()

LONGEST = (
    *("tests/examples", "tests/conformance/test_conformance_self.py", "tests/conformance", "tests/providerkit"),
    *("tests/faults", "tests/shard/test_day.py", "tests/cli", "tests/engine", "tests/shard/rules", "tests/sim"),
)
"""What takes longest, in the order of the run: no worker shall be left alone with it at the end.

What needs the compiled engine comes after what does without, so that from a cold cache it is compiled meanwhile.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((at for at, room in enumerate(LONGEST) if item.nodeid.startswith(room)), len(LONGEST))

    items.sort(key=place)


@pytest.fixture(scope="session")
def compiled_engine() -> None:
    """The engine runs compiled in this process; whoever comes first builds it, and others wait for that."""
    # The compiler takes longer to import than most tests run.
    from bigfleet.engine.compiled.ensure import ensure

    ensure()


@pytest.fixture
def pki(tmp_path: Path) -> PKI:
    return PKI(tmp_path)


@pytest.fixture
def ask() -> Ask:
    """`await ask(channel, method, request)`: one call to the mirror."""

    async def asking(channel: grpc.aio.Channel, method: str, request: bytes) -> bytes:
        call = channel.unary_unary(f"/mirror/{method}", request_serializer=bytes, response_deserializer=bytes)
        return await call(request, timeout=30)

    return asking


@pytest.fixture
def serve() -> Serve:
    """`async with serve(tls) as port`: a mirror on a free loopback port with the options of every server of ours."""

    @asynccontextmanager
    async def serving(tls: LiveTLS | None) -> AsyncIterator[int]:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers((Mirror(),))
        port = bind(server, TCPAddress("127.0.0.1", 0), None if tls is None else tls.server_credentials())
        await server.start()
        try:
            yield port
        finally:
            await server.stop(None)

    return serving
