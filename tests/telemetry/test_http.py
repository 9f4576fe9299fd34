"""The HTTP endpoint: what each path answers, and how it bears clients that are rude, slow or many."""

import asyncio
import contextlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from bigfleet.telemetry import http as endpoint_module
from bigfleet.telemetry.health import Heartbeat, Readiness
from bigfleet.telemetry.http import HealthEndpoint
from bigfleet.telemetry.metrics import CoordinatorMetrics


class Rig:
    """An endpoint on a free port with the parts it shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = CoordinatorMetrics(self.registry)
        self.readiness = Readiness("inventory listed", "coordinator reached")
        self.heartbeat = Heartbeat()
        self.endpoint = HealthEndpoint(
            socket.create_server(("127.0.0.1", 0)), self.registry, self.readiness, self.heartbeat
        )

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.endpoint.port, timeout=10)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(), dict(response.getheaders())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.endpoint.port), timeout=10)

    def send(self, raw: bytes) -> bytes:
        with self.connect() as client:
            client.sendall(raw)
            return everything(client)


def status(answer: bytes) -> int:
    """The code in the first line of an answer."""
    return int(answer.split(b" ", 2)[1])


def everything(client: socket.socket) -> bytes:
    """What arrives until the endpoint closes, in either of the two ways that TCP has."""
    answer = b""
    try:
        while part := client.recv(1 << 20):
            answer += part
    except ConnectionResetError:
        pass
    return answer


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    with rig.endpoint:
        yield rig


def test_metrics_are_served_as_text(rig: Rig) -> None:
    rig.metrics.raft_term.set(7)
    status, body, headers = rig.ask("/metrics")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\nbigfleet_coordinator_raft_term 7.0\n" in body


def test_metrics_are_served_as_openmetrics_to_those_who_ask(rig: Rig) -> None:
    status, body, headers = rig.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0, */*;q=0.1")
    assert status == 200
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert "\n# TYPE bigfleet_coordinator_apply counter\n" in body
    assert body.endswith("\n# EOF\n")


def test_a_query_does_not_change_the_path(rig: Rig) -> None:
    assert rig.ask("/healthz?verbose=1")[0] == 200


def test_a_program_is_ready_when_every_condition_is_met(rig: Rig) -> None:
    assert rig.ask("/readyz")[:2] == (503, "inventory listed: not yet\ncoordinator reached: not yet\n")
    rig.readiness.meet("inventory listed")
    rig.readiness.fail("coordinator reached", "refused by 10.0.0.1")
    assert rig.ask("/readyz")[:2] == (503, "coordinator reached: refused by 10.0.0.1\n")
    rig.readiness.meet("coordinator reached")
    assert rig.ask("/readyz")[:2] == (200, "ok\n")
    rig.readiness.fail("inventory listed", "provider gone")
    assert rig.ask("/readyz")[:2] == (503, "inventory listed: provider gone\n")


def test_a_condition_that_was_not_named_at_first_is_an_error() -> None:
    with pytest.raises(KeyError, match="no readiness condition 'typo'; there are a, b"):
        Readiness("a", "b").meet("typo")


def test_a_program_is_healthy_while_its_loop_beats(rig: Rig) -> None:
    assert rig.ask("/healthz")[:2] == (200, "ok\n")
    rig.heartbeat.allowed_silence = -1.0
    status, body, _ = rig.ask("/healthz")
    assert status == 503
    assert re.match(r"event loop: silent for \d+ s", body)


async def test_a_heartbeat_is_kept_by_the_loop_that_runs_it() -> None:
    heartbeat = Heartbeat()
    while heartbeat.silence() < 0.01:
        pass
    before = time.monotonic()
    keeping = asyncio.create_task(heartbeat.keep())
    await asyncio.sleep(0)
    assert heartbeat.silence() <= time.monotonic() - before
    keeping.cancel()


async def test_the_endpoint_answers_while_the_programs_loop_is_stuck(rig: Rig) -> None:
    """The blocking call below runs on the loop itself."""
    assert rig.ask("/healthz")[0] == 200


def test_other_paths_are_not_found(rig: Rig) -> None:
    status, body, _ = rig.ask("/")
    assert (status, body) == (404, "there are /metrics, /healthz, /readyz\n")
    assert rig.ask("/metrics/")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_not_allowed(rig: Rig, method: str) -> None:
    status, _, headers = rig.ask("/metrics", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_head_has_the_length_of_get_and_no_body(rig: Rig, path: str) -> None:
    status, body, headers = rig.ask(path)
    headless = rig.ask(path, "HEAD")
    # The second may have changed between the two.
    assert headers.pop("Date")
    assert headless[2].pop("Date")
    assert headless == (status, "", headers)
    assert int(headers["Content-Length"]) == len(body)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"G\xc3\x89T /healthz HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: text/plain\r\n\t;folded=1\r\n\r\n",
    ],
)
def test_what_is_no_http_request_is_told_so_without_a_word_in_the_log(
    rig: Rig, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert status(rig.send(raw)) == 400
    assert not caplog.records


@pytest.mark.parametrize("line", [b"GET /healthz", b"GET /healthz HTTP/2.0"])
def test_another_version_of_http_is_told_so(rig: Rig, line: bytes) -> None:
    assert status(rig.send(line + b"\r\nHost: h\r\n\r\n")) == 505


def test_a_head_that_is_too_large_is_refused(rig: Rig) -> None:
    assert status(rig.send(b"GET /healthz HTTP/1.1\r\nHost: h\r\nA: " + b"x" * 60_000)) == 400


def test_a_registry_that_cannot_be_shown_is_an_error_of_ours_and_logged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint_module, "expose", lambda *_: 1 / 0)
    assert rig.ask("/metrics")[0] == 500
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_a_slow_client_is_cut_off(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "_CONNECTION_SECONDS", 0.05)
    assert rig.send(b"GET /healthz HTTP/1.1\r\n") == b""


def test_a_client_that_takes_no_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "_CONNECTION_SECONDS", 0.05)
    rig = Rig()
    for shard in range(1000):
        rig.metrics.pending_instructions.of(f"shard-{shard:0>20000}").set(1)
    with rig.endpoint, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(10)
        client.connect(("127.0.0.1", rig.endpoint.port))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.recv(1, socket.MSG_PEEK)
        # What the system has taken from the endpoint by then still arrives.
        while rig.endpoint.connections:
            threading.Event().wait(0.001)
        assert len(everything(client)) < 20_000_000


def test_with_one_connection_too_many_the_oldest_is_cut_and_the_rest_is_served(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "_MAX_CONNECTIONS", 2)
    with rig.connect() as first, rig.connect() as second, rig.connect() as third:
        assert everything(first) == b""
        for client in (second, third):
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
            assert status(everything(client)) == 200


def test_idle_peers_however_many_keep_no_probe_from_its_answer(rig: Rig) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(rig.connect())
            assert rig.ask("/healthz")[0] == 200


def test_stopping_frees_the_port_ends_the_thread_and_cuts_clients_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "_CONNECTION_SECONDS", 1000.0)
    rig = Rig()
    before = threading.active_count()
    rig.endpoint.start()
    with rig.connect() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert rig.ask("/healthz")[0] == 200
        rig.endpoint.stop()
        assert everything(client) == b""
    assert threading.active_count() == before
    socket.create_server(("127.0.0.1", rig.endpoint.port)).close()


def test_an_endpoint_that_never_started_gives_its_port_back() -> None:
    rig = Rig()
    rig.endpoint.stop()
    socket.create_server(("127.0.0.1", rig.endpoint.port)).close()
