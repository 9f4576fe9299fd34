"""Where a program listens or dials: `HOST:PORT`, `:PORT`, `[IPV6]:PORT` or `unix:PATH`, parsed once and strictly."""

import os
import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
_PORT = re.compile(r"[0-9]{1,5}")
_MAX_PORT = 65535
_MAX_HOST = 253
# The size of sockaddr_un.sun_path on Linux, less its closing zero byte.
_UNIX_PATH_BYTES = 107


class AddressError(ValueError):
    """A text that is no address; the error quotes it and says what fits."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"address {text!r}: {problem}")
        self.text = text


@dataclass(frozen=True, slots=True)
class TCPAddress:
    """A host and a port; an empty host means every interface, port 0 one that the system picks."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket in the file system."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TCPAddress | UnixAddress


def listen_address(text: str) -> Address:
    """Parse an address to listen on."""
    return _parse_unix(text) if text.startswith("unix:") else listen_tcp_address(text)


def listen_tcp_address(text: str) -> TCPAddress:
    """Parse an address to listen on that HTTP clients can reach, so no `unix:`."""
    if text.startswith("unix:"):
        raise AddressError(text, "needs HOST:PORT here")
    return _parse_tcp(text)


def dial_address(text: str) -> Address:
    """Parse an address to connect to, which names a host and a port above 0."""
    if text.startswith("unix:"):
        return _parse_unix(text)
    address = _parse_tcp(text)
    if not address.host:
        raise AddressError(text, "names no host to connect to")
    if address.port == 0:
        raise AddressError(text, "port 0 cannot be connected to")
    return address


def _parse_unix(text: str) -> UnixAddress:
    path = text.removeprefix("unix:")
    if not path or "\0" in path or len(os.fsencode(path)) > _UNIX_PATH_BYTES:
        raise AddressError(text, f"needs a path of 1 to {_UNIX_PATH_BYTES} bytes after 'unix:'")
    return UnixAddress(path)


def _parse_tcp(text: str) -> TCPAddress:
    host, colon, port = text.rpartition(":")
    if not colon or _PORT.fullmatch(port) is None or int(port) > _MAX_PORT:
        raise AddressError(text, f"expected HOST:PORT with a port from 0 to {_MAX_PORT}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            IPv6Address(host)
        except AddressValueError as error:
            raise AddressError(text, f"{host!r} is no IPv6 address") from error
    elif ":" in host:
        raise AddressError(text, "an IPv6 address goes in brackets, as in [::1]:7780")
    elif host and (len(host) > _MAX_HOST or _HOST.fullmatch(host) is None):
        raise AddressError(text, f"{host!r} is no host name or IP address")
    return TCPAddress(host, int(port))
