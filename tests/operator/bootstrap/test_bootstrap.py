"""Bootstrap requests: what is answered, when nothing is, and that a repeat is no second token."""

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigfleet.kube.access.server import ServerConfig
from bigfleet.kube.errors import ApiError, ForbiddenError, UnreachableError
from bigfleet.kube.objects.resources import CONFIG_MAPS, LEASES, NODES, SECRETS
from bigfleet.model.labels import KUBELET_VERSION
from bigfleet.operator.bootstrap.answers import CONCURRENCY, MAX_STANDING, BootstrapAnswers
from bigfleet.operator.bootstrap.cluster_access import ClusterAccess, ClusterAccessError
from bigfleet.operator.bootstrap.template import BootstrapTemplate, LiveTemplate
from bigfleet.operator.bootstrap.tokens import BootstrapTokens
from bigfleet.operator.node_life.left_nodes import LeftNodes
from bigfleet.operator.node_life.machines import KnownMachines
from bigfleet.operator.rollup.nodes import Nodes
from bigfleet.wire.v1alpha1 import capacity_pb2, provider_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.operator.fakes import FakeClock, FakeServer, settle

CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SHORT = "{{ .ClusterID }} {{ .MachineID }} {{ .NodeName }} {{ .Token }} {{ .NodeSelector | to_json }} {{ .ProviderID }}"


class Life:
    """One life of the operator, as far as bootstrap goes."""

    def __init__(self, server: FakeServer, template: str, kubelet_version: str) -> None:
        clock, client = server.clock, server.client()
        self.sent, self.began = list[pb.BootstrapBlobResponse](), list[str]()
        self.machines, self.nodes = KnownMachines("prod"), Nodes(lambda _name: None)
        self.tokens = BootstrapTokens(client, "prod", clock.wall, wait=clock.wait)
        config = ServerConfig(server="https://10.0.0.1:6443", ca=CA.encode())
        self.bootstrap = BootstrapAnswers(
            "prod",
            LiveTemplate(None, BootstrapTemplate("t", template)),
            ClusterAccess(client, clock.now, config=config),
            self.tokens,
            self.machines,
            LeftNodes(client, self.machines, self.nodes, clock.now, wait=clock.wait),
            send=lambda frame: self.sent.append(frame.bootstrap_response),
            began=self.began.append,
            now=clock.now,
            kubelet_version=kubelet_version,
            sleep=clock.sleep,
        )

    def ask(self, request_id: str = "r-1", machine: str = "m-1", **fields: Any) -> None:
        fields = {"cluster_id": "prod", "node_name": machine, **fields}
        self.bootstrap.asked(pb.BootstrapRequest(request_id=request_id, machine_id=machine, **fields))

    def heard(self, machine: str = "m-1", **fields: Any) -> None:
        self.machines.heard(
            pb.NodeStateUpdate(machine_id=machine, cluster_id="prod", state=provider_pb2.MACHINE_STATE_IDLE, **fields)
        )

    def answers(self) -> list[tuple[str, str, str]]:
        return [(each.request_id, each.user_data.decode(), each.error) for each in self.sent]


@asynccontextmanager
async def living(server: FakeServer, template: str = SHORT, kubelet_version: str = "") -> AsyncIterator[Life]:
    life = Life(server, template, kubelet_version)
    server.sinks.clear()
    server.watch(NODES, life.nodes)
    await life.tokens.load()
    tasks = [asyncio.create_task(each) for each in (life.bootstrap.run(), life.tokens.run())]
    try:
        yield life
        assert not any(task.done() for task in tasks), tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def token(server: FakeServer) -> str:
    (name,) = server.names(SECRETS)
    secret = server.find(SECRETS, name, "kube-system")
    assert secret is not None
    return f"{secret.data['token-id'].decode()}.{secret.data['token-secret'].decode()}"


