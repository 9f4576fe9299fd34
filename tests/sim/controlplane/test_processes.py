"""Certificates, children and places of control planes, without any of their programs."""

import os
import signal
import ssl
import stat
import sys
import threading
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from bigfleet.sim.controlplane import kubeconfig, places
from bigfleet.sim.controlplane.certificates import Authority, Pair
from bigfleet.sim.controlplane.children import Child
from bigfleet.sim.controlplane.errors import ControlPlaneError
from bigfleet.sim.controlplane.places import Record
from tests.shared.program import child

SLEEP = ["/bin/sh", "-c", "sleep 1000"]


def subject(pair: Pair, part: x509.ObjectIdentifier) -> list[str]:
    certificate = x509.load_pem_x509_certificate(pair.cert.read_bytes())
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(part)]


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    """A whole handshake in memory; ssl.SSLError if either side refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(5):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert all(side.version() == "TLSv1.3" for side in sides)


def contexts(authority: Authority, server: Pair, client: Pair) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    ours = ssl.create_default_context(cafile=str(authority.pair.cert))
    ours.load_cert_chain(client.cert, client.key)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.pair.cert))
    theirs.verify_mode = ssl.CERT_REQUIRED
    theirs.load_cert_chain(server.cert, server.key)
    return ours, theirs


def test_a_server_and_a_client_of_one_authority_trust_each_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    server = authority.server("serving", "127.0.0.1", "localhost")
    admin = authority.client("admin", "system:masters")
    shake_hands(*contexts(authority, server, admin), "127.0.0.1")
    shake_hands(*contexts(authority, server, admin), "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(*contexts(authority, server, admin), "127.0.0.2")
    with pytest.raises(ssl.SSLError):
        shake_hands(*contexts(authority, server, Authority(tmp_path / "other").client("admin")), "127.0.0.1")


def test_a_client_certificate_names_user_and_group(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "pki").client("admin", "system:masters")
    assert subject(pair, NameOID.COMMON_NAME) == ["admin"]
    assert subject(pair, NameOID.ORGANIZATION_NAME) == ["system:masters"]


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    for pair in (authority.pair, authority.client("a"), authority.signing_key("accounts")):
        assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "pki").stat().st_mode) == 0o700


def test_a_kubeconfig_has_everything_inside(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    kubeconfig.write(
        tmp_path / "kubeconfig", "a", "https://127.0.0.1:1", authority.pair.cert, "admin", authority.client("admin")
    )
    assert stat.S_IMODE((tmp_path / "kubeconfig").stat().st_mode) == 0o600
    content = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    assert content["current-context"] == content["contexts"][0]["name"] == "a"
    assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert set(content["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def check_until_it_ends(child: Child) -> None:
    while True:
        child.check()


def test_a_child_that_ends_by_itself_is_noticed_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = Child("etcd", ["/bin/sh", "-c", "echo one; echo disk is full >&2; kill -9 $$"], tmp_path)
    child.start()
    with pytest.raises(ControlPlaneError, match=r"etcd was killed by SIGKILL; its log .* ends: one \| disk is full"):
        check_until_it_ends(child)


def test_a_child_that_is_killed_has_not_ended_by_itself(tmp_path: Path) -> None:
    child = Child("etcd", SLEEP, tmp_path)
    child.start()
    child.kill()
    child.check()


def test_a_log_is_emptied_under_its_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigfleet.sim.controlplane.children._MAX_LOG_BYTES", 10)
    log, written = tmp_path / "logs" / "etcd.log", tmp_path / "written"
    os.mkfifo(written)
    child = Child("etcd", ["/bin/sh", "-c", f"echo a long first line; read x < {written}; echo second"], tmp_path)
    child.start()
    while not log.exists() or not log.stat().st_size:
        child.check()
    child.bound_log()
    written.write_text("go on\n")
    with pytest.raises(ControlPlaneError, match=r"ended with 0; .* ends: second$"):
        check_until_it_ends(child)
    assert log.with_suffix(".log.1").read_text() == "a long first line\n"


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    code = f"""
import pathlib, signal
from bigfleet.sim.controlplane.children import Child
Child("x", ["/bin/sh", "-c", "exec 9> {alive}; exec sleep 1000"], pathlib.Path("{tmp_path}")).start()
signal.pause()
"""
    with child([sys.executable, "-c", code]) as parent, alive.open("rb") as held_open_by_the_child:
        parent.kill()
        parent.wait()
        # Ends when nobody has the pipe open any more.
        assert held_open_by_the_child.read() == b""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "bigfleet" / "clusters"


def test_a_name_is_held_once(state: Path) -> None:
    with places.held("a") as folder:
        assert list(folder.iterdir()) == []
        with pytest.raises(ControlPlaneError, match="'a' runs already; bigfleet dev cluster down --name a"):
            places.held("a").__enter__()
        with places.held("b"):
            assert [each.name for each in places.list_clusters()] == ["a", "b"]
    assert places.list_clusters() == []


@pytest.mark.parametrize("name", ["", "-", "A", "a/b", ".", "..", "../..", "a" * 41])
def test_a_name_that_leads_elsewhere_is_refused(state: Path, name: str) -> None:
    state.mkdir(parents=True)
    for use in (places.held(name).__enter__, lambda: places.end(name), lambda: places.log_of(name)):
        with pytest.raises(ControlPlaneError, match="cannot name a cluster"):
            use()
    assert state.is_dir()


def test_states_are_seen(state: Path) -> None:
    with places.held("a") as folder:
        assert [each.state for each in places.list_clusters()] == ["starting"]
        places.write(folder, Record(name="a", pid=1, born="1", began=2.0))
        assert [each.state for each in places.list_clusters()] == ["starting"]
        ready = Record(name="a", pid=1, born="1", began=2.0, kubeconfig="/k")
        places.write(folder, ready)
        assert places.list_clusters() == [places.ListedCluster("a", "running", ready)]


def test_what_a_killed_cluster_left_is_dead_and_is_cleared_away(state: Path) -> None:
    (state / "a").mkdir(parents=True)
    assert [each.state for each in places.list_clusters()] == ["dead"]
    places.end("a")
    assert places.list_clusters() == []
    with pytest.raises(ControlPlaneError, match="no cluster 'a'"):
        places.end("a")
    (state / "a" / "old").mkdir(parents=True)
    with places.held("a") as folder:
        assert list(folder.iterdir()) == []


def test_a_cluster_that_is_told_to_end_is_awaited(state: Path) -> None:
    told, going = threading.Event(), threading.Event()

    def run() -> None:
        with places.held("a") as folder:
            places.write(folder, Record(name="a", pid=os.getpid(), born=places.born(os.getpid()), began=0.0))
            going.set()
            told.wait()

    before = signal.signal(signal.SIGTERM, lambda *_: told.set())
    thread = threading.Thread(target=run)
    try:
        thread.start()
        going.wait()
        places.end("a")
        assert told.is_set()
        assert places.list_clusters() == []
    finally:
        told.set()
        thread.join()
        signal.signal(signal.SIGTERM, before)


def test_a_process_that_only_has_the_number_of_the_old_one_is_left_alone(state: Path) -> None:
    with places.held("a") as folder:
        places.write(folder, Record(name="a", pid=os.getpid(), born="1", began=0.0))
        with pytest.raises(ControlPlaneError, match="is only just starting"):
            places.end("a")
