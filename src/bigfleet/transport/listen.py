"""Opens the sockets that a program serves on. An address that cannot be had is one clear error at the start.

By itself gRPC binds only some of a name's addresses, takes over unix sockets in use, and gives no cause when it fails.
"""

import errno
import os
import socket
import stat
from pathlib import Path

import grpc

from bigfleet.transport.address import Address, TCPAddress, UnixAddress

_ADVICE = {
    errno.EADDRINUSE: "stop the program that has it or choose another",
    errno.EACCES: "choose a port from 1024 up, or give this program the right to it",
    errno.EADDRNOTAVAIL: "name an address that this machine has",
}


class ListenError(Exception):
    """An address that cannot be listened on; the text names it, the cause and what to do."""

    def __init__(self, address: Address, cause: str, advice: str) -> None:
        super().__init__(f"cannot listen on {address}: {cause}; {advice}")
        self.address = address


def open_listener(address: TCPAddress) -> socket.socket:
    """A listening socket on the address; of a name's several addresses, the first."""
    return _listen(address, *_resolved(address)[0])


def bind(server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None) -> int:
    """Add the address to a server that is not yet started. Returns the port. Without credentials it is plaintext."""
    if isinstance(address, UnixAddress):
        _check_unix_path_is_free(address)
    elif address.port != 0:
        for family, sockaddr in _resolved(address):
            _listen(address, family, sockaddr).close()
    # gRPC takes no empty host; `[::]` is its spelling of every interface, IPv4 included.
    target = f"[::]:{address.port}" if isinstance(address, TCPAddress) and not address.host else str(address)
    try:
        if credentials is None:
            return server.add_insecure_port(target)
        return server.add_secure_port(target, credentials)
    except RuntimeError as error:
        advice = "set GRPC_VERBOSITY=debug to see why"
        raise ListenError(address, "gRPC could not open it", advice) from error


def _resolved(address: TCPAddress) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    if not address.host:
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        return [(family, ("", address.port))]
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(address, error.strerror or "no such host", "name a host that resolves here") from error
    return [(family, (str(sockaddr[0]), address.port)) for family, _, _, _, sockaddr in found]


def _listen(address: Address, family: socket.AddressFamily, sockaddr: tuple[str, int]) -> socket.socket:
    dualstack = family == socket.AF_INET6 and not sockaddr[0]
    try:
        return socket.create_server(sockaddr, family=family, dualstack_ipv6=dualstack)
    except OSError as error:
        code = error.errno or 0
        advice = _ADVICE.get(code, "choose another address")
        raise ListenError(address, os.strerror(code), advice) from error


def _check_unix_path_is_free(address: UnixAddress) -> None:
    """Raise ListenError unless the path is free, or holds the socket of a program that is gone; gRPC replaces that."""
    try:
        mode = os.lstat(address.path).st_mode
    except FileNotFoundError:
        if not Path(address.path).parent.is_dir():
            raise ListenError(address, "its directory does not exist", "create it or choose another path") from None
        return
    except OSError as error:
        raise ListenError(address, os.strerror(error.errno or 0), "choose another path") from error
    if not stat.S_ISSOCK(mode):
        raise ListenError(address, "a file that is no socket is there", "remove it or choose another path")
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(address.path)
        except OSError:
            return
    raise ListenError(address, os.strerror(errno.EADDRINUSE), _ADVICE[errno.EADDRINUSE])