async def test_a_request_is_answered_with_user_data_and_how_long_it_is_good(server: FakeServer) -> None:
    requirements = [
        capacity_pb2.NodeSelectorRequirement(
            key="gpu", operator=capacity_pb2.NodeSelectorRequirement.OPERATOR_IN, values=["a100"]
        ),
        capacity_pb2.NodeSelectorRequirement(
            key="zone", operator=capacity_pb2.NodeSelectorRequirement.OPERATOR_IN, values=["a", "b"]
        ),
    ]
    async with living(server) as life:
        life.heard(labels={"zone": "a"}, provider_id="sim://h1")
        life.ask(requirements=requirements)
        await settle()
        labels = '{"gpu": "a100", "zone": "a"}'
        assert life.answers() == [("r-1", f"prod m-1 m-1 {token(server)} {labels} sim://h1", "")]
        assert life.sent[0].ttl_seconds == 3600
        assert life.began == ["m-1"]


async def test_the_built_in_template_joins_a_machine_of_which_only_the_id_is_known(server: FakeServer) -> None:
    async with living(server, LiveTemplate.start(None).current().text) as life:
        life.ask(node_name="")
        await settle()
        data = yaml.safe_load(life.sent[0].user_data)
        files = {each["path"]: each["content"] for each in data["write_files"]}
        assert files["/etc/kubernetes/kubelet.env"].strip() == "KUBELET_EXTRA_ARGS=--hostname-override=m-1"
        config = yaml.safe_load(files["/etc/kubernetes/bootstrap-kubelet.conf"])["clusters"][0]["cluster"]
        assert base64.b64decode(config["certificate-authority-data"]).decode() == CA


async def test_a_repeat_gets_the_same_answer_in_the_next_life_too(server: FakeServer) -> None:
    async with living(server) as life:
        life.ask()
        life.ask()
        await settle()
        life.ask()
        await settle()
        first = life.answers()
        assert len(first) == 2
        assert first[0] == first[1]
    async with living(server) as life:
        life.ask()
        await settle()
        assert life.answers() == first[:1]
    assert len(server.names(SECRETS)) == 1


async def test_many_requests_are_answered_each_with_its_own_token(server: FakeServer) -> None:
    async with living(server) as life:
        for number in range(100):
            life.ask(f"r-{number}", f"m-{number}")
        await settle()
        await settle()
        assert len({each.user_data for each in life.sent}) == 100
    assert len(server.names(SECRETS)) == 100


@pytest.mark.parametrize("steps", range(5))
async def test_a_withdrawn_request_is_not_answered_and_leaves_no_token(server: FakeServer, steps: int) -> None:
    async with living(server) as life:
        await settle()
        life.ask()
        for _ in range(steps):
            await asyncio.sleep(0)
        life.bootstrap.withdrawn("r-1")
        await settle()
        assert life.sent == []
    assert server.names(SECRETS) == []


async def test_a_request_withdrawn_after_its_answer_leaves_no_token_either(server: FakeServer) -> None:
    async with living(server) as life:
        life.ask()
        await settle()
        life.bootstrap.withdrawn("r-1")
        await settle()
        assert len(life.sent) == 1
    assert server.names(SECRETS) == []


async def test_nothing_is_said_to_a_session_that_has_not_asked(server: FakeServer) -> None:
    async with living(server) as life:
        life.ask()
        await asyncio.sleep(0)
        life.bootstrap.closed()
        await settle()
        assert life.sent == []
        life.ask()
        await settle()
        assert len(life.sent) == 1
    assert len(server.names(SECRETS)) == 1


def first_create_is_late(server: FakeServer) -> asyncio.Event:
    """Whatever is made first is there at once, and its maker hears so when the event is set."""
    gate, gates = asyncio.Event(), itertools.count()
    server.late = lambda verb, _name: gate if verb == "create" and next(gates) == 0 else None
    return gate


async def test_an_answer_that_comes_after_its_session_leaves_the_token_to_the_next(server: FakeServer) -> None:
    late = first_create_is_late(server)
    async with living(server) as life:
        life.ask()
        await settle()
        life.bootstrap.closed()
        life.ask()
        await settle()
        assert token(server) in life.sent[0].user_data.decode()
        late.set()
        await settle()
        assert len(server.names(SECRETS)) == 1


