"""The operator's settings, checked once."""

import ipaddress
import os
from pathlib import Path

import msgspec

from bigfleet.model import duration
from bigfleet.operator.bootstrap.version_skew import SkewError, check_version
from bigfleet.transport.address import Address, TCPAddress, UnixAddress
from bigfleet.transport.identity import Identity, IdentityError, Role
from bigfleet.transport.tls import TLSFiles

LEAST_INTERVAL = "1s"
"""The shortest time between two roll-ups that can be set."""

NAMESPACE = "bigfleet-system"
"""The namespace of the operator where nothing else says it."""

_SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class OperatorConfigError(Exception):
    """A setting that cannot be used; the text names the flag, the problem and what fits."""


class OperatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One operator's settings."""

    cluster_id: str
    shard_address: Address
    metrics_listen: TCPAddress
    kubeconfig: Path | None
    context: str | None
    namespace: str
    rollup_interval: float
    acknowledge_concurrency: int
    kube_qps: float
    kube_burst: int
    bootstrap_template_file: Path | None
    api_endpoint: str
    ca_file: Path | None
    kubelet_version: str
    cluster_dns: tuple[str, ...]
    tls: TLSFiles | None

    @property
    def interval_written(self) -> str:
        """The interval between two roll-ups, as people write it."""
        return str(duration.written(self.rollup_interval))

    @property
    def unprotected(self) -> bool:
        """Whether bootstrap data would leave this host without encryption."""
        address = self.shard_address
        if self.tls is not None or isinstance(address, UnixAddress):
            return False
        try:
            return not ipaddress.ip_address(address.host).is_loopback
        except ValueError:
            return address.host != "localhost"


def interval(text: str) -> float:
    """The seconds between two roll-ups that a text states."""
    try:
        seconds = duration.parse(text)
    except ValueError as error:
        raise OperatorConfigError(f"--rollup-interval: {error}") from None
    if seconds < duration.parse(LEAST_INTERVAL):
        raise OperatorConfigError(f"--rollup-interval: {text!r} is too short: {LEAST_INTERVAL} at least")
    return seconds


def cluster_id(text: str) -> str:
    """The id of the cluster, if a certificate can name it."""
    try:
        Identity(Role.CLUSTER, text)
    except IdentityError as error:
        raise OperatorConfigError(f"--cluster-id: {error}") from None
    return text


def kubelet_version(text: str) -> str:
    """The version of kubelets, or the empty text."""
    try:
        if text:
            check_version(text)
    except SkewError as error:
        raise OperatorConfigError(f"--kubelet-version: {error}") from None
    return text


def namespace(text: str) -> str:
    """The namespace that this program runs in: the one given, else its pod's, else NAMESPACE."""
    if text:
        return text
    if from_pod := os.environ.get("POD_NAMESPACE"):
        return from_pod
    try:
        return _SERVICE_ACCOUNT_NAMESPACE.read_text().strip() or NAMESPACE
    except OSError:
        return NAMESPACE
