"""Kubeconfigs as people have them, and the mistakes they make in them."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigfleet.kube.access.kubeconfig import in_cluster, load
from bigfleet.kube.access.server import ExecPlugin, ServerConfig
from bigfleet.kube.errors import KubeConfigError

SECRET = "s3cr3t-t0ken"


def kubeconfig(
    path: Path, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any
) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://h:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user if user is not None else {"token": SECRET}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ignored"}}],
        "current-context": "x",
        "preferences": {},
        **top,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_everything_a_kubeconfig_can_say(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "bin/get-token",
        "args": ["a"],
        "env": [{"name": "N", "value": "v"}],
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
        "installHint": "install it",
    }
    path = kubeconfig(
        tmp_path / "kc",
        {
            "server": "https://[::1]:6443/prefix/",
            "certificate-authority-data": encoded("CA"),
            "tls-server-name": "kubernetes",
            "proxy-url": "http://proxy:3128",
        },
        {
            "client-certificate": "sub/tls.crt",
            "client-key-data": encoded("KEY"),
            "token": SECRET,
            "tokenFile": "/abs/token",
            "exec": plugin,
        },
    )
    assert load(path) == ServerConfig(
        server="https://[::1]:6443/prefix",
        ca=b"CA",
        server_name="kubernetes",
        proxy="http://proxy:3128",
        certificate=tmp_path / "sub/tls.crt",
        key=b"KEY",
        token=SECRET,
        token_file=Path("/abs/token"),
        plugin=ExecPlugin(
            command=str(tmp_path / "bin/get-token"),
            api_version="client.authentication.k8s.io/v1",
            args=("a",),
            env=(("N", "v"),),
            cluster_info=True,
            install_hint="install it",
        ),
    )


def test_a_bare_command_is_looked_up_in_the_path(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": None, "env": None}
    found = load(kubeconfig(tmp_path / "kc", user={"exec": plugin})).plugin
    assert found == ExecPlugin(command="aws", api_version="client.authentication.k8s.io/v1beta1")


def test_the_context_asked_for_is_taken(tmp_path: Path) -> None:
    contexts = [
        {"name": "x", "context": {"cluster": "c", "user": "u"}},
        {"name": "y", "context": {"cluster": "d"}},
    ]
    clusters = [
        {"name": "c", "cluster": {"server": "https://c"}},
        {"name": "d", "cluster": {"server": "https://d", "insecure-skip-tls-verify": True}},
    ]
    path = kubeconfig(tmp_path / "kc", contexts=contexts, clusters=clusters)
    assert load(path).server == "https://c"
    assert load(path, "y") == ServerConfig(server="https://d", insecure=True)


def test_of_several_files_what_comes_first_stands(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "one" / "kc", {"certificate-authority": "ca.crt"}, contexts=[], users=[])
    second = kubeconfig(tmp_path / "two" / "kc", {"server": "https://other"}, {"tokenFile": "token"})
    config = load(environment={"KUBECONFIG": f"{tmp_path}/none::{first}:{second}", "HOME": str(tmp_path)})
    assert config.server == "https://h:6443"
    # Each path is relative to the file that it stands in.
    assert (config.ca, config.token_file) == (tmp_path / "one/ca.crt", tmp_path / "two/token")


def test_the_file_at_home_and_after_it_the_service_account(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(KubeConfigError, match="no pod with a service account"):
        load(environment=environment)
    kubeconfig(tmp_path / ".kube" / "config")
    assert load(environment=environment).server == "https://h:6443"


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pod_uses_its_service_account(tmp_path: Path, host: str, server: str) -> None:
    (tmp_path / "token").write_text(SECRET)
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    config = in_cluster(environment, tmp_path)
    assert config == ServerConfig(server=server, ca=tmp_path / "ca.crt", token_file=tmp_path / "token")
    with pytest.raises(KubeConfigError, match="'x' was asked for"):
        in_cluster(environment, tmp_path, "x")


@pytest.mark.parametrize(
    ("cluster", "user", "top", "problem"),
    [
        ({}, {}, {"current-context": ""}, "no current-context; give --context"),
        ({}, {}, {"current-context": "z"}, "no context 'z'; there is: x"),
        ({}, {}, {"clusters": None}, "no cluster 'c'; there is: none"),
        ({}, {}, {"users": []}, "no user 'u'"),
        ({"server": ""}, {}, {}, "cluster 'c': server: write it as https://host:port"),
        ({"server": "h:6443"}, {}, {}, "server: write it"),
        ({"server": "https://h:port"}, {}, {}, "server: write it"),
        ({"server": "https://h/?a=b"}, {}, {}, "server: write it"),
        ({"proxy-url": f"socks5://{SECRET}@p"}, {}, {}, "proxy-url: write it"),
        ({"certificate-authority-data": f"{SECRET}!"}, {}, {}, "certificate-authority-data is no base64"),
        ({"certificate-authority": "x", "insecure-skip-tls-verify": True}, {}, {}, "exclude each other"),
        ({}, {"client-certificate": "x"}, {}, "one is missing"),
        ({}, {"username": "me", "password": SECRET}, {}, "use a token"),
        ({}, {"auth-provider": {"name": "gcp", "config": {"t": SECRET}}}, {}, "use an exec plugin"),
        ({}, {"token": SECRET, "as": "somebody"}, {}, "impersonation"),
        ({}, {"token": SECRET, "as-groups": ["g"]}, {}, "impersonation"),
        ({}, {"token": {SECRET: SECRET}}, {}, "Expected `str`, got `object`"),
        ({}, {"exec": {"command": "c", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, {}, "it must be"),
        (
            {},
            {
                "exec": {
                    "command": "c",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Always",
                }
            },
            {},
            "wants to ask a person",
        ),
    ],
)
def test_mistakes_are_named_and_secrets_are_not(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], top: dict[str, Any], problem: str
) -> None:
    path = kubeconfig(tmp_path / "kc", cluster, user, **top)
    with pytest.raises(KubeConfigError) as caught:
        load(path)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"a: [", "line"), (b"\xff", "is no text"), (b"", "Expected `object`"), (b"- a", "Expected `object`")],
)
def test_files_that_are_none(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "kc"
    path.write_bytes(content)
    with pytest.raises(KubeConfigError, match=f"{path}.*{problem}"):
        load(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match="kc: cannot be read: No such file"):
        load(tmp_path / "kc")
    with pytest.raises(KubeConfigError, match="KUBECONFIG names /a, /b: no such file"):
        load(environment={"KUBECONFIG": "/a:/b"})


def test_a_config_does_not_show_its_secrets() -> None:
    plugin = ExecPlugin(command="c", api_version="v", args=(SECRET,), env=(("N", SECRET),))
    proxy = f"http://{SECRET}@p"
    config = ServerConfig(server="https://h", token=SECRET, key=SECRET.encode(), proxy=proxy, plugin=plugin)
    assert SECRET not in repr(config)