async def test_a_request_asked_anew_while_it_waits_is_answered_once_and_keeps_its_token(server: FakeServer) -> None:
    gate = asyncio.Event()
    server.late = lambda verb, _name: gate if verb == "create" else None
    async with living(server) as life:
        for number in range(CONCURRENCY):
            life.ask(f"r-{number}", f"m-{number}")
        life.ask("r-x", "m-x")
        await settle()
        life.bootstrap.closed()
        life.ask("r-x", "m-x")
        gate.set()
        await settle()
        ((request, data, error),) = life.answers()
        assert (request, error) == ("r-x", "")
        assert f"bootstrap-token-{data.split()[3][:6]}" in server.names(SECRETS)


async def test_a_request_withdrawn_while_its_token_is_made_leaves_none_whatever_becomes_of_the_session(
    server: FakeServer,
) -> None:
    late = first_create_is_late(server)
    async with living(server) as life:
        life.ask()
        await settle()
        life.bootstrap.withdrawn("r-1")
        life.bootstrap.closed()
        late.set()
        await settle()
    assert server.names(SECRETS) == []


async def test_a_request_withdrawn_and_asked_anew_keeps_its_token(server: FakeServer) -> None:
    late = first_create_is_late(server)
    async with living(server) as life:
        life.ask()
        await settle()
        life.bootstrap.withdrawn("r-1")
        life.ask()
        await settle()
        assert token(server) in life.sent[0].user_data.decode()
        late.set()
        await settle()
        assert len(server.names(SECRETS)) == 1


async def test_a_live_node_of_an_earlier_binding_is_an_error_and_an_old_one_goes(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("m-1")
    renewed = (clock.wall() - timedelta(seconds=500)).isoformat()
    server.put(LEASES, {"metadata": {"name": "m-1"}, "spec": {"renewTime": renewed}}, "kube-node-lease")
    async with living(server) as life:
        life.ask()
        await settle()
        assert "Node m-1 of an earlier binding is in the way" in life.sent[0].error
        assert life.sent[0].user_data == b""
        assert server.names(NODES) == ["m-1"]
        assert server.names(SECRETS) == []
        await clock.advance(60)
        life.ask()
        await settle()
        assert life.sent[1].error == ""
        assert server.names(NODES) == []


@pytest.mark.parametrize(
    ("label", "setting", "refused"),
    [
        ("v1.35.0", "", True),
        ("v1.30.0", "v1.34.0", True),
        ("", "v1.35.0", True),
        ("v1.33.1", "v1.35.0", False),
        ("", "", False),
    ],
)
async def test_a_kubelet_that_the_api_server_does_not_serve_is_refused(
    server: FakeServer, label: str, setting: str, refused: bool
) -> None:
    async with living(server, kubelet_version=setting) as life:
        life.heard(labels={KUBELET_VERSION: label} if label else {})
        life.ask()
        await settle()
        said = f"kubelet {label or setting} and API server v1.34.4" in life.sent[0].error
        assert said is refused
        assert bool(life.sent[0].user_data) is not refused
    assert len(server.names(SECRETS)) == (not refused)


@pytest.mark.parametrize("name", ["Upper", "a b", "x" * 254, "-a", "a\nb", "a..b"])
async def test_a_name_that_no_node_can_have_is_refused(server: FakeServer, name: str) -> None:
    async with living(server) as life:
        life.ask(node_name=name)
        await settle()
        assert "can be no Node's name" in life.sent[0].error


async def test_a_template_that_fails_is_an_error_without_the_token(server: FakeServer) -> None:
    async with living(server, "{{ Token }}{{ NodeSelector.gone }}") as life:
        life.ask()
        await settle()
        assert "'gone'" in life.sent[0].error
        assert server.names(SECRETS) == []


async def test_an_api_server_that_is_away_for_a_moment_only_delays(server: FakeServer, clock: FakeClock) -> None:
    server.refuse = UnreachableError
    async with living_without_load(server) as life:
        life.ask()
        await clock.advance(5)
        assert life.sent == []
        server.refuse = lambda _verb, _name: None
        await clock.advance(5)
        assert life.sent[0].user_data


async def test_an_api_server_that_stays_away_is_an_error_before_the_shard_gives_up(
    server: FakeServer, clock: FakeClock
) -> None:
    server.refuse = lambda verb, name: ApiError(verb, name, "etcd is away", code=500)
    async with living_without_load(server) as life:
        life.ask()
        await clock.advance(25)
        assert "etcd is away" in life.sent[0].error


async def test_what_is_forbidden_is_an_error_at_once(server: FakeServer) -> None:
    server.refuse = lambda verb, name: ForbiddenError(verb, name) if verb == "create" else None
    async with living(server) as life:
        life.ask()
        await settle()
        assert "403 Forbidden" in life.sent[0].error


@asynccontextmanager
async def living_without_load(server: FakeServer) -> AsyncIterator[Life]:
    refuse, server.refuse = server.refuse, lambda _verb, _name: None
    async with living(server) as life:
        server.refuse = refuse
        yield life


async def test_strangers_and_a_flood_are_turned_away(server: FakeServer) -> None:
    async with living(server) as life:
        life.ask(cluster_id="other")
        life.ask(request_id="")
        for number in range(MAX_STANDING + 1):
            life.ask(f"r-{number}", f"m-{number}")
        assert [each.request_id for each in life.sent] == ["", f"r-{MAX_STANDING}"]
        assert all(each.error for each in life.sent)


# How a node reaches the cluster.


def publish(server: FakeServer, kubeconfig: str) -> None:
    server.put(CONFIG_MAPS, {"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": kubeconfig}}, "kube-public")


