"""What every API server of a test has in common: it listens on loopback, and refuses with a Status."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


@asynccontextmanager
async def listening(app: web.Application, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[int]:
    """Serve the application on this port, or on a free one; the port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def status(code: int, reason: str = "", message: str = "", **details: Any) -> dict[str, Any]:
    """A refusal, as API servers send it."""
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return said | {"reason": reason, "message": message, "details": details}
