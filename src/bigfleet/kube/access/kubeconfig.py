"""Reads where the API server is and which credentials to use, from a kubeconfig or from a pod's service account.

Files that may change are only named here; `credentials` reads them. Errors name the file and what to do, and hold no
secret.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from bigfleet.kube.access.kubeconfig_file import ExecEntry, KubeconfigFile, Named, NamedCluster, UserEntry, decoded
from bigfleet.kube.access.server import ExecPlugin, ServerConfig, Source
from bigfleet.kube.errors import KubeConfigError
from bigfleet.model import plain_yaml

__all__ = ["SERVICE_ACCOUNT", "ServerConfig", "in_cluster", "load"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token and its cluster's CA."""

_EXEC_VERSIONS = frozenset({"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"})
_MOST_BYTES = 4 * 1024 * 1024

N = TypeVar("N", bound=Named)


def load(
    kubeconfig: Path | None = None, context: str | None = None, environment: Mapping[str, str] = os.environ
) -> ServerConfig:
    """The API server to talk to, or KubeConfigError.

    From the file given, else those of $KUBECONFIG, else ~/.kube/config, else this pod's service account.
    """
    if kubeconfig is not None:
        return _from_files([kubeconfig], context, missing_ok=False)
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        return _from_files(named, context, missing_ok=True)
    home = Path(environment.get("HOME") or Path.home()) / ".kube" / "config"
    if home.exists():
        return _from_files([home], context, missing_ok=False)
    return in_cluster(environment, context=context)