def cluster_info(server: str, ca: str) -> str:
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca.encode()).decode()}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": cluster}]})


async def test_flags_win_over_cluster_info_and_that_over_the_kubeconfig(server: FakeServer, tmp_path: Path) -> None:
    config = ServerConfig(server="https://kubeconfig", ca=CA.encode())

    async def look(**given: Any) -> tuple[str, str]:
        access = await ClusterAccess(server.client(), server.clock.now, config=config, **given).look()
        assert access.kubernetes_version == "v1.34.4"
        return access.endpoint, access.ca_bundle

    assert await look() == ("https://kubeconfig", CA)
    publish(server, cluster_info("https://published", "published"))
    assert await look() == ("https://published", "published")
    assert await look(endpoint="https://flag") == ("https://flag", "published")
    (tmp_path / "ca.crt").write_text(CA + "flag")
    assert await look(ca_file=tmp_path / "ca.crt") == ("https://published", CA + "flag")
    server.refuse = lambda verb, name: ForbiddenError(verb, name) if name == "cluster-info" else None
    assert await look() == ("https://kubeconfig", CA)


@pytest.mark.parametrize(
    ("published", "given", "says"),
    [
        (None, {}, "--api-endpoint"),
        (None, {"endpoint": "https://x"}, "--ca-file"),
        ("{}", {}, "names no cluster"),
        ("a: [", {}, "cluster-info: "),
        ("clusters: [{cluster: {server: x, certificate-authority-data: '%'}}]", {}, "base64"),
        (None, {"ca_file": Path("/nowhere/ca.crt")}, "--ca-file /nowhere/ca.crt: cannot be read"),
        (None, {"ca_file": Path(__file__).with_name("__init__.py")}, "holds no certificate"),
    ],
)
async def test_what_is_missing_is_said(server: FakeServer, published: str | None, given: Any, says: str) -> None:
    if published is not None:
        publish(server, published)
    with pytest.raises(ClusterAccessError, match=says):
        await ClusterAccess(server.client(), server.clock.now, **given).look()


async def test_the_clusters_own_kubelet_settings_are_used_and_looked_up_once_a_minute(
    server: FakeServer, clock: FakeClock
) -> None:
    publish(server, cluster_info("https://published", "ca"))
    access = ClusterAccess(server.client(), clock.now, cluster_dns=("10.96.0.10",))
    plain = (await access.look()).kubelet_config
    assert plain["kind"] == "KubeletConfiguration"
    assert plain["clusterDNS"] == ["10.96.0.10"]
    theirs = {"kubelet": "kind: KubeletConfiguration\nmaxPods: 42\n"}
    server.put(CONFIG_MAPS, {"metadata": {"name": "kubelet-config"}, "data": theirs}, "kube-system")
    calls = len(server.calls)
    await clock.advance(59)
    assert (await access.look()).kubelet_config is plain
    assert len(server.calls) == calls
    await clock.advance(2)
    assert (await access.look()).kubelet_config["maxPods"] == 42
