"""Reads and checks the three PEM files for TLS. Whatever is wrong with them is one line at the start.

The leaf pair may be renewed while a program runs (`renewal.py`); the CA bundle is read once.
"""

import os
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from bigfleet.transport.identity import Identity, IdentityError

MAX_FILE_BYTES = 1 << 20
"""The largest file that is read."""

_CERT_FLAG = "--tls-cert"
_KEY_FLAG = "--tls-key"
_CA_FLAG = "--tls-ca"
_BEGIN_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_MIN_RSA_BITS = 2048


class TLSConfigError(Exception):
    """TLS flags or files that cannot be used; the text is one line with the flag, the file and what to do."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """The three files every program takes: its certificate chain, its key, and the CA bundle it trusts."""

    cert: Path
    key: Path
    ca: Path

    @classmethod
    def from_flags(cls, cert: str | None, key: str | None, ca: str | None) -> Self | None:
        """The files that the flags name, or None when none is set; setting only some is an error."""
        given = {_CERT_FLAG: cert, _KEY_FLAG: key, _CA_FLAG: ca}
        if cert is None and key is None and ca is None:
            return None
        if cert and key and ca:
            return cls(Path(cert), Path(key), Path(ca))
        # An empty value is most often a shell variable that was never set, and must not mean plaintext.
        missing = [flag for flag, value in given.items() if not value]
        raise TLSConfigError(f"{', '.join(given)} go together; also set {' and '.join(missing)}, or none of them")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate chain and its key that fit together, with what the certificate says."""

    chain: bytes
    key: bytes = field(repr=False)
    identity: Identity
    serial: int
    not_after: datetime


@dataclass(frozen=True, slots=True)
class LeafFiles:
    """The contents of the certificate's and the key's file at one moment, not yet checked."""

    chain: bytes
    key: bytes = field(repr=False)

    @classmethod
    def read(cls, files: TLSFiles) -> Self:
        """Read both files, certificate first."""
        return cls(_read(_CERT_FLAG, files.cert), _read(_KEY_FLAG, files.key))


def check_leaf(files: TLSFiles, contents: LeafFiles) -> Leaf:
    """The leaf in these contents, if it can be served and dialled with now."""
    certificate = _certificates(_CERT_FLAG, files.cert, contents.chain)[0]
    try:
        starts, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        certified_key = _spki(certificate.public_key())
        identity = Identity.from_certificate(certificate)
    except IdentityError as error:
        raise _unfit(_CERT_FLAG, files.cert, str(error), "issue it with one such URI SAN") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unfit(_CERT_FLAG, files.cert, f"cannot be read ({error})", "issue it anew") from error
    now = datetime.now(UTC)
    if ends <= now:
        raise _unfit(_CERT_FLAG, files.cert, f"expired at {_time(ends)}", "renew it")
    if starts > now:
        raise _unfit(_CERT_FLAG, files.cert, f"is not valid before {_time(starts)}", "check the clock or wait")
    if _public_key_of(files, contents.key) != certified_key:
        raise _unfit(_KEY_FLAG, files.key, f"is not the key of {files.cert}", "give the key it was issued for")
    return Leaf(contents.chain, contents.key, identity, certificate.serial_number, ends)


def read_ca(files: TLSFiles) -> bytes:
    """The CA bundle: one or more CA certificates, at least one of them valid now."""
    bundle = _read(_CA_FLAG, files.ca)
    authorities = _certificates(_CA_FLAG, files.ca, bundle)
    for authority in authorities:
        try:
            is_ca = authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
            is_ca = False
        if not is_ca:
            subject = authority.subject.rfc4514_string()
            raise _unfit(_CA_FLAG, files.ca, f"holds {subject!r}, which is no CA", "give the issuer's certificate")
    last = max(authority.not_valid_after_utc for authority in authorities)
    if last <= datetime.now(UTC):
        raise _unfit(_CA_FLAG, files.ca, f"expired at {_time(last)}", "give a CA that is valid")
    return bundle


def _unfit(flag: str, path: Path, problem: str, remedy: str) -> TLSConfigError:
    return TLSConfigError(f"{flag} {path}: {problem}; {remedy}")


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _read(flag: str, path: Path) -> bytes:
    try:
        # Without O_NONBLOCK, opening a pipe would hang the start.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _unfit(flag, path, "is not a regular file", "give a PEM file")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        remedy = "give a file that exists and that this user may read"
        raise _unfit(flag, path, error.strerror or "cannot be read", remedy) from error
    if not content:
        raise _unfit(flag, path, "is empty", "give a PEM file")
    if len(content) > MAX_FILE_BYTES:
        raise _unfit(flag, path, f"is larger than {MAX_FILE_BYTES} bytes", "give a PEM file")
    return content


def _certificates(flag: str, path: Path, pem: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        found = []
    # The parser ignores a last block that is cut off, as in a chain that is half written.
    if not found or len(found) != pem.count(_BEGIN_CERTIFICATE):
        raise _unfit(flag, path, "does not hold whole PEM certificates", "write it anew")
    return found


def _spki(key: object) -> bytes | None:
    """The encoded public key if gRPC's TLS can use such a key, else None."""
    usable = (isinstance(key, rsa.RSAPublicKey) and key.key_size >= _MIN_RSA_BITS) or (
        isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1)
    )
    if usable and isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return None


def _public_key_of(files: TLSFiles, pem: bytes) -> bytes:
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise _unfit(_KEY_FLAG, files.key, "is encrypted", "give the key without a passphrase") from error
    except ValueError as error:
        raise _unfit(_KEY_FLAG, files.key, "does not hold a PEM private key", "write it anew") from error
    except UnsupportedAlgorithm:
        public = None
    else:
        public = _spki(key.public_key())
    if public is None:
        remedy = f"use ECDSA P-256 or P-384, or RSA of {_MIN_RSA_BITS} bits or more"
        raise _unfit(_KEY_FLAG, files.key, "is of a kind that gRPC's TLS does not serve", remedy)
    return public
