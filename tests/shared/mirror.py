"""A gRPC server that tells what it sees of whoever calls."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import grpc
from cryptography import x509

from bigfleet.transport.identity import Role, peer_identity, refusals_abort, require
from bigfleet.transport.renewal import LiveTLS


class Mirror(grpc.GenericRpcHandler):
    """Answers `WhoAmI` with the caller's identity and serial, `ServerName` with the host name it asked TLS for,
    `Size` with as many bytes as asked, and `AdminOnly` to admins."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        method = handler_call_details.method.rpartition("/")[2]
        answer = {
            "WhoAmI": self._who_am_i,
            "ServerName": self._server_name,
            "Size": self._size,
            "AdminOnly": self._admin_only,
        }[method]
        return grpc.unary_unary_rpc_method_handler(answer)

    async def _who_am_i(self, _request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        async with refusals_abort(context):
            identity = peer_identity(context)
        certificates = [x509.load_pem_x509_certificate(pem) for pem in context.auth_context().get("x509_pem_cert", ())]
        return f"{identity} {certificates[0].serial_number if certificates else None}".encode()

    async def _server_name(self, _request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        return b"".join(context.auth_context().get("ssl_requested_server_name", ()))

    async def _size(self, request: bytes, _context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        return b"\0" * int(request[:16].strip(b"."))

    async def _admin_only(self, _request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        async with refusals_abort(context):
            require(peer_identity(context), Role.ADMIN)
        return b"done"


Ask = Callable[[grpc.aio.Channel, str, bytes], Awaitable[bytes]]
"""One call to the mirror: channel, method, request."""

Serve = Callable[[LiveTLS | None], AbstractAsyncContextManager[int]]
"""A mirror on a free loopback port, for as long as the body runs."""
