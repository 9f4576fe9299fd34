"""The certificate and key as their files hold them now, so that a renewal needs no restart.

The files are read whenever a leaf is asked for, which is once for each handshake. Whole contents are compared, because
times and inodes miss a rewrite within one clock tick.
"""

import threading
from collections.abc import Callable
from typing import Self, cast

import grpc
import structlog

from bigfleet.transport.identity import Identity
from bigfleet.transport.tls import Leaf, LeafFiles, TLSConfigError, TLSFiles, check_leaf, read_ca

_log = structlog.get_logger("bigfleet.transport")


class LiveTLS:
    """A program's TLS material: the CA as read at start, and a leaf that follows its files.

    A new pair is taken only when it passes every check of the start and names the same identity. Until then, as while
    it is half written, the old one stays and the reason is logged once.
    """

    def __init__(self, files: TLSFiles, ca: bytes, leaf: Leaf) -> None:
        self.files = files
        self.ca = ca
        self._leaf = leaf
        self._refused: str | None = None
        # gRPC calls from its own threads.
        self._lock = threading.Lock()

    @classmethod
    def start(cls, files: TLSFiles) -> Self:
        """Read and check all three files; TLSConfigError says what is wrong with the first that is unfit."""
        return cls(files, read_ca(files), check_leaf(files, LeafFiles.read(files)))

    @property
    def identity(self) -> Identity:
        """The identity of this program, which a renewal never changes."""
        return self._leaf.identity

    def leaf(self) -> Leaf:
        """The pair to use now. Never raises: a bad pair is refused, and the last good one is returned."""
        with self._lock:
            try:
                contents = LeafFiles.read(self.files)
                if contents != LeafFiles(self._leaf.chain, self._leaf.key):
                    self._take(check_leaf(self.files, contents))
                self._refused = None
            except TLSConfigError as error:
                self._refuse(str(error))
            return self._leaf

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials that demand a client certificate and look for a renewed leaf at each handshake."""
        served = self.leaf()

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal served
            current = self.leaf()
            if current is served:
                return None
            served = current
            return self._configuration(current)

        # None means no change; the published type of the fetcher leaves it out.
        fetcher = cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed)
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(served), fetcher, require_client_authentication=True
        )

    def _configuration(self, leaf: Leaf) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(leaf.key, leaf.chain)], self.ca)

    def _take(self, leaf: Leaf) -> None:
        if leaf.identity != self._leaf.identity:
            raise TLSConfigError(
                f"--tls-cert {self.files.cert}: names {leaf.identity} but this program started as "
                f"{self._leaf.identity}; restart it to change who it is"
            )
        self._leaf = leaf
        _log.info("tls_leaf_renewed", serial=f"{leaf.serial:x}", not_after=leaf.not_after.isoformat())

    def _refuse(self, reason: str) -> None:
        if reason != self._refused:
            _log.warning("tls_leaf_refused", reason=reason, kept_until=self._leaf.not_after.isoformat())
        self._refused = reason
