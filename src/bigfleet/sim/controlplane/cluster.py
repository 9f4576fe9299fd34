"""One control plane: etcd, API server, controller manager, scheduler and KWOK as children of this process.

Its data is thrown away at its end, so its programs are killed and need not end in order.
"""

import asyncio
import secrets
import shutil
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Self

import aiohttp

from bigfleet.kube.access.kubeconfig import load
from bigfleet.kube.access.server import ServerConfig
from bigfleet.sim.controlplane import kubeconfig
from bigfleet.sim.controlplane.certificates import Authority, Pair
from bigfleet.sim.controlplane.children import Child
from bigfleet.sim.controlplane.commands import LOOPBACK, Layout, Ports, commands
from bigfleet.sim.controlplane.errors import ControlPlaneError
from bigfleet.sim.controlplane.programs.binaries import Binaries

_ATTEMPTS = 3
_TAKEN = "address already in use"
# Below the range from which the kernel takes ports for outgoing connections.
_PORTS = range(20_000, 32_000)
_START_SECONDS = 90.0
_POLL_SECONDS = 0.1
_WATCH_SECONDS = 1.0
_ASK = aiohttp.ClientTimeout(total=5)

Probe = Callable[[], Awaitable[bool]]


class ControlPlane:
    """A cluster without nodes, in a folder of its own that must be empty. `async with` starts and ends the cluster."""

    _authority: Authority
    _admin: Pair

    def __init__(self, name: str, folder: Path, binaries: Binaries) -> None:
        self.name, self._binaries = name, binaries
        self._layout = Layout(folder)
        self._children: dict[str, Child] = {}
        self._ports = Ports(0, 0, 0, 0, 0, 0)

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig file."""
        return self._layout.kubeconfig

    @property
    def config(self) -> ServerConfig:
        """How our own client reaches the API server as an admin."""
        return load(self.kubeconfig)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{LOOPBACK}:{self._ports.api_server}"

    @property
    def ca(self) -> bytes:
        """The CA certificate that the API server's certificate is checked against, PEM."""
        return self._authority.pair.cert.read_bytes()

    @property
    def pids(self) -> Mapping[str, int]:
        """The process id of each program, by the program's name."""
        return {name: child.pid for name, child in self._children.items()}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start every program, install BigFleet's CRDs and the bindings for joining nodes, and wait until all of it
        works.
        """
        self._authority = Authority(self._layout.folder / "pki")
        self._admin = self._authority.client("admin", "system:masters")
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._start()
            except ControlPlaneError as error:
                await self.stop()
                # Another process may have taken a port between our check and the program's start.
                if attempt == _ATTEMPTS or _TAKEN not in str(error):
                    raise
            except BaseException:
                await self.stop()
                raise
            else:
                return

    async def stop(self) -> None:
        """End every program."""
        for child in reversed(self._children.values()):
            child.kill()

    async def restart_api_server(self) -> None:
        """Kill the API server, start it anew on the same port and data, and wait until it is ready."""
        api_server = self._children["kube-apiserver"]
        api_server.kill()
        api_server.start()
        async with self._session() as session:
            await self._until("kube-apiserver is ready", self._api(session, "/readyz"))

    def check(self) -> None:
        """Raise ControlPlaneError if one of its programs has ended."""
        for child in self._children.values():
            child.check()

    async def watch(self) -> None:
        """Keep the logs small until a program ends; raises ControlPlaneError then."""
        while True:
            self.check()
            for child in self._children.values():
                child.bound_log()
            await asyncio.sleep(_WATCH_SECONDS)

    async def version(self) -> str:
        """The API server's version, as in `v1.34.4`."""
        async with self._session() as session, session.get(f"{self.server}/version") as answer:
            return str((await answer.json())["gitVersion"])

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl prints as the cluster's admin; ControlPlaneError with its error output if it fails."""
        process = await asyncio.create_subprocess_exec(
            str(self._binaries["kubectl"]),
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self._layout.folder / 'kubectl-cache'}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            said, complaint = await process.communicate(stdin.encode())
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            raise ControlPlaneError(f"kubectl {' '.join(arguments)}: {complaint.decode(errors='replace').strip()}")
        return said.decode()

    async def _start(self) -> None:
        # The data of an earlier attempt holds that attempt's ports.
        shutil.rmtree(self._layout.etcd, ignore_errors=True)
        self._ports = _free_ports()
        self._write_kubeconfigs()
        self._children = {
            name: Child(name, command, self._layout.folder)
            for name, command in commands(self._layout, self._binaries, self._authority, self._ports).items()
        }
        async with self._session() as session:
            self._children["etcd"].start()
            await self._until("etcd listens", self._listens(self._ports.etcd))
            self._children["kube-apiserver"].start()
            await self._until("kube-apiserver is ready", self._api(session, "/readyz"))
            for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
                self._children[name].start()
            await self.kubectl("apply", "--server-side", *(f"--filename={path}" for path in _manifests()))
            await self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
            for what, probe in self._probes(session).items():
                await self._until(what, probe)

    def _probes(self, session: aiohttp.ClientSession) -> Mapping[str, Probe]:
        manager, scheduler = (
            f"https://{LOOPBACK}:{port}/healthz" for port in (self._ports.controller_manager, self._ports.scheduler)
        )
        return {
            "kube-controller-manager is healthy": lambda: _answers(session, manager),
            "kube-scheduler is healthy": lambda: _answers(session, scheduler),
            "kwok is healthy": lambda: _answers(session, f"http://{LOOPBACK}:{self._ports.kwok}/healthz"),
            # Without the account no pod can be created.
            "the default service account is there": self._api(
                session, "/api/v1/namespaces/default/serviceaccounts/default"
            ),
        }

    def _write_kubeconfigs(self) -> None:
        ca = self._authority.pair.cert
        kubeconfig.write(self.kubeconfig, self.name, self.server, ca, "admin", self._admin)
        for program in ("kube-controller-manager", "kube-scheduler"):
            user = f"system:{program}"
            path = self._layout.kubeconfig_of(program)
            kubeconfig.write(path, self.name, self.server, ca, user, self._authority.client(user))

    def _session(self) -> aiohttp.ClientSession:
        context = ssl.create_default_context(cafile=str(self._authority.pair.cert))
        context.load_cert_chain(self._admin.cert, self._admin.key)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=_ASK, trust_env=False)

    def _api(self, session: aiohttp.ClientSession, path: str) -> Probe:
        return lambda: _answers(session, self.server + path)

    def _listens(self, port: int) -> Probe:
        async def listens() -> bool:
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, port)
            except OSError:
                return False
            writer.close()
            return True

        return listens

    async def _until(self, what: str, probe: Probe) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not await probe():
                    self.check()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            tails = "; ".join(f"{child.name}: {child.tail()}" for child in self._children.values())
            raise ControlPlaneError(f"not within {_START_SECONDS:.0f} s: {what}; last lines: {tails}") from None


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def _free_ports() -> Ports:
    """Ports that nobody listens on now."""
    chosen: list[int] = []
    while len(chosen) < len(Ports.__struct_fields__):
        port = secrets.choice(_PORTS)
        with socket.socket() as trial:
            try:
                trial.bind((LOOPBACK, port))
            except OSError:
                continue
        if port not in chosen:
            chosen.append(port)
    return Ports(*chosen)


def _manifests() -> tuple[Path, Path]:
    """BigFleet's CRDs, in the installed package or else in the checkout, and the RBAC for joining nodes."""
    package = Path(str(files("bigfleet")))
    installed = package / "crd"
    crds = installed if installed.is_dir() else package.parents[1] / "api" / "crd"
    return crds, package / "sim" / "controlplane" / "bootstrap-rbac.yaml"
