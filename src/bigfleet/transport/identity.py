"""Who is at the other end of a connection: the one `bigfleet://` URI in its certificate, and what it may do.

Over plaintext there is no identity; `None` stands for that, and every check lets it pass.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self

import grpc
from cryptography import x509

_SCHEME = "bigfleet://"
# Letters, digits and `._-` need no escaping in a URI, so an id has exactly one spelling.
_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class IdentityError(ValueError):
    """A URI or certificate that names no BigFleet identity; the text says what was found."""


class NotPermittedError(Exception):
    """The peer is known and may not make this call; the peer is told the text."""


class Role(StrEnum):
    """The roles that a certificate can give."""

    CLUSTER = "cluster"
    SHARD = "shard"
    PROVIDER = "provider"
    COORDINATOR = "coordinator"
    ADMIN = "admin"
    READONLY = "readonly"


_ROLES = frozenset(str(role) for role in Role)
_WITH_ID = frozenset({Role.CLUSTER, Role.SHARD, Role.PROVIDER})


@dataclass(frozen=True, slots=True)
class Identity:
    """A role and, for clusters, shards and providers, which one."""

    role: Role
    id: str | None = None

    def __post_init__(self) -> None:
        if self.role not in _WITH_ID:
            if self.id is not None:
                raise IdentityError(f"{_SCHEME}{self.role} takes no id, found {shown(self.id)}")
        elif self.id is None or _ID.fullmatch(self.id) is None:
            raise IdentityError(
                f"{_SCHEME}{self.role}/<id> needs an id of 1 to 253 letters, digits, '.', '_' or '-' "
                f"that starts and ends with a letter or digit, found {shown(self.id or '')}"
            )

    def __str__(self) -> str:
        return f"{_SCHEME}{self.role}" if self.id is None else f"{_SCHEME}{self.role}/{self.id}"

    @classmethod
    def from_uri(cls, uri: str) -> Self:
        """Parse the exact spelling; nothing is unescaped, lower-cased or trimmed."""
        role, slash, name = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME) or role not in _ROLES:
            roles = ", ".join(f"{_SCHEME}{each}{'/<id>' if each in _WITH_ID else ''}" for each in Role)
            raise IdentityError(f"expected one of {roles}; found {shown(uri)}")
        return cls(Role(role), name if slash else None)

    @classmethod
    def from_certificate(cls, certificate: x509.Certificate) -> Self:
        """The identity in a certificate: the one URI among its alternative names."""
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            uris = []
        except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
            raise IdentityError(f"the certificate's extensions cannot be read: {error}") from error
        else:
            uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        if len(uris) != 1:
            found = ", ".join(shown(uri) for uri in uris[:_SHOWN_URIS]) or "none"
            raise IdentityError(f"the certificate must carry exactly one URI SAN, found {len(uris)}: {found}")
        return cls.from_uri(uris[0])

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """The identity of the first certificate in a PEM text."""
        try:
            certificate = x509.load_pem_x509_certificate(pem)
        except (ValueError, x509.InvalidVersion) as error:
            raise IdentityError("the peer's certificate cannot be read") from error
        return cls.from_certificate(certificate)


# Characters of foreign text that an error quotes, and URIs of a certificate.
_SHOWN_TEXT, _SHOWN_URIS = 80, 4


def shown(text: str) -> str:
    """Foreign text, quoted and cut for an error: errors travel in gRPC trailers, which are bounded."""
    return repr(text) if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]!r}… ({len(text)} characters)"


# A certificate for each live connection; a shard serves a few thousand clusters at most.
_identity_of_pem = lru_cache(maxsize=8192)(Identity.from_pem)


def peer_identity(context: "grpc.aio.ServicerContext[Any, Any]") -> Identity | None:
    """The identity of a servicer's caller, or None when the transport is plaintext."""
    auth = context.auth_context()
    security = [bytes(value) for value in auth.get("transport_security_type", ())]
    if security in ([], [b"insecure"]):
        return None
    certificates = list(auth.get("x509_pem_cert", ()))
    if len(certificates) != 1:
        raise IdentityError(f"a peer over {security!r} presented {len(certificates)} certificates, expected one")
    return _identity_of_pem(certificates[0])


def require(peer: Identity | None, *roles: Role, named: str | None = None) -> None:
    """Raise NotPermittedError unless the peer has one of these roles and, with `named`, that id."""
    if peer is None or (peer.role in roles and (named is None or peer.id == named)):
        return
    wanted = " or ".join(roles) if named is None else f"{' or '.join(roles)} {shown(named)}"
    raise NotPermittedError(f"this call needs a certificate of {wanted}; the peer's says {peer}")


def require_fencing_owner(peer: Identity | None, shard_id: str) -> None:
    """Refuse a mutating call to a provider unless its token names the caller; an admin may call without a token."""
    if shard_id:
        require(peer, Role.SHARD, named=shard_id)
    else:
        require(peer, Role.ADMIN)


@asynccontextmanager
async def refusals_abort(context: "grpc.aio.ServicerContext[Any, Any]") -> AsyncIterator[None]:
    """End the call with PERMISSION_DENIED and the text of the refusal where the body raises one."""
    try:
        yield
    except (IdentityError, NotPermittedError) as error:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
