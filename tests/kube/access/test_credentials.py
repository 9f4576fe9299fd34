"""Who we are, while it changes: rotated files, plugins that expire, servers that no longer know us; and TLS."""

import asyncio
import json
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from bigfleet.kube.access import credentials as credentials_module
from bigfleet.kube.access import exec_plugin
from bigfleet.kube.access.credentials import REREAD_SECONDS, Credentials
from bigfleet.kube.access.server import ExecPlugin, ServerConfig
from bigfleet.kube.client import Client
from bigfleet.kube.errors import KubeConfigError, UnauthorizedError, UnreachableError
from bigfleet.kube.objects.resources import NODES

if TYPE_CHECKING:
    from tests.kube.scripted_server import Server, Serving
    from tests.shared.certificates import PKI

V1 = "client.authentication.k8s.io/v1"
SECRET = "s3cr3t-t0ken"
NODE = {"metadata": {"name": "n1"}}


def only(*tokens: str) -> Callable[[web.Request], Any]:
    """A server that knows these tokens."""

    async def behave(request: web.Request) -> web.Response:
        known = request.headers.get("Authorization", "").removeprefix("Bearer ") in tokens
        return web.json_response(NODE) if known else web.json_response({"reason": "Unauthorized"}, status=401)

    return behave


def script(path: Path, body: str) -> ExecPlugin:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return ExecPlugin(command=str(path), api_version=V1)


def printing(path: Path, expires: datetime | None = None, **status: str) -> ExecPlugin:
    """A plugin that prints this, and notes in a file beside it how often it ran and what it was told."""
    told = status | ({} if expires is None else {"expirationTimestamp": expires.isoformat()})
    output = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": told})
    # Not echo, which turns the \\n of JSON into line ends.
    return script(path, f"printf '%s\\n' \"$KUBERNETES_EXEC_INFO\" >> {path}.ran\nprintf '%s' '{output}'")


def runs(plugin: ExecPlugin) -> list[Any]:
    return [json.loads(line) for line in Path(f"{plugin.command}.ran").read_text().splitlines()]


