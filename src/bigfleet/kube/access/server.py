"""How one API server is reached, as a value: `kubeconfig` makes it, and `credentials` renews what it names."""

from dataclasses import dataclass, field
from pathlib import Path

from bigfleet.kube.errors import KubeConfigError

Source = bytes | Path
"""PEM itself, or a file with PEM that may be renewed at any time."""


def read(source: Source) -> bytes:
    """The bytes that a source holds now, or KubeConfigError."""
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise KubeConfigError(f"{source}: cannot be read: {error.strerror}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A program that prints credentials (client.authentication.k8s.io)."""

    command: str
    api_version: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cluster_info: bool = False
    install_hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """An API server, how its certificate is checked, and our credentials for it. Its repr leaves secrets out."""

    server: str
    ca: Source | None = field(default=None, repr=False)
    insecure: bool = False
    server_name: str = ""
    proxy: str = field(default="", repr=False)
    certificate: Source | None = field(default=None, repr=False)
    key: Source | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    plugin: ExecPlugin | None = None

    def ca_bundle(self) -> bytes:
        """The authorities that sign the server's certificate, as PEM; empty where the system's own are trusted."""
        return b"" if self.ca is None else read(self.ca)
