"""The HTTP endpoint of every program: /metrics, /healthz and /readyz.

It runs on an event loop and thread of its own, so that it still answers when the program's loop is stuck. Whoever
connects is bounded: in head size, in time, and in number.
"""

import asyncio
import io
import socket
import threading
from concurrent.futures import Future
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, parse_headers
from typing import Self
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from bigfleet.telemetry.health import Heartbeat, Readiness
from bigfleet.telemetry.metrics import expose

_MAX_HEAD_BYTES = 8192
_MAX_CLIENTS = 64
_START_SECONDS = 10.0
# From connecting to the last byte taken by the client.
_CLIENT_SECONDS = 10.0
# How long a client may take to close after its answer; without the wait, what it still sends would reset the answer.
_LINGER_SECONDS = 1.0
_TEXT = "text/plain; charset=utf-8"


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
        self._clients: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._stopping: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve until `stop`; returns once connections are answered."""
        serving: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
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

    async def _serve(self, serving: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]") -> None:
        stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, sock=self._listener, limit=_MAX_HEAD_BYTES)
        serving.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
        server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= _MAX_CLIENTS:
            writer.transport.abort()
            return
        client = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CLIENT_SECONDS):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except asyncio.LimitOverrunError:
                    answer = _answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request head is too large\n")
                else:
                    answer = self._respond(head)
                writer.write(answer)
                writer.write_eof()
                await writer.drain()
                async with asyncio.timeout(_LINGER_SECONDS):
                    while await reader.read(_MAX_HEAD_BYTES):
                        pass
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            # The client is slow or gone; there is nobody to tell.
            pass
        finally:
            writer.transport.abort()

    def _respond(self, head: bytes) -> bytes:
        line, _, fields = head.partition(b"\r\n")
        try:
            method, target, version = line.decode("ascii").split(" ")
            path = urlsplit(target).path
            headers = parse_headers(io.BytesIO(fields))
        except (ValueError, HTTPException):
            return _answer(HTTPStatus.BAD_REQUEST, "not an HTTP request\n")
        if version not in {"HTTP/1.0", "HTTP/1.1"}:
            return _answer(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.0 or HTTP/1.1 is spoken here\n")
        route = self._routes.get(path)
        if route is None:
            return _answer(HTTPStatus.NOT_FOUND, "there are " + ", ".join(self._routes) + "\n")
        if method not in {"GET", "HEAD"}:
            return _answer(HTTPStatus.METHOD_NOT_ALLOWED, "use GET or HEAD\n", allow=True)
        answer = route(headers)
        return answer if method == "GET" else answer[: answer.index(b"\r\n\r\n") + 4]

    def _metrics(self, headers: HTTPMessage) -> bytes:
        body, content_type = expose(self._registry, headers.get("Accept", ""))
        return _answer(HTTPStatus.OK, body, content_type)

    def _healthz(self, _headers: HTTPMessage) -> bytes:
        silence, allowed = self._heartbeat.silence(), self._heartbeat.allowed_silence
        if silence > allowed:
            said = f"event loop: silent for {silence:.0f} s, at most {allowed:.0f} s is well\n"
            return _answer(HTTPStatus.SERVICE_UNAVAILABLE, said)
        return _answer(HTTPStatus.OK, "ok\n")

    def _readyz(self, _headers: HTTPMessage) -> bytes:
        unmet = self._readiness.unmet()
        if unmet:
            return _answer(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{line}\n" for line in unmet))
        return _answer(HTTPStatus.OK, "ok\n")


def _answer(status: HTTPStatus, body: str | bytes, content_type: str = _TEXT, *, allow: bool = False) -> bytes:
    payload = body.encode() if isinstance(body, str) else body
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(payload)}",
        "Connection: close",
        *(["Allow: GET, HEAD"] if allow else []),
    ]
    return "\r\n".join([*head, "", ""]).encode("ascii") + payload
