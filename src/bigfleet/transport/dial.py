"""Channels to another BigFleet program. The server is checked when a channel is made.

A caller asks for `channel()` before each call or session and keeps nothing. So it always gets a channel that uses the
present certificates and reaches the server where it is now.
"""

import asyncio
from contextlib import suppress

import grpc

from bigfleet.transport.address import Address, TCPAddress
from bigfleet.transport.grpc_options import Options
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.server_check import BOTH_OR_NONE, CheckedServer, DialError, Expected, check_server, speaks_tls
from bigfleet.transport.tls import Leaf

_CONNECT_SECONDS = 10.0
# How long calls that run on a channel may go on after it was replaced.
_RETIRE_SECONDS = 60.0


class Dialer:
    """One server that this program talks to: its address, who it must be, and the channel to it while there is one."""

    def __init__(self, address: Address, expected: Expected, tls: LiveTLS | None, options: Options) -> None:
        self.address = address
        self._expected = expected
        self._tls = tls
        self._options = options
        self._channel: grpc.aio.Channel | None = None
        self._leaf: Leaf | None = None
        self._dialling: asyncio.Task[grpc.aio.Channel] | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    async def channel(self) -> grpc.aio.Channel:
        """A connected channel to a server that was checked; DialError at once where there is none."""
        leaf = self._tls.leaf() if self._tls is not None else None
        if self._channel is not None and leaf is self._leaf and _is_connected(self._channel):
            return self._channel
        if self._dialling is None or self._dialling.done():
            self._dialling = asyncio.create_task(self._dial(leaf))
            # Nobody may be waiting any more when the dialling fails.
            self._dialling.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._dialling)

    async def hang_up(self) -> None:
        """Close all channels, which ends the calls on them. The next `channel()` dials anew."""
        tasks = [*self._retiring, *([self._dialling] if self._dialling is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
        self._channel = self._leaf = self._dialling = None

    async def _dial(self, leaf: Leaf | None) -> grpc.aio.Channel:
        ca = self._tls.ca if self._tls is not None else None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                server = await check_server(self.address, self._expected, ca, leaf)
                channel = await self._connect(server, leaf)
        except TimeoutError as error:
            raise DialError(self.address, f"no answer within {_CONNECT_SECONDS:.0f} s") from error
        if self._channel is not None:
            retiring = asyncio.create_task(_retire(self._channel))
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)
        self._channel, self._leaf = channel, leaf
        return channel

    async def _connect(self, server: CheckedServer, leaf: Leaf | None) -> grpc.aio.Channel:
        options: list[tuple[str, int | str]] = [*self._options]
        if leaf is None:
            if isinstance(self.address, TCPAddress):
                # The target is an IP address; proxies route by the name that was dialled.
                options.append(("grpc.default_authority", str(self.address)))
            channel = grpc.aio.insecure_channel(server.target, options)
        else:
            options.append(("grpc.ssl_target_name_override", server.name))
            credentials = grpc.ssl_channel_credentials(server.certificate, leaf.key, leaf.chain)
            channel = grpc.aio.secure_channel(server.target, credentials, options)
        state = channel.get_state(try_to_connect=True)
        try:
            while state is not grpc.ChannelConnectivity.READY:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    raise DialError(self.address, await self._why_not(leaf))
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _why_not(self, leaf: Leaf | None) -> str:
        """Why gRPC could not connect to a server that answers."""
        if leaf is None and await speaks_tls(self.address):
            return f"it speaks TLS, and this end does not; {BOTH_OR_NONE}"
        doubt = "" if leaf is None else f"; it may not accept the certificate of {leaf.identity}"
        return f"it answers, but gRPC could not connect to it{doubt}"


def _is_connected(channel: grpc.aio.Channel) -> bool:
    return channel.get_state() is grpc.ChannelConnectivity.READY


async def _retire(channel: grpc.aio.Channel) -> None:
    with suppress(asyncio.CancelledError):
        await channel.close(_RETIRE_SECONDS)
    await channel.close()
