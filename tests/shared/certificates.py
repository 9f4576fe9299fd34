"""Certificates made on the spot, by an authority of the test's own."""

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSFiles

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate, its chain and its key, as PEM."""

    certificate: x509.Certificate
    chain: bytes
    key: bytes


class PKI:
    """A certificate authority and a directory to put files in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ca_key = ec.generate_private_key(ec.SECP256R1())
        self.ca = self.issue(common_name="test authority", is_ca=True, key=self._ca_key)

    def issue(
        self,
        *uris: str,
        dns: tuple[str, ...] = (),
        ips: tuple[str, ...] = (),
        common_name: str = "some program",
        begins: timedelta = -DAY,
        ends: timedelta = DAY,
        is_ca: bool = False,
        key: CertificateIssuerPrivateKeyTypes | None = None,
    ) -> Issued:
        """A certificate with these alternative names, valid from and until so long from now."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else [])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        names: list[x509.GeneralName] = [
            *(x509.UniformResourceIdentifier(uri) for uri in uris),
            *(x509.DNSName(name) for name in dns),
            *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips),
        ]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._ca_key, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Issued(certificate, certificate.public_bytes(Encoding.PEM), private)

    def write(self, issued: Issued, name: str = "leaf") -> TLSFiles:
        """Put the pair and the CA into files of their own, or over those of the same name."""
        folder = self.directory / name
        folder.mkdir(exist_ok=True)
        files = TLSFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
        files.cert.write_bytes(issued.chain)
        files.key.write_bytes(issued.key)
        files.ca.write_bytes(self.ca.chain)
        return files

    def live(self, uri: str, name: str = "leaf") -> LiveTLS:
        """The material of a program of this identity."""
        return LiveTLS.start(self.write(self.issue(uri), name))

    def client_context(self, issued: Issued | None = None) -> ssl.SSLContext:
        """A context of Python's own TLS that trusts this authority and any host name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self.ca.chain.decode())
        context.set_alpn_protocols(["h2"])
        if issued is not None:
            files = self.write(issued, "context")
            context.load_cert_chain(files.cert, files.key)
        return context

    def served_serial(self, port: int) -> int:
        """The serial number of the leaf that the server on this port shows now."""
        context = self.client_context(self.issue("bigfleet://readonly"))
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as raw,
            context.wrap_socket(raw) as connection,
        ):
            der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number