class TestTokens:
    async def test_a_token_goes_with_every_call(self, server: "Server") -> None:
        server.behave = only(SECRET)
        async with Client(ServerConfig(server=server.url, token=f"{SECRET}\n")) as client:
            await client.get(NODES, "n1")

    async def test_a_rotated_file_is_read_after_a_while_and_at_once_when_refused(
        self, server: "Server", tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("first\n")
        now = 0.0
        credentials = Credentials(ServerConfig(server=server.url, token_file=file), clock=lambda: now)
        first = await credentials.current()
        file.write_text("second")
        now += REREAD_SECONDS - 1
        assert await credentials.current() is first
        now += 1
        second = await credentials.current()
        assert second.headers == {"Authorization": "Bearer second"}
        file.write_text("third")
        assert await credentials.renew(second)
        assert (await credentials.current()).headers == {"Authorization": "Bearer third"}

    async def test_a_401_is_answered_with_the_new_token(self, server: "Server", tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("old")
        server.behave = only("old")
        async with Client(ServerConfig(server=server.url, token_file=file)) as client:
            await client.get(NODES, "n1")
            file.write_text("new")
            server.behave = only("new")
            await client.get(NODES, "n1")
            async with client.watch(NODES, version="1", seconds=1, silence=5) as pieces:
                assert [piece async for piece in pieces]
        assert [asked.headers["Authorization"] for asked in server.asked] == [
            "Bearer old",
            "Bearer old",
            "Bearer new",
            "Bearer new",
        ]

    async def test_a_server_that_does_not_know_us_is_asked_once(self, server: "Server") -> None:
        server.behave = only("other")
        async with Client(ServerConfig(server=server.url, token=SECRET)) as client:
            with pytest.raises(UnauthorizedError) as caught:
                await client.get(NODES, "n1")
        assert len(server.asked) == 1
        assert SECRET not in str(caught.value)

    async def test_a_file_that_vanishes_leaves_the_last_good_token(self, server: "Server", tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("good")
        now = 0.0
        credentials = Credentials(ServerConfig(server=server.url, token_file=file), clock=lambda: now)
        good = await credentials.current()
        file.unlink()
        with capture_logs() as logs:
            for _ in range(3):
                now += REREAD_SECONDS
                assert await credentials.current() is good
        assert [entry["event"] for entry in logs] == ["kube_credentials_refused"]

    @pytest.mark.parametrize("token", ["two\nlines", "ümlaut", "nul\0"])
    async def test_what_cannot_be_a_header_is_no_token(self, server: "Server", token: str) -> None:
        with pytest.raises(KubeConfigError, match="no token has") as caught:
            await Credentials(ServerConfig(server=server.url, token=token)).current()
        assert token not in str(caught.value)


class TestPlugins:
    async def test_a_plugin_is_run_once_and_told_where_it_is_for(self, server: "Server", tmp_path: Path) -> None:
        plugin = printing(tmp_path / "p", token=SECRET)
        told = ExecPlugin(command=plugin.command, api_version=V1, cluster_info=True)
        server.behave = only(SECRET)
        async with Client(ServerConfig(server=server.url, plugin=told, ca=b"CA")) as client:
            for _ in range(3):
                await client.get(NODES, "n1")
        cluster = {"server": server.url, "certificate-authority-data": "Q0E="}
        assert runs(plugin) == [
            {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False, "cluster": cluster}}
        ]

    async def test_it_runs_again_when_what_it_printed_expires(self, tmp_path: Path) -> None:
        wall, clock = datetime(2026, 1, 1, tzinfo=UTC), 0.0
        plugin = printing(tmp_path / "p", expires=wall + timedelta(hours=1), token="first")
        config = ServerConfig(server="http://h", plugin=plugin)
        credentials = Credentials(config, clock=lambda: clock, now=lambda: wall)
        assert (await credentials.current()).headers == {"Authorization": "Bearer first"}
        wall += timedelta(minutes=59)
        clock += 3540
        await credentials.current()
        assert len(runs(plugin)) == 1
        printing(tmp_path / "p", expires=wall + timedelta(hours=2), token="second")
        wall += timedelta(minutes=1)
        clock += 60
        assert (await credentials.current()).headers == {"Authorization": "Bearer second"}
        assert len(runs(plugin)) == 2

    async def test_it_runs_again_on_401_once_for_all_callers(self, server: "Server", tmp_path: Path) -> None:
        plugin = printing(tmp_path / "p", token="old")
        server.behave = only("old")
        async with Client(ServerConfig(server=server.url, plugin=plugin)) as client:
            await client.get(NODES, "n1")
            printing(tmp_path / "p", token="new")
            server.behave = only("new")
            await asyncio.gather(*(client.get(NODES, "n1") for _ in range(10)))
            assert len(runs(plugin)) == 2
            # It prints the same again: nobody can help, and it is not run for each call.
            server.behave = only("newest")
            for _ in range(3):
                with pytest.raises(UnauthorizedError):
                    await client.get(NODES, "n1")
        assert len(runs(plugin)) == 2

    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            (f"echo {SECRET}; exit 3", "ended with 3"),
            (f"echo {SECRET}", "printed no ExecCredential"),
            (
                f'echo \'{{"apiVersion":"v2","kind":"ExecCredential","status":{{"token":"{SECRET}"}}}}\'',
                "something else",
            ),
            (f'echo \'{{"apiVersion":"{V1}","kind":"ExecCredential"}}\'', "neither a token nor a certificate"),
            (
                f'echo \'{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"clientKeyData":"{SECRET}"}}}}\'',
                "only one of",
            ),
            ("yes " + SECRET, "printed more than"),
        ],
    )
    async def test_what_a_plugin_prints_is_never_shown(self, tmp_path: Path, body: str, problem: str) -> None:
        plugin = script(tmp_path / "p", f"echo {SECRET} >&2\n{body}")
        with pytest.raises(KubeConfigError) as caught, capture_logs() as logs:
            await Credentials(ServerConfig(server="http://h", plugin=plugin)).current()
        assert problem in str(caught.value)
        assert plugin.command in str(caught.value)
        assert SECRET not in str(caught.value) + str(logs)

    async def test_a_plugin_that_hangs_is_ended_with_all_it_started(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        os.mkfifo(tmp_path / "held")
        plugin = script(tmp_path / "p", f"sleep 60 > {tmp_path}/held & wait")
        config = ServerConfig(server="http://h", plugin=plugin)
        reading = asyncio.create_task(asyncio.to_thread((tmp_path / "held").read_text))
        with pytest.raises(KubeConfigError, match="did not end within"):
            await exec_plugin.run(config, plugin, seconds=1.0)
        # What the child held open reads as ended once it is gone.
        async with asyncio.timeout(30):
            assert await reading == ""

    async def test_a_plugin_that_is_not_there_says_how_to_get_it(self) -> None:
        plugin = ExecPlugin(command="/no/such/plugin", api_version=V1, install_hint="see docs")
        with pytest.raises(KubeConfigError, match="cannot be started: No such file or directory; see docs"):
            await exec_plugin.run(ServerConfig(server="http://h"), plugin)


class TestTLS:
    def _context(self, pki: "PKI", clients: bool = False) -> ssl.SSLContext:
        files = pki.write(pki.issue(dns=("kubernetes",), ips=("127.0.0.1",)), "server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.cert, files.key)
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(files.ca)
        return context

    async def test_the_server_must_be_signed_by_the_authority(self, pki: "PKI", serving: "Serving") -> None:
        async with serving(tls=self._context(pki)) as server:
            server.behave = only("")
            async with Client(ServerConfig(server=server.url, ca=pki.ca.chain)) as client:
                await client.get(NODES, "n1")
            for config in (
                ServerConfig(server=server.url),
                ServerConfig(server=server.url, ca=pki.ca.chain, server_name="other"),
            ):
                async with Client(config) as client:
                    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                        await client.get(NODES, "n1")
            for config in (
                ServerConfig(server=server.url, ca=pki.ca.chain, server_name="kubernetes"),
                ServerConfig(server=server.url, insecure=True),
            ):
                async with Client(config) as client:
                    await client.get(NODES, "n1")

    @pytest.mark.parametrize("inline", [False, True])
    async def test_a_renewed_client_certificate_is_shown(
        self, pki: "PKI", serving: "Serving", inline: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(credentials_module, "REREAD_SECONDS", 0.0)
        shown: list[str] = []

        async def behave(request: web.Request) -> web.Response:
            assert request.transport is not None
            peer = request.transport.get_extra_info("peercert")
            shown.append(peer["subject"][0][0][1])
            return web.json_response(NODE)

        first = pki.issue(common_name="first")
        files = pki.write(first, "client")
        async with serving(tls=self._context(pki, clients=True)) as server:
            server.behave = behave
            config = ServerConfig(
                server=server.url,
                ca=files.ca,
                certificate=first.chain if inline else files.cert,
                key=first.key if inline else files.key,
            )
            async with Client(config) as client:
                await client.get(NODES, "n1")
                pki.write(pki.issue(common_name="second"), "client")
                await client.get(NODES, "n1")
                files.key.write_bytes(b"half wri")
                await client.get(NODES, "n1")
        assert shown == (["first"] * 3 if inline else ["first", "second", "second"])

    async def test_a_plugin_may_print_a_certificate(self, pki: "PKI", serving: "Serving", tmp_path: Path) -> None:
        issued = pki.issue(common_name="by plugin")
        plugin = printing(
            tmp_path / "p", clientCertificateData=issued.chain.decode(), clientKeyData=issued.key.decode()
        )
        async with serving(tls=self._context(pki, clients=True)) as server:
            server.behave = only("")
            async with Client(ServerConfig(server=server.url, ca=pki.ca.chain, plugin=plugin)) as client:
                await client.get(NODES, "n1")

    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({"ca": b"no PEM"}, "certificate authority for https://h is no PEM"),
            ({"ca": Path("/no/such/ca")}, "/no/such/ca: cannot be read"),
            ({"certificate": b"x", "key": b"y"}, "do not belong together"),
        ],
    )
    async def test_material_that_is_none(self, fields: dict[str, Any], problem: str) -> None:
        with pytest.raises(KubeConfigError, match=problem):
            await Credentials(ServerConfig(server="https://h", **fields)).current()

    async def test_an_encrypted_key_is_refused_without_asking_anybody(self, pki: "PKI") -> None:
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            PrivateFormat,
            load_pem_private_key,
        )

        issued = pki.issue()
        key = load_pem_private_key(issued.key, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass")
        )
        with pytest.raises(KubeConfigError, match="is encrypted"):
            await Credentials(ServerConfig(server="https://h", certificate=issued.chain, key=key)).current()
