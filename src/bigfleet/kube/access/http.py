"""Calls to one API server over HTTP, with a limit, a time-out and credentials; bodies or errors in return.

A call is sent again in three cases: the connection broke before an answer began and the call may be repeated; after a
401, when there are fresh credentials; after a 429 with which the server asks for a wait. Redirects are not followed.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

import aiohttp
import msgspec
from yarl import URL

from bigfleet.kube.access.credentials import Credentials, Grant
from bigfleet.kube.access.limiter import Limiter
from bigfleet.kube.access.server import ServerConfig
from bigfleet.kube.errors import ApiError, SilentError, TooManyRequestsError, UnreachableError, error_of
from bigfleet.kube.objects.kinds import Status

CALL_SECONDS = 30.0
"""What one attempt of a call may take."""

CONNECTIONS = 256
"""Open connections at most. Every watch holds one, and calls share the rest."""

# API servers close idle connections after 90 s. Closing them first avoids a race.
_IDLE_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_MOST_BYTES = 256 * 1024 * 1024
_MOST_REFUSAL_BYTES = 64 * 1024
# How often a call waits because the server asks for it, and for how many seconds at most.
_WAITS = 2
_LONGEST_WAIT = 10.0
_BUDGET_CAUSE = "DisruptionBudget"
_sleep = asyncio.sleep


class ApiCall(NamedTuple):
    """One call, however often it is sent. Errors name it by verb and subject."""

    verb: str
    subject: str
    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content: str = "application/json"
    repeat: bool = False
    """Whether a change may be sent again after the connection broke; aiohttp repeats reads and deletes itself."""


class Connection:
    """The connections to one server. Errors are those of `kube.errors`; cancelling a call ends it at once."""

    def __init__(self, config: ServerConfig, limiter: Limiter, user_agent: str) -> None:
        self._config, self._limiter = config, limiter
        self._credentials = Credentials(config)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=_IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Inside a cluster, compressing costs more than it saves.
            headers={"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def answer(self, call: ApiCall) -> bytes:
        """The body of a successful answer."""
        waits, renewed = 0, False
        while True:
            await self._limiter.take()
            grant = await self._credentials.current()
            status, headers, body = await self._exchange(call, grant)
            if 200 <= status < 300:
                return body
            if status == 401 and not renewed:
                renewed = True
                if await self._credentials.renew(grant):
                    continue
            error, causes = _refusal(call, status, headers, body)
            asked_to_wait = isinstance(error, TooManyRequestsError) and _BUDGET_CAUSE not in causes
            if not asked_to_wait or error.retry_after is None or waits == _WAITS:
                raise error
            waits += 1
            await _sleep(min(error.retry_after, _LONGEST_WAIT))

    @asynccontextmanager
    async def stream(self, call: ApiCall, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of a successful answer in pieces, as they come. SilentError after `silence` seconds without any."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence)
        renewed = False
        while True:
            grant = await self._credentials.current()
            with _reaching(call):
                async with asyncio.timeout(CALL_SECONDS):
                    response = await self._opened(call, grant, limits)
            try:
                if response.status == 200:
                    yield _Pieces(call, response.content)
                    return
                with _reaching(call):
                    async with asyncio.timeout(CALL_SECONDS):
                        body = await _bounded(call, response)
            finally:
                response.close()
            if response.status != 401 or renewed or not await self._credentials.renew(grant):
                raise _refusal(call, response.status, response.headers, body)[0]
            renewed = True

    async def _exchange(self, call: ApiCall, grant: Grant) -> tuple[int, Mapping[str, str], bytes]:
        limits = aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=_CONNECT_SECONDS)
        with _reaching(call):
            try:
                response = await self._opened(call, grant, limits)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                # A connection that could not be made has not broken.
                if not call.repeat or isinstance(error, aiohttp.ClientConnectorError):
                    raise
                response = await self._opened(call, grant, limits)
            async with response:
                return response.status, response.headers, await _bounded(call, response)

    async def _opened(self, call: ApiCall, grant: Grant, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers = {**grant.headers, "Content-Type": call.content} if call.body is not None else grant.headers
        return await self._session.request(
            call.method,
            URL(self._config.server + call.path, encoded=True).with_query(call.query),
            data=call.body,
            headers=headers,
            allow_redirects=False,
            timeout=limits,
            ssl=True if grant.tls is None else grant.tls,
            server_hostname=self._config.server_name or None,
            proxy=self._config.proxy or None,
        )


class _Pieces:
    """The body of an answer, piece by piece. Errors of reading become UnreachableError; errors of its user do not."""

    def __init__(self, call: ApiCall, content: aiohttp.StreamReader) -> None:
        self._call, self._content = call, content

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with _reaching(self._call):
            try:
                piece = await self._content.readany()
            except TimeoutError:
                raise SilentError(self._call.verb, self._call.subject, "nothing came for too long") from None
        if not piece:
            raise StopAsyncIteration
        return piece


@contextmanager
def _reaching(call: ApiCall) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise UnreachableError(call.verb, call.subject, "no answer in time") from None
    except (aiohttp.ClientError, OSError) as error:
        raise UnreachableError(call.verb, call.subject, f"{type(error).__name__}: {error}") from None


async def _bounded(call: ApiCall, response: aiohttp.ClientResponse) -> bytes:
    """The whole body; UnreachableError where it is too long. Of a refusal the beginning is enough."""
    most = _MOST_BYTES if response.status < 300 else _MOST_REFUSAL_BYTES
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most:
            if response.status >= 300:
                break
            raise UnreachableError(call.verb, call.subject, f"the answer is longer than {most:,} bytes")
    return bytes(body)


def _refusal(call: ApiCall, status: int, headers: Mapping[str, str], body: bytes) -> tuple[ApiError, frozenset[str]]:
    """The error for an answer that is no success, and the reasons that the server gives."""
    try:
        said = msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The answer is not a Status: it comes from a proxy or from the server's overload protection.
        said = Status(message=body.decode("utf-8", "replace").strip())
    return error_from(call.verb, call.subject, status, said, headers.get("Retry-After", ""))


def error_from(
    verb: str, subject: str, code: int, said: Status, retry_after: str = ""
) -> tuple[ApiError, frozenset[str]]:
    """The error for a Status, with the messages of its causes, and the reasons of those causes."""
    details = said.details
    causes = details.causes if details is not None else ()
    message = "; ".join(part for part in (said.message, *(cause.message for cause in causes)) if part)
    if 300 <= code < 400:
        message = "a redirect, which is not followed"
    seconds: float | None = None
    if retry_after.isdecimal():
        seconds = float(retry_after)
    elif details is not None and details.retry_after_seconds > 0:
        seconds = float(details.retry_after_seconds)
    error = error_of(code, said.reason)(verb, subject, message, code=code, reason=said.reason, retry_after=seconds)
    return error, frozenset(cause.reason for cause in causes)
