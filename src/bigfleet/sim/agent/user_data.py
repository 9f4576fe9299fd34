"""Reading the bootstrap data that a host is given: cloud-init user data, of which two files are read.

The two files are the bootstrap kubeconfig and the kubelet's arguments, as the operator's default template writes them.
Everything else, which a real image would need, is ignored. The data holds a token, so no error quotes it.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec

from bigfleet.kube.access.kubeconfig_file import KubeconfigFile, UserEntry, decoded
from bigfleet.model import plain_yaml
from bigfleet.model.crd import Taint

MAX_BYTES = 256 * 1024
"""The largest user data that is taken; real clouds take less."""

KUBECONFIG = "/etc/kubernetes/bootstrap-kubelet.conf"
ARGUMENTS = "/etc/kubernetes/kubelet.env"

_HEADER = "#cloud-config"
_VARIABLE = "KUBELET_EXTRA_ARGS"
_FLAGS = ("--hostname-override", "--node-labels", "--register-with-taints")
_TAINT = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^=:]*))?:(?P<effect>\w+)")

T = TypeVar("T")


class UserDataError(Exception):
    """Bootstrap data from which no node can be made; says where and what was expected, and quotes no secret."""


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """All that a host knows of the cluster that it is to join."""

    server: str
    """The API server's address."""
    ca: bytes
    """The bundle that the API server's certificate is checked against, PEM."""
    token: str
    node_name: str = ""
    """The name that the Node is to have; empty for the host's own name."""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()

    def __repr__(self) -> str:
        return f"Bootstrap({self.server}, {self.node_name})"


class _File(msgspec.Struct, frozen=True):
    path: str
    content: str
    encoding: str = ""


class _CloudConfig(msgspec.Struct, frozen=True):
    write_files: tuple[_File, ...] = ()


def read(blob: bytes) -> Bootstrap:
    """What the data says, or UserDataError."""
    if len(blob) > MAX_BYTES:
        raise UserDataError(f"user data: {len(blob)} bytes, at most {MAX_BYTES} are taken")
    try:
        text = blob.decode()
    except UnicodeDecodeError as error:
        raise UserDataError(f"user data: is no UTF-8 text ({error.reason} at byte {error.start})") from None
    if text.split("\n", 1)[0].rstrip() != _HEADER:
        raise UserDataError(f"user data: must begin with the line {_HEADER}; other formats of cloud-init are not taken")
    files = {file.path: file for file in _parsed(text, _CloudConfig, "user data").write_files}
    for path in (KUBECONFIG, ARGUMENTS):
        if path not in files:
            raise UserDataError(f"user data: write_files: {path} is missing, without which no kubelet joins")
        if files[path].encoding:
            raise UserDataError(f"{path}: encoding {files[path].encoding[:40]!r} is not taken; write it as plain text")
    server, ca, token = _credentials(files[KUBECONFIG].content)
    name, labels, taints = _arguments(files[ARGUMENTS].content)
    return Bootstrap(server=server, ca=ca, token=token, node_name=name, labels=labels, taints=taints)


def _credentials(text: str) -> tuple[str, bytes, str]:
    config = _parsed(text, KubeconfigFile, KUBECONFIG)
    context = _one({each.name: each.context for each in config.contexts or ()}, config.current_context, "context")
    cluster = _one({each.name: each.cluster for each in config.clusters or ()}, context.cluster, "cluster")
    user = _one({each.name: each.user or UserEntry() for each in config.users or ()}, context.user, "user")
    if not cluster.server.startswith("https://"):
        raise UserDataError(f"{KUBECONFIG}: server must be an https:// address")
    ca = decoded(cluster.certificate_authority_data)
    if ca is None:
        raise UserDataError(f"{KUBECONFIG}: certificate-authority-data is no base64")
    if not ca or not user.token:
        raise UserDataError(f"{KUBECONFIG}: {'token' if ca else 'certificate-authority-data'} is empty")
    return cluster.server.rstrip("/"), ca, user.token


def _arguments(text: str) -> tuple[str, Mapping[str, str], tuple[Taint, ...]]:
    found = [line for line in text.splitlines() if line.startswith(f"{_VARIABLE}=")]
    if len(found) != 1:
        raise UserDataError(f"{ARGUMENTS}: must have one line {_VARIABLE}=..., and has {len(found)}")
    try:
        words = shlex.split(found[0].partition("=")[2])
    except ValueError as error:
        raise UserDataError(f"{ARGUMENTS}: {_VARIABLE}: {error}") from None
    values: dict[str, str] = {}
    # A unit's environment file may hold the whole value in quotes.
    for word in " ".join(words).split():
        flag, has_value, value = word.partition("=")
        if flag not in _FLAGS or not has_value:
            raise UserDataError(f"{ARGUMENTS}: {flag[:60]!r} is not known to this agent; it takes {', '.join(_FLAGS)}")
        values[flag] = value
    labels = dict(_labels(values.get("--node-labels", "")))
    return values.get("--hostname-override", ""), labels, tuple(_taints(values.get("--register-with-taints", "")))


def _labels(text: str) -> Iterator[tuple[str, str]]:
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UserDataError(f"{ARGUMENTS}: --node-labels: {pair[:100]!r} is no key=value")
        yield key, value


def _taints(text: str) -> Iterator[Taint]:
    for taint in filter(None, text.split(",")):
        found = _TAINT.fullmatch(taint)
        try:
            yield msgspec.convert(found and found.groupdict(default=""), Taint)
        except msgspec.ValidationError:
            raise UserDataError(
                f"{ARGUMENTS}: --register-with-taints: {taint[:100]!r} is no key=value:effect"
            ) from None


def _one(known: Mapping[str, T], name: str, what: str) -> T:
    if name not in known:
        raise UserDataError(f"{KUBECONFIG}: there is no {what} {name[:60]!r}")
    return known[name]


def _parsed(text: str, kind: type[T], where: str) -> T:
    try:
        found = [document for _, document in plain_yaml.documents(text)]
    except plain_yaml.PlainYamlError as error:
        raise UserDataError(f"{where}: {error.problem}") from None
    try:
        return msgspec.convert(found[0] if len(found) == 1 else None, kind)
    except msgspec.ValidationError as error:
        # msgspec's message names a type and a path, and does not quote the value.
        raise UserDataError(f"{where}: {error}") from None
