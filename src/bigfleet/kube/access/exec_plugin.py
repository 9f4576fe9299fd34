"""Exec plugins: programs that print credentials. What they print is bounded and never shown."""

import asyncio
import contextlib
import os
import signal
from datetime import datetime
from typing import Any

import msgspec

from bigfleet.kube.access.server import ExecPlugin, ServerConfig
from bigfleet.kube.errors import KubeConfigError
from bigfleet.model.crd import Time

PLUGIN_SECONDS = 60.0
"""What one run of a plugin may take."""

_MOST_BYTES = 1024 * 1024
_CHUNK_BYTES = 65536
# How long a plugin that was killed may take to end.
_END_SECONDS = 5.0
_KIND = "ExecCredential"


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Time | None = None


class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _Status | None = None


class Printed(msgspec.Struct, frozen=True):
    """The credentials that a plugin printed, and when they expire."""

    token: str
    certificate: bytes
    key: bytes
    expires: datetime | None

    def __repr__(self) -> str:
        return f"Printed(expires={self.expires})"


async def run(config: ServerConfig, plugin: ExecPlugin, seconds: float = PLUGIN_SECONDS) -> Printed:
    """Run the plugin once, or KubeConfigError."""
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _info(config, plugin)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            # Its error output may quote a secret; whoever runs the plugin by hand sees it.
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise _unfit(plugin, f"cannot be started: {error.strerror}{hint}") from None
    try:
        async with asyncio.timeout(seconds):
            output = await _output(process)
            if output is None:
                raise _unfit(plugin, f"printed more than {_MOST_BYTES:,} bytes")
            code = await process.wait()
    except TimeoutError:
        raise _unfit(plugin, f"did not end within {seconds:g} s") from None
    finally:
        await _ended(process)
    if code != 0:
        raise _unfit(plugin, f"ended with {code}; run it by hand to see why")
    return _printed(plugin, output)


async def _output(process: asyncio.subprocess.Process) -> bytes | None:
    """Everything that the plugin printed; None if that is too much."""
    output = bytearray()
    while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK_BYTES)):
        output += chunk
        if len(output) > _MOST_BYTES:
            return None
    return bytes(output)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End the process and those it started, except such as began a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            # A pipe that is still full keeps asyncio from seeing the end.
            while process.stdout is not None and await process.stdout.read(_CHUNK_BYTES):
                pass
            await process.wait()


def _info(config: ServerConfig, plugin: ExecPlugin) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster_info:
        cluster = {
            "server": config.server,
            "tls-server-name": config.server_name,
            "insecure-skip-tls-verify": config.insecure,
            "certificate-authority-data": config.ca_bundle(),
            "proxy-url": config.proxy,
        }
        spec["cluster"] = {name: value for name, value in cluster.items() if value}
    return msgspec.json.encode({"apiVersion": plugin.api_version, "kind": _KIND, "spec": spec}).decode()


def _printed(plugin: ExecPlugin, output: bytes) -> Printed:
    try:
        credential = msgspec.json.decode(output, type=_Credential)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _unfit(plugin, f"printed no {_KIND}") from None
    if credential.kind != _KIND or credential.api_version != plugin.api_version:
        raise _unfit(plugin, f"printed something else than a {_KIND} of {plugin.api_version}")
    status = credential.status or _Status()
    certificate, key = status.client_certificate_data or "", status.client_key_data or ""
    if bool(certificate) is not bool(key):
        raise _unfit(plugin, "printed only one of clientCertificateData and clientKeyData")
    if not status.token and not certificate:
        raise _unfit(plugin, "printed neither a token nor a certificate")
    return Printed(status.token or "", certificate.encode(), key.encode(), status.expiration_timestamp)


def _unfit(plugin: ExecPlugin, problem: str) -> KubeConfigError:
    return KubeConfigError(f"exec plugin {plugin.command}: {problem}")
