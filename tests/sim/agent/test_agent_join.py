"""Hosts that join a cluster as kubelets do, against a small API server, and the cloud that waits for them."""

import asyncio
import base64
import json
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bigfleet.model.machine import Call, MachineState
from bigfleet.providerkit.ledger.ledger import Request
from bigfleet.providerkit.provider import Provider
from bigfleet.providerkit.store import MemoryStore
from bigfleet.sim.agent.agents import Agents
from bigfleet.sim.cloud.backend import CloudBackend
from bigfleet.sim.cloud.hosts import Hosts
from bigfleet.sim.cloud.reading import read
from bigfleet.sim.controlplane.certificates import Authority
from bigfleet.sim.controlplane.commands import KUBELET_KWOK, KUBELET_LABEL
from bigfleet.telemetry.metrics import ProviderMetrics
from tests.sim.agent.fake_api_server import TOKEN, FakeApiServer
from tests.sim.agent.made_user_data import SHAPE, user_data

S = MachineState


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long before the next attempt."""
    for name in ("join._FIRST_WAIT", "join._LONGEST_WAIT", "join._FIRST_LOOK", "join._LONGEST_LOOK"):
        monkeypatch.setattr(f"bigfleet.sim.agent.{name}", 0.01)
    monkeypatch.setattr("bigfleet.sim.agent.agents._RETRY_SECONDS", 0.01)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    fake = FakeApiServer(tmp_path)
    async with fake.serving():
        yield fake


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture
async def agents(hosts: Hosts) -> AsyncIterator[Agents]:
    made = Agents(hosts, "sim")
    yield made
    await made.close()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - what is awaited happens elsewhere
            await asyncio.sleep(0.01)


async def test_a_host_joins_with_its_bootstrap_data_and_nothing_else(
    server: FakeApiServer, agents: Agents, hosts: Hosts
) -> None:
    ref = hosts.launch("t", "m")
    agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: agents.has_joined(ref))
    node = server.nodes["n1"]
    assert node["spec"]["providerID"] == f"sim://{ref}"
    assert node["metadata"]["labels"][KUBELET_LABEL] == KUBELET_KWOK
    # Everything with the token until there is a certificate, everything with that afterwards; and few calls.
    assert server.calls == [
        "bootstrapper POST csr",
        "bootstrapper GET csr",
        "system:node:n1 POST node",
        "system:node:n1 GET node",
    ]
    (asked,) = server.requests.values()
    assert asked["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
    assert asked["spec"]["usages"] == ["digital signature", "client auth"]


async def test_without_a_name_in_the_data_the_host_has_its_own(
    server: FakeApiServer, agents: Agents, hosts: Hosts
) -> None:
    ref = hosts.launch("t", "m")
    agents.boot(ref, server.bootstrap(node_name=""), SHAPE, 0.0)
    await until(lambda: agents.has_joined(ref))
    assert list(server.nodes) == [ref]


async def test_a_token_that_is_not_known_is_named_and_tried_again(
    server: FakeApiServer, agents: Agents, hosts: Hosts
) -> None:
    server.tokens.clear()
    ref = hosts.launch("t", "m")
    agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: "401" in agents.hindrance(ref))
    assert agents.hindrance(ref).startswith("asking for a certificate with the bootstrap token: ")
    assert TOKEN not in agents.hindrance(ref)
    server.tokens.add(TOKEN)
    await until(lambda: agents.has_joined(ref))


async def test_a_wrong_ca_is_named(server: FakeApiServer, agents: Agents, hosts: Hosts, tmp_path: Path) -> None:
    ref = hosts.launch("t", "m")
    other = Authority(tmp_path / "other").pair.cert.read_bytes()
    agents.boot(ref, server.bootstrap(ca=other), SHAPE, 0.0)
    await until(lambda: "certificate verify failed" in agents.hindrance(ref).lower())
    assert server.calls == []


async def test_a_request_that_nobody_approves_is_named(server: FakeApiServer, agents: Agents, hosts: Hosts) -> None:
    server.approves = False
    ref = hosts.launch("t", "m")
    agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: "CertificateSigningRequest node-csr-0 is neither approved nor denied" in agents.hindrance(ref))
    server.approves = True
    await until(lambda: agents.has_joined(ref))


async def test_a_request_that_is_denied_is_named(server: FakeApiServer, agents: Agents, hosts: Hosts) -> None:
    server.denies = "not this one"
    ref = hosts.launch("t", "m")
    agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: "Denied: not this one" in agents.hindrance(ref))


async def test_a_node_that_is_another_hosts_is_left_alone(server: FakeApiServer, agents: Agents, hosts: Hosts) -> None:
    labels = {KUBELET_LABEL: KUBELET_KWOK}
    server.nodes["n1"] = {"metadata": {"name": "n1", "labels": labels}, "spec": {"providerID": "sim://other"}}
    ref = hosts.launch("t", "m")
    agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: "there is a Node n1 already, of sim://other" in agents.hindrance(ref))
    await agents.leave(ref)
    assert server.nodes["n1"]["metadata"]["labels"] == labels == {KUBELET_LABEL: KUBELET_KWOK}
    assert not any("PATCH" in call for call in server.calls)


async def test_its_own_node_from_before_is_taken_up_again(server: FakeApiServer, agents: Agents, hosts: Hosts) -> None:
    ref = hosts.launch("t", "m")
    server.nodes["n1"] = {"metadata": {"name": "n1", "labels": {}}, "spec": {"providerID": f"sim://{ref}"}}
    agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: agents.has_joined(ref))
    assert server.nodes["n1"]["metadata"]["labels"][KUBELET_LABEL] == KUBELET_KWOK


async def test_a_node_that_is_never_ready_is_awaited_and_named(
    server: FakeApiServer, agents: Agents, hosts: Hosts
) -> None:
    server.makes_ready = False
    ref = hosts.launch("t", "m")
    agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: "Node n1 is registered and was never Ready" in agents.hindrance(ref))
    assert not agents.has_joined(ref)


async def test_leaving_ends_the_kubelet_and_wipes_the_disk_but_not_the_node(
    server: FakeApiServer, agents: Agents, hosts: Hosts
) -> None:
    ref = hosts.launch("t", "m")
    agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: agents.has_joined(ref))
    await agents.leave(ref)
    assert KUBELET_LABEL not in server.nodes["n1"]["metadata"]["labels"]
    assert hosts.disk(ref) == b""
    assert not agents.has_joined(ref)


async def test_a_cluster_that_does_not_answer_hears_of_it_later(tmp_path: Path, agents: Agents, hosts: Hosts) -> None:
    server = FakeApiServer(tmp_path)
    ref = hosts.launch("t", "m")
    async with server.serving():
        agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
        await until(lambda: agents.has_joined(ref))
    leaving = agents.abandon(ref)
    assert leaving is not None
    async with server.serving():
        await leaving
    assert KUBELET_LABEL not in server.nodes["n1"]["metadata"]["labels"]


async def test_a_node_that_appears_as_its_host_is_lost_is_found(
    server: FakeApiServer, agents: Agents, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It asks once and then waits, so that nothing but what is said below is under way.
    monkeypatch.setattr("bigfleet.sim.agent.join._FIRST_WAIT", 1000.0)
    server.nodes["n1"] = {"metadata": {"name": "n1", "labels": {}}, "spec": {"providerID": "sim://other"}}
    ref = hosts.launch("t", "m")
    agents.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: "there is a Node" in agents.hindrance(ref))
    # It was asked for before the host was lost, and is made after somebody has looked.
    labels = {KUBELET_LABEL: KUBELET_KWOK}
    server.late_nodes["n1"] = {"metadata": {"name": "n1", "labels": labels}, "spec": {"providerID": f"sim://{ref}"}}
    leaving = agents.abandon(ref)
    assert leaving is not None
    del server.nodes["n1"]
    await leaving
    assert server.nodes["n1"]["metadata"]["labels"] == {}


async def test_a_join_goes_on_in_the_next_life_of_the_cloud(server: FakeApiServer, hosts: Hosts) -> None:
    server.makes_ready = False
    ref = hosts.launch("t", "m")
    first = Agents(hosts, "sim")
    first.boot(ref, server.bootstrap(), SHAPE, 0.0)
    await until(lambda: server.nodes)
    await first.close()
    server.makes_ready = True
    second = Agents(hosts, "sim")
    second.resume(hosts)
    await until(lambda: second.has_joined(ref))
    assert len(server.requests) == 1
    await second.close()
    # A third has nothing left to do for it but to leave.
    third = Agents(hosts, "sim")
    third.resume(hosts)
    assert third.has_joined(ref)
    await third.leave(ref)
    assert KUBELET_LABEL not in server.nodes["n1"]["metadata"]["labels"]


class Cloud:
    """A provider of one machine whose nodes are real."""

    def __init__(self, hosts: Hosts, **settings: Any) -> None:
        pool = {
            "name": "a",
            "instance_type": "m.8",
            "zone": "eu-1a",
            "capacity_type": "OnDemand",
            "count": 1,
            "resources": {"cpu": 8, "memory": "32Gi"},
        }
        steps = ("create", "configure", "join", "drain", "wipe", "delete")
        config = {"pools": [pool], "nodes": "real", "latency": dict.fromkeys(steps, 0), **settings}
        backend = CloudBackend(read(json.dumps(config), "test"), hosts)
        self.provider = Provider(backend, MemoryStore(), ProviderMetrics(CollectorRegistry()))

    async def ask(self, call: Call, blob: bytes = b"") -> None:
        cluster = "shop" if call is Call.CONFIGURE else ""
        await self.provider.ask(Request(call=call, machine="a-000000", cluster=cluster), blob)

    async def becomes(self, state: MachineState) -> None:
        await until(lambda: self.provider.ledger.get("a-000000").state is state)

    @property
    def error(self) -> str:
        return self.provider.ledger.get("a-000000").last_error


def blob_for(server: FakeApiServer) -> bytes:
    given = server.bootstrap()
    config = {
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": given.server, "certificate-authority-data": base64.b64encode(given.ca).decode()},
            }
        ],
        "users": [{"name": "u", "user": {"token": given.token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return user_data(json.dumps(config), "KUBELET_EXTRA_ARGS=--hostname-override=n1\n")


async def test_a_machine_is_configured_when_its_node_is_ready_and_left_when_it_is_drained(
    server: FakeApiServer, hosts: Hosts
) -> None:
    server.makes_ready = False
    cloud = Cloud(hosts)
    async with cloud.provider:
        await cloud.ask(Call.CREATE)
        await cloud.becomes(S.IDLE)
        await cloud.ask(Call.CONFIGURE, blob_for(server))
        await until(lambda: server.nodes)
        assert cloud.provider.ledger.get("a-000000").state is S.CONFIGURING
        server.makes_ready = True
        await cloud.becomes(S.CONFIGURED)
        await cloud.ask(Call.DRAIN)
        await cloud.becomes(S.IDLE)
        assert KUBELET_LABEL not in server.nodes["n1"]["metadata"]["labels"]


async def test_a_node_that_does_not_come_fails_its_machine_with_the_step(server: FakeApiServer, hosts: Hosts) -> None:
    server.tokens.clear()
    cloud = Cloud(hosts, timeouts={"configure": "1s"})
    async with cloud.provider:
        await cloud.ask(Call.CREATE)
        await cloud.becomes(S.IDLE)
        await cloud.ask(Call.CONFIGURE, blob_for(server))
        await cloud.becomes(S.FAILED)
        assert "NodeNotReady: asking for a certificate with the bootstrap token: " in cloud.error
        assert "401" in cloud.error


async def test_data_that_no_kubelet_could_use_fails_at_once(server: FakeApiServer, hosts: Hosts) -> None:
    cloud = Cloud(hosts)
    async with cloud.provider:
        await cloud.ask(Call.CREATE)
        await cloud.becomes(S.IDLE)
        await cloud.ask(Call.CONFIGURE, b"#!/bin/sh\n")
        await cloud.becomes(S.FAILED)
        assert "InvalidUserData: user data: must begin with the line #cloud-config" in cloud.error


async def test_a_host_that_is_deleted_takes_its_kubelet_along(server: FakeApiServer, hosts: Hosts) -> None:
    server.makes_ready = False
    cloud = Cloud(hosts, timeouts={"configure": "1s"})
    async with cloud.provider:
        await cloud.ask(Call.CREATE)
        await cloud.becomes(S.IDLE)
        await cloud.ask(Call.CONFIGURE, blob_for(server))
        await cloud.becomes(S.FAILED)
        await cloud.ask(Call.DELETE)
        await cloud.becomes(S.SPECULATIVE)
        await until(lambda: KUBELET_LABEL not in server.nodes["n1"]["metadata"]["labels"])


def test_disks_outlive_the_process_and_are_for_their_owner_only(tmp_path: Path) -> None:
    first = Hosts(tmp_path / "cloud")
    kept, wiped, ended = (first.launch(token, "m") for token in "abc")
    for ref in (kept, wiped, ended):
        first.write_disk(ref, b"secret")
    first.close()
    assert stat.S_IMODE((tmp_path / "cloud").stat().st_mode) == 0o600
    second = Hosts(tmp_path / "cloud")
    second.write_disk(wiped, b"")
    second.terminate(ended)
    assert [second.disk(ref) for ref in (kept, wiped, ended)] == [b"secret", b"", b""]
    second.close()
