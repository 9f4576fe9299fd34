"""Finds out the identity of a server before gRPC connects to it.

Python's gRPC checks host names only and never shows a client the server's certificate. So the dialer first makes a
handshake of its own, judges the certificate, and then lets gRPC trust that one certificate and nothing else.
"""

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from bigfleet.transport.address import Address, UnixAddress
from bigfleet.transport.identity import Identity, IdentityError, Role
from bigfleet.transport.tls import Leaf

Expected = Identity | Role
"""The server that a dialer wants: a certain one, or any of a role."""


BOTH_OR_NONE = "give both ends --tls-cert, --tls-key and --tls-ca, or neither"
"""What to do where one end speaks TLS and the other does not."""

_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}
"""What OpenSSL calls an answer that is not TLS."""


class DialError(Exception):
    """A server could not be reached, or is not the one expected; the text names its address and the reason."""

    def __init__(self, address: Address, problem: str) -> None:
        super().__init__(f"cannot use the server at {address}: {problem}")
        self.address = address


@dataclass(frozen=True, slots=True)
class CheckedServer:
    """What gRPC needs to connect to the server that was checked."""

    target: str
    certificate: bytes | None = None
    name: str = ""


async def check_server(address: Address, expected: Expected, ca: bytes | None, leaf: Leaf | None) -> CheckedServer:
    """Connect, judge the server's certificate (over plaintext there is none) and hang up.

    The target in the result is the socket address that answered: a host name may have several.
    """
    context = None if ca is None or leaf is None else _client_context(ca, leaf)
    try:
        writer = await _connect(address, context)
    except ssl.SSLCertVerificationError as error:
        raise DialError(address, f"its certificate is not trusted: {error.verify_message}") from error
    except ssl.SSLError as error:
        if error.reason in _NO_TLS:
            raise DialError(address, f"it does not speak TLS, and this end does; {BOTH_OR_NONE}") from error
        raise DialError(address, f"the TLS handshake failed: {error.reason or error}") from error
    except OSError as error:
        raise DialError(address, error.strerror or str(error)) from error
    target = str(address)
    if not isinstance(address, UnixAddress):
        peer = writer.get_extra_info("peername")
        target = f"ipv6:[{quote(peer[0])}]:{peer[1]}" if ":" in peer[0] else f"ipv4:{peer[0]}:{peer[1]}"
    tls = writer.get_extra_info("ssl_object")
    # Nothing was sent, so there is nothing to flush.
    writer.transport.abort()
    if tls is None:
        return CheckedServer(target)
    host = "" if isinstance(address, UnixAddress) else address.host
    return _judge(address, host, expected, target, tls.getpeercert(binary_form=True))


async def speaks_tls(address: Address) -> bool:
    """Whether a server answers a TLS handshake. Nothing is proved about who the server is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        writer = await _connect(address, context)
    except ssl.SSLError as error:
        # An alert is an answer in TLS: the server wants a certificate, which this client does not show.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    writer.transport.abort()
    return True


async def _connect(address: Address, context: ssl.SSLContext | None) -> asyncio.StreamWriter:
    if isinstance(address, UnixAddress):
        hostname = None if context is None else ""
        _, writer = await asyncio.open_unix_connection(address.path, ssl=context, server_hostname=hostname)
    else:
        _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    return writer


def _judge(address: Address, host: str, expected: Expected, target: str, der: bytes) -> CheckedServer:
    try:
        certificate = x509.load_der_x509_certificate(der)
        identity = Identity.from_certificate(certificate)
        name = _name_for_grpc(certificate, host)
    except IdentityError as error:
        raise DialError(address, str(error)) from error
    except (ValueError, x509.InvalidVersion) as error:
        raise DialError(address, "its certificate cannot be read") from error
    if (identity.role if isinstance(expected, Role) else identity) != expected:
        wanted = f"a {expected}" if isinstance(expected, Role) else expected
        raise DialError(address, f"expected {wanted}, its certificate says {identity}")
    if not name:
        problem = f"gRPC needs a DNS name, IP address or common name in its certificate, {identity} has none"
        raise DialError(address, problem)
    return CheckedServer(target, certificate.public_bytes(Encoding.PEM), name)


def _name_for_grpc(certificate: x509.Certificate, host: str) -> str:
    """A name that gRPC's host name check accepts for this certificate; the dialled host where it is one.

    The check proves nothing, because the certificate itself is pinned, but gRPC cannot leave it out.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    dns = names.get_values_for_type(x509.DNSName)
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    common = [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    covered = {*addresses, *(name.lower() for name in dns)}
    if host.lower() in covered or f"*.{host.lower().partition('.')[2]}" in covered:
        return host
    # A wildcard stands for any first label. gRPC looks at the common name only where there is no DNS name.
    candidates = [*(name.replace("*", "any", 1) for name in dns), *addresses, *([] if dns else common)]
    return next(iter(candidates), "")


def _client_context(ca: bytes, leaf: Leaf) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    # gRPC accepts an intermediate CA in the bundle as an anchor, so the check before it does too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    with _in_memory(ca) as path:
        context.load_verify_locations(cafile=path)
    with _in_memory(leaf.chain + b"\n" + leaf.key) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path to content in memory. `ssl` loads from paths only, and the real files may change at any time."""
    descriptor = os.memfd_create("bigfleet-tls", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"
