"""A real HTTP server on loopback that plays the API server's part, answer by answer as a test writes them."""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bigfleet.kube.access.server import ServerConfig
from tests.shared.api_server import listening, status

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    """Answers with the next of `answers`, or else as `behave` does. Keeps what it was asked."""

    url: str = ""
    answers: list[web.Response | Behaviour] = field(default_factory=list)
    behave: Behaviour | None = None
    asked: list[Asked] = field(default_factory=list)

    @property
    def config(self) -> ServerConfig:
        return ServerConfig(server=self.url)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        parsed = json.loads(body) if body else None
        # The path as it was sent: names are one part of it, whatever they hold.
        path = request.raw_path.partition("?")[0]
        self.asked.append(Asked(request.method, path, dict(request.query), dict(request.headers), parsed))
        answer = self.answers.pop(0) if self.answers else self.behave
        assert answer is not None, f"nobody said how to answer {request.method} {request.rel_url}"
        return answer if isinstance(answer, web.Response) else await answer(request)


Serving = Callable[..., AbstractAsyncContextManager[Server]]


@asynccontextmanager
async def serve(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with listening(app, tls) as port:
        server.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        yield server


def refused(code: int, reason: str = "", message: str = "", **details: Any) -> web.Response:
    return web.json_response(status(code, reason, message, **details), status=code)
