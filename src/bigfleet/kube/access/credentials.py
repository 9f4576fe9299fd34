"""The present credentials: tokens and certificates that are renewed on disk or by a plugin while the program runs."""

import asyncio
import math
import os
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog

from bigfleet.kube.access import exec_plugin
from bigfleet.kube.access.server import ServerConfig, read
from bigfleet.kube.errors import KubeConfigError

_log = structlog.get_logger("bigfleet.kube")

REREAD_SECONDS = 10.0
"""How long files count as unchanged. Reading them is cheap, but not for each call."""

# Seconds between two renewals after a 401 or an expiry; many calls fail at once.
_RENEW_SECONDS = 5.0
# A credential is renewed so long before it expires, as one that expires during a call is refused.
_EARLY = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a call carries to prove who sends it."""

    headers: Mapping[str, str] = field(repr=False)
    tls: ssl.SSLContext | None


@dataclass(frozen=True, slots=True)
class _Material:
    """What a grant is made of. Equal material needs no new grant."""

    token: str
    ca: bytes
    certificate: bytes
    key: bytes


class Credentials:
    """Keeps the present grant. Bad new credentials are refused and logged once, and the last good grant stays."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._config = config
        self._clock, self._now = clock, now
        self._grant: Grant | None = None
        self._material: _Material | None = None
        self._looked = -math.inf
        self._renewed = -math.inf
        self._printed: exec_plugin.Printed | None = None
        self._refused = ""
        #: Held by the one caller that renews while the others wait.
        self._turn = asyncio.Lock()

    async def current(self) -> Grant:
        """The grant to use now; KubeConfigError where there has never been one."""
        if self._grant is not None and not self._due():
            return self._grant
        async with self._turn:
            if self._grant is None or self._due():
                await self._look()
        return self._held()

    async def renew(self, refused: Grant) -> bool:
        """Look for new credentials after a 401. Returns whether there is a grant other than the refused one."""
        async with self._turn:
            if self._grant is refused and self._clock() - self._renewed >= _RENEW_SECONDS:
                self._printed = None
                await self._look()
                self._renewed = self._clock()
            return self._grant is not refused

    def _held(self) -> Grant:
        if self._grant is None:
            raise KubeConfigError("there are no credentials")
        return self._grant

    def _due(self) -> bool:
        age = self._clock() - self._looked
        return age >= REREAD_SECONDS or (age >= _RENEW_SECONDS and self._expired())

    def _expired(self) -> bool:
        printed = self._printed
        return printed is not None and printed.expires is not None and self._now() >= printed.expires - _EARLY

    async def _look(self) -> None:
        try:
            material = await self._gather()
            if material != self._material:
                # A TLS context never changes, so connections of an older context are not used again.
                self._grant, self._material = _grant(self._config, material), material
            self._refused = ""
        except KubeConfigError as error:
            if self._grant is None:
                raise
            if str(error) != self._refused:
                _log.warning("kube_credentials_refused", server=self._config.server, reason=str(error))
            self._refused = str(error)
        finally:
            self._looked = self._clock()

    async def _gather(self) -> _Material:
        config = self._config
        ca = config.ca_bundle()
        token = read(config.token_file).decode("latin-1") if config.token_file else config.token
        certificate = read(config.certificate) if config.certificate else b""
        key = read(config.key) if config.key else b""
        if config.plugin is not None:
            if self._printed is None or self._expired():
                self._printed = await exec_plugin.run(config, config.plugin)
            token = self._printed.token or token
            certificate, key = self._printed.certificate or certificate, self._printed.key or key
        token = token.strip()
        if not token.isascii() or not token.isprintable():
            raise KubeConfigError(f"the token for {config.server} holds characters that no token has")
        return _Material(token, ca, certificate, key)


def _grant(config: ServerConfig, material: _Material) -> Grant:
    headers = {"Authorization": f"Bearer {material.token}"} if material.token else {}
    if not config.server.startswith("https:"):
        return Grant(headers, None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif material.ca:
        try:
            context.load_verify_locations(cadata=material.ca.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError):
            raise KubeConfigError(f"the certificate authority for {config.server} is no PEM certificate") from None
    else:
        context.load_default_certs()
    if material.certificate:
        _load_pair(context, config, material)
    return Grant(headers, context)


def _load_pair(context: ssl.SSLContext, config: ServerConfig, material: _Material) -> None:
    """Load certificate and key from files in memory: Python's TLS reads files only, and no key must reach a disk."""

    def encrypted() -> str:
        raise KubeConfigError(f"the client key for {config.server} is encrypted; give it without a passphrase")

    with ExitStack() as stack:
        names = []
        for pem in (material.certificate, material.key):
            descriptor = os.memfd_create("bigfleet-kube", os.MFD_CLOEXEC)
            stack.callback(os.close, descriptor)
            with open(descriptor, "wb", closefd=False) as file:
                file.write(pem)
            names.append(f"/proc/self/fd/{descriptor}")
        try:
            certificate, key = names
            context.load_cert_chain(certificate, key, password=encrypted)
        except ssl.SSLError:
            problem = "are no PEM, or do not belong together"
            raise KubeConfigError(f"client certificate and key for {config.server} {problem}") from None