def in_cluster(
    environment: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT, context: str | None = None
) -> ServerConfig:
    """The API server of the cluster in which this program is a pod, or KubeConfigError."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    token = folder / "token"
    if not host or not port or not token.exists():
        raise KubeConfigError(
            "no API server: this is no pod with a service account, and there is no kubeconfig; "
            "give --kubeconfig, or set KUBECONFIG"
        )
    if context is not None:
        raise KubeConfigError(f"context {context!r} was asked for, but there is no kubeconfig that could hold it")
    literal = f"[{host}]" if ":" in host else host
    return ServerConfig(server=f"https://{literal}:{port}", ca=folder / "ca.crt", token_file=token)


def _from_files(paths: list[Path], context: str | None, *, missing_ok: bool) -> ServerConfig:
    """Several files count as one; of entries with the same name the first counts."""
    found = [(path, _read(path)) for path in paths if not missing_ok or path.exists()]
    shown = ", ".join(map(str, paths))
    if not found:
        raise KubeConfigError(f"KUBECONFIG names {shown}: no such file")
    name = context or next((file.current_context for _, file in found if file.current_context), "")
    if not name:
        raise KubeConfigError(f"{shown}: there is no current-context; give --context")
    _, chosen = _pick("context", name, [(path, file.contexts) for path, file in found], shown)
    of_cluster, cluster = _pick("cluster", chosen.context.cluster, [(p, f.clusters) for p, f in found], shown)
    of_user, user = of_cluster, UserEntry()
    if chosen.context.user:
        of_user, named = _pick("user", chosen.context.user, [(p, f.users) for p, f in found], shown)
        user = named.user or user
    return _config(cluster, of_cluster, chosen.context.user, user, of_user)


def _read(path: Path) -> KubeconfigFile:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1).decode()
    except OSError as error:
        raise KubeConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KubeConfigError(f"{path}: is no text") from None
    try:
        document = next((content for _, content in plain_yaml.documents(text)), None)
    except plain_yaml.PlainYamlError as error:
        raise KubeConfigError(f"{path}: {error}") from None
    try:
        return msgspec.convert(document, KubeconfigFile)
    except msgspec.ValidationError as error:
        # msgspec names the place and the type, and not the value.
        raise KubeConfigError(f"{path}: {error}") from None


def _pick(what: str, name: str, groups: list[tuple[Path, tuple[N, ...] | None]], shown: str) -> tuple[Path, N]:
    for path, entries in groups:
        for entry in entries or ():
            if entry.name == name:
                return path, entry
    known = ", ".join(sorted(entry.name for _, entries in groups for entry in entries or ())) or "none"
    raise KubeConfigError(f"{shown}: there is no {what} {name!r}; there is: {known}")


def _config(named: NamedCluster, of_cluster: Path, user_name: str, user: UserEntry, of_user: Path) -> ServerConfig:
    cluster = named.cluster
    at_cluster, at_user = f"{of_cluster}: cluster {named.name!r}", f"{of_user}: user {user_name!r}"
    _check_url(f"{at_cluster}: server", cluster.server, {"http", "https"})
    if cluster.proxy_url:
        _check_url(f"{at_cluster}: proxy-url", cluster.proxy_url, {"http", "https"})
    if user.as_ or user.as_uid or user.as_groups:
        raise KubeConfigError(f"{at_user}: impersonation (as, as-uid, as-groups) is not supported; bind its own role")
    if user.auth_provider is not None:
        raise KubeConfigError(f"{at_user}: auth-provider is gone from Kubernetes; use an exec plugin")
    if user.username:
        raise KubeConfigError(f"{at_user}: no API server takes username and password any more; use a token")
    folder = of_user.parent
    certificate = _source(at_user, "client-certificate", user.client_certificate_data, user.client_certificate, folder)
    key = _source(at_user, "client-key", user.client_key_data, user.client_key, folder)
    if (certificate is None) is not (key is None):
        raise KubeConfigError(f"{at_user}: client-certificate and client-key go together; one is missing")
    ca = _source(
        at_cluster,
        "certificate-authority",
        cluster.certificate_authority_data,
        cluster.certificate_authority,
        of_cluster.parent,
    )
    if cluster.insecure_skip_tls_verify and ca is not None:
        raise KubeConfigError(f"{at_cluster}: insecure-skip-tls-verify and a certificate authority exclude each other")
    return ServerConfig(
        server=cluster.server.rstrip("/"),
        ca=ca,
        insecure=cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        proxy=cluster.proxy_url,
        certificate=certificate,
        key=key,
        token=user.token,
        token_file=folder / user.token_file if user.token_file else None,
        plugin=None if user.exec is None else _plugin(at_user, user.exec, folder),
    )


def _check_url(where: str, url: str, schemes: set[str]) -> None:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in schemes and bool(parts.hostname) and not parts.query and not parts.fragment
        fits = fits and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits:
        # The address is not quoted: that of a proxy may hold a password.
        raise KubeConfigError(f"{where}: write it as https://host:port (of {', '.join(sorted(schemes))})")


def _source(where: str, field: str, data: str, file: str, folder: Path) -> Source | None:
    """What a field holds: inline data first, else a file, whose path is relative to the kubeconfig."""
    if data:
        pem = decoded(data)
        if pem is None:
            raise KubeConfigError(f"{where}: {field}-data is no base64")
        return pem
    return folder / file if file else None


def _plugin(where: str, plugin: ExecEntry, folder: Path) -> ExecPlugin:
    if plugin.api_version not in _EXEC_VERSIONS:
        known = " or ".join(sorted(_EXEC_VERSIONS))
        raise KubeConfigError(f"{where}: exec: apiVersion is {plugin.api_version!r}; it must be {known}")
    if plugin.interactive_mode == "Always":
        raise KubeConfigError(f"{where}: exec: {plugin.command} wants to ask a person, and there is none here")
    # As with kubectl: a bare name is looked up in PATH, anything with a slash is relative to the kubeconfig.
    command = str(folder / plugin.command) if "/" in plugin.command else plugin.command
    return ExecPlugin(
        command=command,
        api_version=plugin.api_version,
        args=plugin.args or (),
        env=tuple((variable.name, variable.value) for variable in plugin.env or ()),
        cluster_info=plugin.provide_cluster_info,
        install_hint=plugin.install_hint,
    )
