"""Renewing the leaf under a running server: every way in which the files change, seen from a peer's handshake."""

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSFiles

if TYPE_CHECKING:
    from tests.shared.certificates import PKI, Issued
    from tests.shared.mirror import Serve

SHARD = "bigfleet://shard/s1"
HOUR = timedelta(hours=1)


def serial(issued: "Issued") -> int:
    return issued.certificate.serial_number


async def test_a_pair_rewritten_in_place_is_served_from_the_next_handshake_on(pki: "PKI", serve: "Serve") -> None:
    old, new = pki.issue(SHARD), pki.issue(SHARD)
    files = pki.write(old)
    async with serve(LiveTLS.start(files)) as port:
        assert pki.served_serial(port) == serial(old)
        with capture_logs() as logs:
            files.cert.write_bytes(new.chain)
            assert pki.served_serial(port) == serial(old)
            files.key.write_bytes(new.key)
            assert pki.served_serial(port) == serial(new)
    assert [(log["log_level"], log["event"]) for log in logs] == [
        ("warning", "tls_leaf_refused"),
        ("info", "tls_leaf_renewed"),
    ]
    assert "is not the key of" in logs[0]["reason"]
    assert logs[1]["serial"] == f"{serial(new):x}"


async def test_a_rewrite_that_keeps_size_and_times_is_still_seen(pki: "PKI", serve: "Serve") -> None:
    old, new = pki.issue(SHARD), pki.issue(SHARD)
    while len(new.chain) != len(old.chain):
        new = pki.issue(SHARD)
    files = pki.write(old)
    before = files.cert.stat(), files.key.stat()
    async with serve(LiveTLS.start(files)) as port:
        files.cert.write_bytes(new.chain)
        files.key.write_bytes(new.key)
        for path, status in zip((files.cert, files.key), before, strict=True):
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            assert path.stat().st_size == status.st_size
        assert pki.served_serial(port) == serial(new)


async def test_a_swapped_symlink_is_followed(pki: "PKI", serve: "Serve", tmp_path: Path) -> None:
    """A Kubernetes secret mount: `tls.crt -> ..data/tls.crt`, `..data -> ..v1`, and ..data is renamed over."""
    old, new = pki.issue(SHARD), pki.issue(SHARD)
    pki.write(old, "..v1")
    pki.write(new, "..v2")
    (tmp_path / "..data").symlink_to("..v1")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).symlink_to(Path("..data", name))
    files = TLSFiles(tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt")
    async with serve(LiveTLS.start(files)) as port:
        assert pki.served_serial(port) == serial(old)
        (tmp_path / "..data_tmp").symlink_to("..v2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        shutil.rmtree(tmp_path / "..v1")
        assert pki.served_serial(port) == serial(new)


def cut(path: Path, content: bytes) -> int:
    return path.write_bytes(content[: len(content) // 2])


BROKEN: dict[str, Callable[[TLSFiles, "Issued"], object]] = {
    "the certificate is half written": lambda files, new: cut(files.cert, new.chain),
    "the certificate is truncated": lambda files, new: files.cert.write_bytes(b""),
    "the certificate is gone": lambda files, new: files.cert.unlink(),
    "the key is half written": lambda files, new: (files.cert.write_bytes(new.chain), cut(files.key, new.key)),
    "the key is truncated": lambda files, new: (files.cert.write_bytes(new.chain), files.key.write_bytes(b"")),
    "the key is the old one": lambda files, new: files.cert.write_bytes(new.chain),
    "the certificate is the old one": lambda files, new: files.key.write_bytes(new.key),
    "a chain is cut in its second block": lambda files, new: (
        files.key.write_bytes(new.key),
        files.cert.write_bytes(new.chain + new.chain[:100]),
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_half_written_pair_keeps_the_old_one_with_one_warning_and_is_taken_when_whole(
    pki: "PKI", serve: "Serve", broken: str
) -> None:
    old, new = pki.issue(SHARD), pki.issue(SHARD)
    files = pki.write(old)
    async with serve(LiveTLS.start(files)) as port:
        BROKEN[broken](files, new)
        with capture_logs() as logs:
            assert [pki.served_serial(port) for _ in range(3)] == [serial(old)] * 3
        assert [(log["log_level"], log["event"]) for log in logs] == [("warning", "tls_leaf_refused")]
        pki.write(new)
        assert pki.served_serial(port) == serial(new)


UNFIT: dict[str, tuple[Callable[["PKI"], "Issued"], str]] = {
    "expired": (lambda pki: pki.issue(SHARD, begins=-2 * HOUR, ends=-HOUR), "expired at"),
    "of the future": (lambda pki: pki.issue(SHARD, begins=HOUR, ends=2 * HOUR), "is not valid before"),
    "of another identity": (lambda pki: pki.issue("bigfleet://shard/s2"), "restart it to change who it is"),
    "of another kind": (lambda pki: pki.issue("bigfleet://admin"), "names bigfleet://admin"),
    "of no identity": (lambda pki: pki.issue(dns=("shard.example",)), "exactly one URI SAN"),
}


@pytest.mark.parametrize("unfit", UNFIT)
async def test_a_whole_pair_that_is_unfit_is_not_taken(pki: "PKI", serve: "Serve", unfit: str) -> None:
    old = pki.issue(SHARD)
    issue, reason = UNFIT[unfit]
    async with serve(LiveTLS.start(pki.write(old))) as port:
        pki.write(issue(pki))
        with capture_logs() as logs:
            assert [pki.served_serial(port) for _ in range(2)] == [serial(old)] * 2
    assert len(logs) == 1
    assert reason in logs[0]["reason"]


def test_going_back_to_the_old_files_ends_the_matter_and_a_new_fault_is_warned_of_again(pki: "PKI") -> None:
    old = pki.issue(SHARD)
    files = pki.write(old)
    tls = LiveTLS.start(files)
    with capture_logs() as logs:
        for content in (b"", old.chain, b""):
            files.cert.write_bytes(content)
            assert tls.leaf().serial == serial(old)
    assert len(logs) == 2


def test_an_unchanged_pair_is_the_same_leaf(pki: "PKI") -> None:
    tls = pki.live(SHARD)
    assert tls.leaf() is tls.leaf()


async def test_two_servers_on_one_material_both_follow_a_renewal(pki: "PKI", serve: "Serve") -> None:
    new = pki.issue(SHARD)
    tls = pki.live(SHARD)
    async with serve(tls) as first, serve(tls) as second:
        pki.write(new)
        assert pki.served_serial(first) == serial(new)
        assert pki.served_serial(second) == serial(new)


async def test_the_ca_is_the_one_of_the_start(pki: "PKI", serve: "Serve") -> None:
    files = pki.write(pki.issue(SHARD))
    tls = LiveTLS.start(files)
    async with serve(tls) as port:
        files.ca.write_bytes(b"anything")
        assert pki.served_serial(port) == tls.leaf().serial
