"""TLS flags and files: what a program accepts at start, and the one line it says about everything else."""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.transport.identity import Identity, Role
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import MAX_FILE_BYTES, LeafFiles, TLSConfigError, TLSFiles, check_leaf

if TYPE_CHECKING:
    from tests.shared.certificates import PKI

SHARD = "bigfleet://shard/s1"
HOUR = timedelta(hours=1)


def refusal(files: TLSFiles) -> str:
    with pytest.raises(TLSConfigError) as refused:
        LiveTLS.start(files)
    text = str(refused.value)
    assert "\n" not in text
    return text


def test_no_tls_flag_means_plaintext() -> None:
    assert TLSFiles.from_flags(None, None, None) is None


def test_empty_flags_are_a_mistake_and_not_plaintext() -> None:
    with pytest.raises(TLSConfigError, match="--tls-cert and --tls-key and --tls-ca"):
        TLSFiles.from_flags("", "", "")


def test_all_three_flags_name_the_files() -> None:
    assert TLSFiles.from_flags("c", "k", "a") == TLSFiles(Path("c"), Path("k"), Path("a"))


@pytest.mark.parametrize(
    ("cert", "key", "ca", "missing"),
    [
        ("c", None, None, "--tls-key and --tls-ca"),
        (None, "k", None, "--tls-cert and --tls-ca"),
        (None, None, "a", "--tls-cert and --tls-key"),
        ("c", "k", "", "--tls-ca"),
        ("c", "", "a", "--tls-key"),
        ("", "k", "a", "--tls-cert"),
    ],
)
def test_some_of_the_flags_is_an_error_naming_the_missing(
    cert: str | None, key: str | None, ca: str | None, missing: str
) -> None:
    with pytest.raises(TLSConfigError, match=f"also set {missing}, or none"):
        TLSFiles.from_flags(cert, key, ca)


def test_a_good_pair_is_taken_with_its_identity_and_serial(pki: "PKI") -> None:
    issued = pki.issue(SHARD)
    tls = LiveTLS.start(pki.write(issued))
    assert tls.identity == Identity(Role.SHARD, "s1")
    assert tls.leaf().serial == issued.certificate.serial_number
    assert tls.leaf().not_after == issued.certificate.not_valid_after_utc
    assert tls.ca == pki.ca.chain


def test_a_chain_with_its_intermediate_is_taken_whole(pki: "PKI") -> None:
    files = pki.write(pki.issue(SHARD))
    files.cert.write_bytes(files.cert.read_bytes() + pki.ca.chain)
    assert LiveTLS.start(files).leaf().chain.count(b"BEGIN CERTIFICATE") == 2


@pytest.mark.parametrize("part", ["cert", "key", "ca"])
class TestAnyOfTheFiles:
    def test_that_is_missing_is_named(self, pki: "PKI", part: str) -> None:
        files = pki.write(pki.issue(SHARD))
        path: Path = getattr(files, part)
        path.unlink()
        assert refusal(files) == (
            f"--tls-{part} {path}: No such file or directory; give a file that exists and that this user may read"
        )

    def test_that_is_empty_is_named(self, pki: "PKI", part: str) -> None:
        files = pki.write(pki.issue(SHARD))
        path: Path = getattr(files, part)
        path.write_bytes(b"")
        assert refusal(files).startswith(f"--tls-{part} {path}: is empty;")

    def test_that_is_not_pem_is_named(self, pki: "PKI", part: str) -> None:
        files = pki.write(pki.issue(SHARD))
        path: Path = getattr(files, part)
        path.write_bytes(b"\x30\x82 some DER or a note")
        assert refusal(files).startswith(f"--tls-{part} {path}: does not hold ")

    def test_that_is_cut_short_is_named(self, pki: "PKI", part: str) -> None:
        files = pki.write(pki.issue(SHARD))
        path: Path = getattr(files, part)
        path.write_bytes(path.read_bytes()[:-30])
        assert refusal(files).startswith(f"--tls-{part} {path}: does not hold ")

    def test_that_is_a_directory_is_named(self, pki: "PKI", part: str) -> None:
        files = pki.write(pki.issue(SHARD))
        path: Path = getattr(files, part)
        path.unlink()
        path.mkdir()
        assert refusal(files).startswith(f"--tls-{part} {path}: Is a directory;")

    def test_that_is_a_pipe_does_not_hang_the_start(self, pki: "PKI", part: str) -> None:
        files = pki.write(pki.issue(SHARD))
        path: Path = getattr(files, part)
        path.unlink()
        os.mkfifo(path)
        assert refusal(files).startswith(f"--tls-{part} {path}: is not a regular file;")

    def test_that_is_huge_is_refused_unread(self, pki: "PKI", part: str) -> None:
        files = pki.write(pki.issue(SHARD))
        path: Path = getattr(files, part)
        with path.open("r+b") as file:
            file.truncate(MAX_FILE_BYTES + 1)
        assert refusal(files).startswith(f"--tls-{part} {path}: is larger than 1048576 bytes;")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
    def test_that_may_not_be_read_is_named(self, pki: "PKI", part: str) -> None:
        files = pki.write(pki.issue(SHARD))
        path: Path = getattr(files, part)
        path.chmod(0)
        assert refusal(files).startswith(f"--tls-{part} {path}: Permission denied;")


