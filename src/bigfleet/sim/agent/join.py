"""One host's way into its cluster: it makes a key, asks for a certificate with the token, and registers its Node.

Like a kubelet it never gives up. A step that fails is tried again, later each time, and its last error is kept for
whoever wonders why the node does not come.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bigfleet.kube.access.server import ServerConfig
from bigfleet.kube.client import Client
from bigfleet.kube.errors import ApiError, ConflictError, KubeConfigError, NotFoundError
from bigfleet.kube.objects.resources import CSRS, NODES
from bigfleet.providerkit.offer import Shape
from bigfleet.sim.agent.node import manifest
from bigfleet.sim.agent.user_data import Bootstrap
from bigfleet.sim.controlplane.commands import KUBELET_LABEL

SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"

_AGENT = "bigfleet-sim-kubelet"
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0
_FIRST_LOOK, _LONGEST_LOOK = 0.25, 2.0

_log = structlog.get_logger("bigfleet.sim.agent")


class JoinError(Exception):
    """The cluster answered a step, but not with what the join needs."""


class Kubelet(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has on its disk."""

    bootstrap: Bootstrap
    node_name: str
    provider_id: str
    shape: Shape
    certificate: bytes = b""
    """The host's own certificate, PEM; empty until the cluster has issued it."""
    key: bytes = b""
    """The certificate's private key, PEM."""
    joined: bool = False
    """Whether the Node has been Ready."""

    def __repr__(self) -> str:
        return f"Kubelet({self.node_name}, {self.provider_id})"

    def with_token(self) -> Client:
        """A client with the bootstrap token, for a host that has no certificate yet."""
        return _client(ServerConfig(server=self.bootstrap.server, ca=self.bootstrap.ca, token=self.bootstrap.token))

    def as_node(self) -> Client:
        """A client with the host's own certificate, which may act as the node."""
        server, ca = self.bootstrap.server, self.bootstrap.ca
        return _client(ServerConfig(server=server, ca=ca, certificate=self.certificate, key=self.key))


class Join:
    """How far one host has come on its way into the cluster. `keep` writes to the host's disk."""

    def __init__(self, kubelet: Kubelet, keep: Callable[[Kubelet], None]) -> None:
        self.kubelet, self._keep = kubelet, keep
        self.step = "waiting for its turn"
        self.problem = ""

    def __str__(self) -> str:
        return f"{self.step}: {self.problem or 'nothing has gone wrong yet'}"

    async def run(self) -> None:
        """Go on from where the disk says, until the Node is Ready."""
        if not self.kubelet.certificate:
            async with self.kubelet.with_token() as client:
                await self._persist("asking for a certificate with the bootstrap token", self._ask, client)
        if not self.kubelet.joined:
            async with self.kubelet.as_node() as client:
                await self._persist("registering the Node with its own certificate", self._register, client)
                await self._persist("waiting for the Node to be Ready", self._await_ready, client)
            self._change(joined=True)
            _log.info("node_joined", node=self.kubelet.node_name)

    async def _persist(self, step: str, work: Callable[[Client], Awaitable[None]], client: Client) -> None:
        self.step, self.problem = step, ""
        wait = _FIRST_WAIT
        while True:
            try:
                await work(client)
            except (ApiError, KubeConfigError, JoinError) as error:
                if str(error) != self.problem:
                    _log.warning("node_join_hindered", node=self.kubelet.node_name, step=step, reason=str(error))
                self.problem = str(error)
            else:
                return
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)

    async def _ask(self, client: Client) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        request = {
            "request": _request(key, self.kubelet.node_name),
            "signerName": SIGNER,
            "usages": ["digital signature", "client auth"],
        }
        made = await client.create(CSRS, {"metadata": {"generateName": "node-csr-"}, "spec": request})
        name = made.metadata.name
        self.problem = f"CertificateSigningRequest {name} is neither approved nor denied"
        certificate = await _until(lambda: _issued(client, name))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self._change(certificate=certificate, key=private)

    async def _register(self, client: Client) -> None:
        kubelet = self.kubelet
        node = manifest(kubelet.node_name, kubelet.provider_id, kubelet.shape, kubelet.bootstrap)
        try:
            await client.create(NODES, node)
        except ConflictError:
            found = await client.get(NODES, kubelet.node_name)
            if found.spec.provider_id != kubelet.provider_id:
                owner = found.spec.provider_id or "no provider"
                raise JoinError(f"there is a Node {kubelet.node_name} already, of {owner}") from None
            # It is the host's own Node: the answer to its creation was lost, or it is left from before a wipe.
            await client.patch(NODES, kubelet.node_name, {"metadata": {"labels": node["metadata"]["labels"]}})

    async def _await_ready(self, client: Client) -> None:
        self.problem = f"Node {self.kubelet.node_name} is registered and was never Ready"
        await _until(lambda: _is_ready(client, self.kubelet.node_name))

    def _change(self, **fields: bytes | bool) -> None:
        self.kubelet = msgspec.structs.replace(self.kubelet, **fields)
        self._keep(self.kubelet)


async def leave(kubelet: Kubelet) -> bool:
    """Take KWOK's label off this host's Node, so that nothing plays its kubelet; returns whether there is such a Node.

    The Node itself stays: a kubelet may not delete it, and the operator will.
    """
    async with kubelet.as_node() as client:
        try:
            found = await client.get(NODES, kubelet.node_name)
            if found.spec.provider_id != kubelet.provider_id:
                return False
            await client.patch(NODES, kubelet.node_name, {"metadata": {"labels": {KUBELET_LABEL: None}}})
        except NotFoundError:
            return False
    return True


async def _until(look: Callable[[], Awaitable[bytes | bool]]) -> bytes:
    wait = _FIRST_LOOK
    while not (found := await look()):
        await asyncio.sleep(wait)
        wait = min(wait * 2, _LONGEST_LOOK)
    return found if isinstance(found, bytes) else b""


async def _issued(client: Client, name: str) -> bytes:
    found = await client.get(CSRS, name)
    for condition in found.status.conditions:
        if condition.type in {"Denied", "Failed"}:
            raise JoinError(f"CertificateSigningRequest {name}: {condition.type}: {condition.message}")
    return found.status.certificate


async def _is_ready(client: Client, name: str) -> bool:
    conditions = (await client.get(NODES, name)).status.conditions
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


def _request(key: ec.EllipticCurvePrivateKey, node: str) -> bytes:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    built = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return built.public_bytes(Encoding.PEM)


def _client(config: ServerConfig) -> Client:
    return Client(config, user_agent=_AGENT)
