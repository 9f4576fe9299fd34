"""The HTTP endpoint of every program: /metrics, /healthz and /readyz, served by aiohttp.

The endpoint runs on an event loop and a thread of its own, so that it still answers when the program's loop is stuck.
Peers are bounded in head size, in time and in number. A connection serves one request.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from http import HTTPStatus
from typing import Self

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry

from bigfleet.telemetry.health import Heartbeat, Readiness
from bigfleet.telemetry.metrics import expose

_MAX_HEAD_BYTES = 8192
_MAX_CONNECTIONS = 64
_START_SECONDS = 10.0
# From connecting to the last byte taken by the client.
_CONNECTION_SECONDS = 10.0
# How long the body of a request is read and dropped after its answer, so that it does not reset the answer.
_LINGER_SECONDS = 1.0
_METHODS = ("GET", "HEAD")
_VERSIONS = (HttpVersion10, HttpVersion11)

_Handle = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class HealthEndpoint:
    """Serves a registry, a readiness and a heartbeat on a listening socket, which it owns from then on."""

    def __init__(
        self, listener: socket.socket, registry: CollectorRegistry, readiness: Readiness, heartbeat: Heartbeat
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._registry = registry
        self._readiness = readiness
        self._heartbeat = heartbeat
        self._routes = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        self._server: _BoundedServer | None = None
        self._thread: threading.Thread | None = None
        self._stopping: _Handle | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def connections(self) -> int:
        """How many peers are connected now."""
        return 0 if self._server is None else self._server.open

    def start(self) -> None:
        """Serve until `stop`; returns once connections are answered."""
        serving: Future[_Handle] = Future()
        # A daemon, so that a program that dies without stopping it is not kept alive.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(serving)), name="health", daemon=True)
        self._thread.start()
        self._stopping = serving.result(timeout=_START_SECONDS)

    def stop(self) -> None:
        """Close the socket and every connection, and wait for the thread to end."""
        if self._stopping is not None and self._thread is not None:
            loop, stop = self._stopping
            loop.call_soon_threadsafe(stop.set)
            self._thread.join()
            self._stopping = self._thread = None
        self._listener.close()

    async def _serve(self, serving: "Future[_Handle]") -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._server = connections = _BoundedServer(self._answer)
        server = await loop.create_server(connections, sock=self._listener)
        serving.set_result((loop, stop))
        await stop.wait()
        server.close()
        connections.cut_all()
        await connections.shutdown(timeout=0)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        route = self._routes.get(request.path)
        if request.version not in _VERSIONS:
            answer = _text(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.0 or HTTP/1.1 is spoken here\n")
        elif route is None:
            answer = _text(HTTPStatus.NOT_FOUND, "there are " + ", ".join(self._routes) + "\n")
        elif request.method not in _METHODS:
            answer = _text(HTTPStatus.METHOD_NOT_ALLOWED, "use GET or HEAD\n")
            answer.headers["Allow"] = ", ".join(_METHODS)
        else:
            answer = route(request.headers.get("Accept", ""))
        # The library would name itself and its version to every peer.
        answer.headers["Server"] = "bigfleet"
        answer.force_close()
        return answer

    def _metrics(self, accept: str) -> web.Response:
        body, content_type = expose(self._registry, accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _healthz(self, _accept: str) -> web.Response:
        silence, allowed = self._heartbeat.silence(), self._heartbeat.allowed_silence
        if silence > allowed:
            said = f"event loop: silent for {silence:.0f} s, at most {allowed:.0f} s is well\n"
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, said)
        return _text(HTTPStatus.OK, "ok\n")

    def _readyz(self, _accept: str) -> web.Response:
        unmet = self._readiness.unmet()
        if unmet:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{line}\n" for line in unmet))
        return _text(HTTPStatus.OK, "ok\n")


class _BoundedServer(web.Server):
    """aiohttp's server with two bounds: so many connections, each for so long.

    A probe is over within milliseconds. So when a connection comes that is one too many, it is the oldest that is cut:
    peers that are idle or slow lose their place, and a probe always finds one.
    """

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(
            handler,
            access_log=None,
            logger=_logger(),
            max_line_size=_MAX_HEAD_BYTES,
            max_field_size=_MAX_HEAD_BYTES,
            lingering_time=_LINGER_SECONDS,
        )
        # By connection, oldest first: its transport, and the timer that cuts it.
        self._open: dict[web.RequestHandler, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """A peer has connected."""
        super().connection_made(handler, transport)
        if len(self._open) >= _MAX_CONNECTIONS:
            self._cut(next(iter(self._open)))
        timer = asyncio.get_running_loop().call_later(_CONNECTION_SECONDS, self._cut, handler)
        self._open[handler] = transport, timer

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """A connection is over."""
        super().connection_lost(handler, exc)
        if (known := self._open.pop(handler, None)) is not None:
            known[1].cancel()

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self._open)

    def cut_all(self) -> None:
        """End every connection."""
        for handler in list(self._open):
            self._cut(handler)

    def _cut(self, handler: web.RequestHandler) -> None:
        transport, timer = self._open.pop(handler)
        timer.cancel()
        # To close it would wait for a client that takes nothing.
        transport.abort()


class _WithoutPeersFaults(logging.Filter):
    """Drops what the library logs of requests that are no HTTP: the peer is told, and a line for each would be many."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def _logger() -> logging.Logger:
    logger = logging.getLogger("bigfleet.telemetry.http")
    if not logger.filters:
        logger.addFilter(_WithoutPeersFaults())
    return logger


def _text(status: HTTPStatus, text: str) -> web.Response:
    return web.Response(status=status, text=text)