def test_a_key_of_another_certificate_is_refused(pki: "PKI") -> None:
    files = pki.write(pki.issue(SHARD))
    files.key.write_bytes(pki.issue(SHARD).key)
    assert refusal(files).startswith(f"--tls-key {files.key}: is not the key of {files.cert};")


def test_an_expired_certificate_is_refused_and_the_error_says_when(pki: "PKI") -> None:
    issued = pki.issue(SHARD, begins=-2 * HOUR, ends=-HOUR)
    files = pki.write(issued)
    when = issued.certificate.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert refusal(files) == f"--tls-cert {files.cert}: expired at {when}; renew it"


def test_a_certificate_of_the_future_is_refused_and_the_error_says_when(pki: "PKI") -> None:
    issued = pki.issue(SHARD, begins=HOUR, ends=2 * HOUR)
    when = issued.certificate.not_valid_before_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert f"is not valid before {when};" in refusal(pki.write(issued))


@pytest.mark.parametrize("uris", [(), (SHARD, "bigfleet://admin"), (SHARD, "spiffe://fleet/x"), ("https://x.example",)])
def test_a_certificate_without_exactly_one_identity_is_refused(pki: "PKI", uris: tuple[str, ...]) -> None:
    files = pki.write(pki.issue(*uris, dns=("shard.example",)))
    text = refusal(files)
    assert text.startswith(f"--tls-cert {files.cert}: ")
    assert all(repr(uri) in text for uri in uris)


def test_a_leaf_in_the_place_of_the_ca_is_refused(pki: "PKI") -> None:
    files = pki.write(pki.issue(SHARD))
    files.ca.write_bytes(pki.ca.chain + pki.issue(SHARD, common_name="no authority").chain)
    assert refusal(files).startswith(f"--tls-ca {files.ca}: holds 'CN=no authority', which is no CA;")


def test_an_expired_ca_is_refused_unless_a_valid_one_stands_beside_it(pki: "PKI") -> None:
    files = pki.write(pki.issue(SHARD))
    expired = pki.issue(is_ca=True, begins=-2 * HOUR, ends=-HOUR)
    files.ca.write_bytes(expired.chain)
    assert re.search(r"expired at \d{4}-", refusal(files))
    files.ca.write_bytes(expired.chain + pki.ca.chain)
    assert LiveTLS.start(files).identity == Identity(Role.SHARD, "s1")


def test_an_encrypted_key_is_refused_with_that_reason(pki: "PKI") -> None:
    issued = pki.issue(SHARD)
    files = pki.write(issued)
    key = load_pem_private_key(issued.key, None)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    assert refusal(files).startswith(f"--tls-key {files.key}: is encrypted;")


@pytest.mark.parametrize(
    "key",
    [
        ed25519.Ed25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP521R1()),
        rsa.generate_private_key(65537, 1024),
    ],
    ids=["ed25519", "p521", "rsa1024"],
)
def test_a_key_that_grpc_cannot_serve_with_is_refused_at_start(
    pki: "PKI", key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
) -> None:
    text = refusal(pki.write(pki.issue(SHARD, key=key)))
    assert "is of a kind that gRPC's TLS does not serve; use ECDSA P-256 or P-384" in text


def test_an_rsa_pair_is_taken(pki: "PKI") -> None:
    issued = pki.issue(SHARD, key=rsa.generate_private_key(65537, 2048))
    assert LiveTLS.start(pki.write(issued)).leaf().serial == issued.certificate.serial_number


def test_the_key_shows_in_no_text_of_a_leaf(pki: "PKI") -> None:
    files = pki.write(pki.issue(SHARD))
    contents = LeafFiles.read(files)
    assert "PRIVATE KEY" not in repr(contents) + repr(check_leaf(files, contents))


DAMAGE = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.sampled_from(b"ABCDabcd0123/+=- \n\0\xff")), min_size=1, max_size=3
)


@given(part=st.sampled_from(["cert", "key"]), damage=DAMAGE)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_damaged_file_is_refused_in_one_line_or_harmless(
    pki: "PKI", part: str, damage: list[tuple[int, int]]
) -> None:
    files = pki.write(pki.issue(SHARD))
    path: Path = getattr(files, part)
    content = bytearray(path.read_bytes())
    for place, byte in damage:
        content[place % len(content)] = byte
    path.write_bytes(content)
    try:
        LiveTLS.start(files)
    except TLSConfigError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
