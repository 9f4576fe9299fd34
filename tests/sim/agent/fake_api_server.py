"""An API server of a few lines that joining nodes can talk to, over real TLS; a test decides what it grants."""

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from bigfleet.sim.agent.user_data import Bootstrap
from bigfleet.sim.controlplane.certificates import Authority
from tests.shared.api_server import listening, status

TOKEN = "abcdef.0123456789abcdef"


class FakeApiServer:
    """Tokens, certificate requests and nodes. `calls` is what was asked, as `user verb what`."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "pki")
        self.tokens = {TOKEN}
        self.approves = True
        self.denies = ""
        self.makes_ready = True
        self.requests: dict[str, dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.late_nodes: dict[str, dict[str, Any]] = {}
        """They appear once they have been asked for in vain."""
        self.calls: list[str] = []
        self._port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """On the same port each time."""
        app = web.Application()
        csrs, nodes = "/apis/certificates.k8s.io/v1/certificatesigningrequests", "/api/v1/nodes"
        app.router.add_post(csrs, self._make_request)
        app.router.add_get(csrs + "/{name}", self._get_request)
        app.router.add_post(nodes, self._make_node)
        app.router.add_get(nodes + "/{name}", self._get_node)
        app.router.add_patch(nodes + "/{name}", self._patch_node)
        pair, ca = self.authority.server("serving", "127.0.0.1"), self.authority.pair
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca.cert))
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_cert_chain(pair.cert, pair.key)
        async with listening(app, context, self._port) as self._port:
            yield

    def bootstrap(self, **fields: Any) -> Bootstrap:
        """What lets a node join here."""
        ca = self.authority.pair.cert.read_bytes()
        given = {"server": f"https://127.0.0.1:{self._port}", "ca": ca, "token": TOKEN, "node_name": "n1"}
        return Bootstrap(**{**given, **fields})

    def _user(self, request: web.Request, what: str) -> str:
        transport = request.transport
        shown = transport.get_extra_info("peercert") if transport is not None else None
        if shown:
            user = next(str(value) for part in shown["subject"] for key, value in part if key == "commonName")
        elif request.headers.get("Authorization", "").removeprefix("Bearer ") in self.tokens:
            user = "bootstrapper"
        else:
            raise _refused(web.HTTPUnauthorized, "Unauthorized", "Unauthorized")
        self.calls.append(f"{user} {request.method} {what}")
        return user

    async def _make_request(self, request: web.Request) -> web.Response:
        self._user(request, "csr")
        body = await request.json()
        name = f"{body['metadata']['generateName']}{len(self.requests)}"
        made = {"metadata": {"name": name}, "spec": body["spec"]}
        self.requests[name] = made
        return web.json_response(made)

    async def _get_request(self, request: web.Request) -> web.Response:
        self._user(request, "csr")
        found = self.requests[request.match_info["name"]]
        reached: dict[str, Any] = {}
        if self.denies:
            reached["conditions"] = [{"type": "Denied", "status": "True", "message": self.denies}]
        elif self.approves:
            signed = self._signed(base64.b64decode(found["spec"]["request"]))
            reached["certificate"] = base64.b64encode(signed).decode()
        return web.json_response(found | {"status": reached})

    async def _make_node(self, request: web.Request) -> web.Response:
        user = self._user(request, "node")
        body = await request.json()
        name = body["metadata"]["name"]
        if user != f"system:node:{name}":
            raise _refused(web.HTTPForbidden, "Forbidden", f"{user} is not allowed to modify node {name}")
        if name in self.nodes:
            raise _refused(web.HTTPConflict, "AlreadyExists", f'nodes "{name}" already exists')
        self.nodes[name] = body
        return web.json_response(body)

    async def _get_node(self, request: web.Request) -> web.Response:
        self._user(request, "node")
        return web.json_response(self._node(request))

    async def _patch_node(self, request: web.Request) -> web.Response:
        self._user(request, "node")
        node = self._node(request)
        for key, value in (await request.json())["metadata"]["labels"].items():
            if value is None:
                node["metadata"]["labels"].pop(key, None)
            else:
                node["metadata"]["labels"][key] = value
        return web.json_response(node)

    def _node(self, request: web.Request) -> dict[str, Any]:
        name = request.match_info["name"]
        node = self.nodes.get(name)
        if node is None:
            if name in self.late_nodes:
                self.nodes[name] = self.late_nodes.pop(name)
            raise _refused(web.HTTPNotFound, "NotFound", "no such node")
        if self.makes_ready:
            node.setdefault("status", {})["conditions"] = [{"type": "Ready", "status": "True"}]
        return node

    def _signed(self, pem: bytes) -> bytes:
        request = x509.load_pem_x509_csr(pem)
        assert request.is_signature_valid
        (group,) = request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        assert group.value == "system:nodes"
        key = load_pem_private_key(self.authority.pair.key.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        public = request.public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        now = datetime.now(UTC)
        issuer = x509.load_pem_x509_certificate(self.authority.pair.cert.read_bytes()).subject
        certificate = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=1))
            .sign(key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.PEM)


def _refused(kind: type[web.HTTPError], reason: str, message: str) -> web.HTTPError:
    return kind(text=json.dumps(status(kind.status_code, reason, message)), content_type="application/json")
