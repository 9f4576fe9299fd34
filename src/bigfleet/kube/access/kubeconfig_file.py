"""What a kubeconfig file holds, field by field, as it is read and written. `kubeconfig` says what the fields mean."""

import base64
import binascii
from typing import Any

import msgspec


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What all structs here share."""


class ClusterEntry(_Value, frozen=True):
    """Where an API server is, and by which authorities it is known."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class EnvVar(_Value, frozen=True):
    """A variable in the environment of an exec plugin."""

    name: str
    value: str


class ExecEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A program that prints credentials."""

    command: str
    api_version: str
    args: tuple[str, ...] | None = ()
    env: tuple[EnvVar, ...] | None = ()
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False
    install_hint: str = ""


class UserEntry(_Value, frozen=True):
    """Who somebody is to an API server. What it shows of itself is none of it: most of the fields are secrets."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    exec: ExecEntry | None = None
    auth_provider: object = None
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return "UserEntry()"


class ContextEntry(_Value, frozen=True):
    """Which user is to talk to which cluster, by their names in the file."""

    cluster: str = ""
    user: str = ""


class Named(_Value, frozen=True):
    """Anything that the file calls by a name."""

    name: str


class NamedCluster(Named, frozen=True):
    """A cluster under its name."""

    cluster: ClusterEntry


class NamedUser(Named, frozen=True):
    """A user under a name."""

    user: UserEntry | None = None


class NamedContext(Named, frozen=True):
    """A context under its name."""

    context: ContextEntry


class KubeconfigFile(_Value, frozen=True):
    """One kubeconfig file."""

    clusters: tuple[NamedCluster, ...] | None = ()
    users: tuple[NamedUser, ...] | None = ()
    contexts: tuple[NamedContext, ...] | None = ()
    current_context: str = ""


def one_cluster(cluster: str, entry: ClusterEntry, user: str, who: UserEntry) -> KubeconfigFile:
    """A file with one cluster, one user and the context of both, under the cluster's name."""
    return KubeconfigFile(
        clusters=(NamedCluster(name=cluster, cluster=entry),),
        users=(NamedUser(name=user, user=who),),
        contexts=(NamedContext(name=cluster, context=ContextEntry(cluster=cluster, user=user)),),
        current_context=cluster,
    )


def written(file: KubeconfigFile) -> dict[str, Any]:
    """The file as a document that YAML or JSON can hold."""
    return {"apiVersion": "v1", "kind": "Config", **msgspec.to_builtins(file)}


def encoded(pem: bytes) -> str:
    """What a field whose name ends in -data holds for these bytes."""
    return base64.b64encode(pem).decode()


def decoded(data: str) -> bytes | None:
    """The bytes that a field whose name ends in -data holds; None where it is no base64."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        return None
