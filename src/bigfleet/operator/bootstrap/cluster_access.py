"""How a new node reaches the cluster: API endpoint, CA bundle, version, and the kubelet's settings.

kubeadm publishes these in two ConfigMaps: `cluster-info` in kube-public and `kubelet-config` in kube-system. A flag of
the operator goes before them. A cluster without kubeadm lacks them; the operator's own kubeconfig is used instead.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from bigfleet.kube.access.kubeconfig_file import decoded
from bigfleet.kube.access.server import ServerConfig
from bigfleet.kube.client import Client
from bigfleet.kube.errors import ForbiddenError, KubeConfigError, NotFoundError
from bigfleet.kube.objects.resources import CONFIG_MAPS
from bigfleet.model import plain_yaml

# How long what was looked up counts as current.
_FRESH_SECONDS = 60.0
_MAX_CA_BYTES = 256 << 10
_PEM = "-----BEGIN CERTIFICATE-----"

# What a kubelet needs where the cluster publishes no settings. The default template writes the file that is named here.
_KUBELET_CONFIG: dict[str, object] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
    },
    "authorization": {"mode": "Webhook"},
    "cgroupDriver": "systemd",
    "clusterDomain": "cluster.local",
    "rotateCertificates": True,
}


class ClusterAccessError(Exception):
    """It is not known how a node reaches the cluster; the text says which flag to give."""


class NodeAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What every new node of the cluster is given alike."""

    endpoint: str
    ca_bundle: str
    kubernetes_version: str
    kubelet_config: dict[str, object]


class ClusterAccess:
    """Looks up how nodes reach the cluster, at most once a minute. `config` is the kubeconfig, None in a pod.

    The address by which a pod reaches the API server is never used: a machine that has not joined cannot reach it.
    """

    def __init__(
        self,
        client: Client,
        now: Callable[[], float],
        *,
        endpoint: str = "",
        ca_file: Path | None = None,
        config: ServerConfig | None = None,
        cluster_dns: tuple[str, ...] = (),
    ) -> None:
        self._client, self._now = client, now
        self._endpoint, self._ca_file, self._config, self._cluster_dns = endpoint, ca_file, config, cluster_dns
        self._known: NodeAccess | None = None
        self._looking = asyncio.Lock()
        self._known_at = -math.inf

    async def look(self) -> NodeAccess:
        """How nodes reach the cluster now. Raises ClusterAccessError, ApiError."""
        async with self._looking:
            if self._known is None or self._now() - self._known_at >= _FRESH_SECONDS:
                self._known = await self._look()
                self._known_at = self._now()
            return self._known

    async def _look(self) -> NodeAccess:
        endpoint, ca_bundle = await self._reach()
        return NodeAccess(
            endpoint=endpoint,
            ca_bundle=ca_bundle,
            kubernetes_version=(await self._client.version()).git_version,
            kubelet_config=await self._kubelet_config(),
        )

    async def _reach(self) -> tuple[str, str]:
        endpoint, ca_bundle = self._endpoint, self._ca_from_file()
        if not endpoint or not ca_bundle:
            published, signed_by = await self._cluster_info()
            if not published and self._config is not None:
                published, signed_by = self._config.server, _from_kubeconfig(self._config)
            endpoint, ca_bundle = endpoint or published, ca_bundle or signed_by
        if not endpoint:
            raise ClusterAccessError("no ConfigMap kube-public/cluster-info names the API server: give --api-endpoint")
        if not ca_bundle:
            raise ClusterAccessError("no ConfigMap kube-public/cluster-info holds the cluster's CA: give --ca-file")
        return endpoint, ca_bundle

    def _ca_from_file(self) -> str:
        if self._ca_file is None:
            return ""
        try:
            with self._ca_file.open("rb") as file:
                text = file.read(_MAX_CA_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterAccessError(f"--ca-file {self._ca_file}: cannot be read: {error}") from None
        if _PEM not in text:
            raise ClusterAccessError(f"--ca-file {self._ca_file}: holds no certificate in PEM")
        return text

    async def _cluster_info(self) -> tuple[str, str]:
        text = await self._published("cluster-info", "kube-public", "kubeconfig")
        if not text:
            return "", ""
        where = "ConfigMap kube-public/cluster-info"
        match _parsed(text, where):
            case {"clusters": [{"cluster": {"server": str(server), "certificate-authority-data": str(data)}}, *_]}:
                with suppress(UnicodeDecodeError):
                    if (ca_bundle := decoded(data)) is not None:
                        return server, ca_bundle.decode()
                raise ClusterAccessError(f"{where}: its certificate-authority-data is no text in base64")
        raise ClusterAccessError(f"{where}: names no cluster with server and certificate-authority-data")

    async def _kubelet_config(self) -> dict[str, object]:
        where = "ConfigMap kube-system/kubelet-config"
        text = await self._published("kubelet-config", "kube-system", "kubelet")
        found = _parsed(text, where) if text else dict(_KUBELET_CONFIG)
        if not isinstance(found, dict):
            raise ClusterAccessError(f"{where}: holds no KubeletConfiguration")
        return found | ({"clusterDNS": list(self._cluster_dns)} if self._cluster_dns else {})

    async def _published(self, name: str, namespace: str, key: str) -> str:
        try:
            return (await self._client.get(CONFIG_MAPS, name, namespace=namespace)).data.get(key, "")
        except (NotFoundError, ForbiddenError):
            return ""


def _from_kubeconfig(config: ServerConfig) -> str:
    try:
        return config.ca_bundle().decode()
    except (KubeConfigError, UnicodeDecodeError) as error:
        raise ClusterAccessError(f"the CA of the kubeconfig in use cannot be read: {error}") from None


def _parsed(text: str, where: str) -> object:
    try:
        return next((document for _, document in plain_yaml.documents(text)), None)
    except plain_yaml.PlainYamlError as error:
        raise ClusterAccessError(f"{where}: {error}") from None
