"""The certificates of one throw-away cluster: an authority, and the certificates that its programs show each other.

Every certificate is valid from ten minutes ago for thirty days; a cluster lives for hours.
"""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SINCE = timedelta(minutes=10)
_VALID = timedelta(days=30)


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority whose files are in one folder, which only its owner may read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("bigfleet-dev-ca")
        signs = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(signs, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pair = self._write("ca", certificate, self._key)

    def server(self, name: str, *hosts: str) -> Pair:
        """A pair that a program serves with, under these addresses and names; a client may show it too."""
        names = [_alternative(host) for host in hosts]
        return self._issue(name, _named(name), x509.SubjectAlternativeName(names))

    def client(self, user: str, group: str = "") -> Pair:
        """A pair that makes its holder this user, in this group."""
        return self._issue(user.replace(":", "-"), _named(user, group), None)

    def signing_key(self, name: str) -> Pair:
        """A key pair without a certificate: `cert` is the public key."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self._folder / f"{name}.pub", self._folder / f"{name}.key")
        pair.cert.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        _write_secret(pair.key, key)
        return pair

    def _issue(self, name: str, subject: x509.Name, alternatives: x509.SubjectAlternativeName | None) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(subject, key)
        if alternatives is not None:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(alternatives, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        return self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SINCE)
            .not_valid_after(now + _VALID)
        )

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.cert.write_bytes(certificate.public_bytes(Encoding.PEM))
        _write_secret(pair.key, key)
        return pair


def _named(common_name: str, organization: str = "") -> x509.Name:
    group = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*group, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_secret(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
