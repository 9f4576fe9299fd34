"""A shard of which a test says what it knows: the pure `Sessions` machine behind a small gRPC server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc

from bigfleet.shard.sessions import outputs as says
from bigfleet.shard.sessions.outbox import Outbox
from bigfleet.shard.sessions.outputs import Standing, Thing
from bigfleet.shard.sessions.session import Session, Sessions
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.habits import Habits
from bigfleet.sim.clusters.operator import SimOperator, Waits
from bigfleet.sim.clusters.world import World
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.grpc_options import SERVER_OPTIONS
from bigfleet.transport.identity import peer_identity
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.session_stream import SESSION
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

if TYPE_CHECKING:
    pass
from tests.sim.clusters.frames import S, state


class StandIn:
    """Sessions and outboxes behind a gRPC server. What is whose, and what clusters are told, is the test's to say."""

    def __init__(self) -> None:
        self.outputs: list[says.Output] = []
        self.belongs: dict[tuple[Thing, str], str] = {}
        self.standing_orders: dict[str, pb.ReclaimInstruction] = {}
        self.states: list[pb.ShardMessage] = []
        self.frames_to_read = 1_000_000
        self._sessions = Sessions(self)
        self._outboxes: dict[str, Outbox] = {}
        self._closing: dict[int, asyncio.Future[says.Close]] = {}
        self._happened = asyncio.Event()

    # Books.

    def elsewhere(self, cluster: str) -> str:
        return ""

    def standing(self, cluster: str, thing: Thing, name: str) -> Standing:
        owner = self.belongs.get((thing, name))
        return Standing.UNKNOWN if owner is None else Standing.OURS if owner == cluster else Standing.FOREIGN

    def stands(self, instruction: str, node: str) -> bool:
        return instruction in self.standing_orders and node in self.standing_orders[instruction].nodes

    # The test's side.

    def seen(self, kind: type[Any]) -> list[Any]:
        return [output for output in self.outputs if isinstance(output, kind)]

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._happened.wait()

    def tell(self, cluster: str, frame: pb.ShardMessage) -> None:
        self._outboxes[cluster].put(frame, 0.0)
        self._stir()

    def own(self, cluster: str, *machines: str) -> None:
        for machine in machines:
            self.belongs[Thing.MACHINE, machine] = self.belongs[Thing.NODE, machine] = cluster
            self.states.append(state(machine, S.CONFIGURED, cluster))

    def order(self, cluster: str, frame: pb.ShardMessage) -> None:
        instruction = frame.reclaim_instruction
        self.belongs[Thing.INSTRUCTION, instruction.instruction_id] = cluster
        self.standing_orders[instruction.instruction_id] = instruction
        self.tell(cluster, frame)

    # The stream's side.

    async def session(self, _requests: object, context: Any) -> None:
        session = self._sessions.stream(peer_identity(context), 0.0)
        closing = self._closing[session.number] = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(self._read(session, context)), asyncio.create_task(self._write(session, context))]
        try:
            await asyncio.wait([*tasks, closing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._take(session.ended())
        if closing.done():
            await context.abort(grpc.StatusCode[closing.result().code], closing.result().reason)

    async def _read(self, session: Session, context: Any) -> None:
        while isinstance(data := await context.read(), bytes):
            self._take(session.read(data))
            self.frames_to_read -= 1
            await self.until(lambda: self.frames_to_read > 0)

    async def _write(self, session: Session, context: Any) -> None:
        await self.until(lambda: bool(session.cluster))
        outbox = self._outboxes[session.cluster]
        while True:
            await self.until(lambda: len(outbox) > 0)
            frame = outbox.take()
            assert frame is not None
            await context.write(frame.SerializeToString())
            outbox.sent(0.0)

    def _take(self, outputs: list[says.Output]) -> None:
        self.outputs += outputs
        for output in outputs:
            match output:
                case says.Opened(cluster=cluster):
                    outbox = self._outboxes.setdefault(cluster, Outbox())
                    orders = [
                        order
                        for order in self.standing_orders.values()
                        if self.belongs[Thing.INSTRUCTION, order.instruction_id] == cluster
                    ]
                    states = [frame for frame in self.states if frame.node_state_update.cluster_id == cluster]
                    outbox.connected(orders, [], states, 0.0)
                case says.SessionEnded(cluster=cluster):
                    self._outboxes[cluster].disconnected()
                case says.Send(cluster=cluster, frame=frame):
                    self._outboxes[cluster].put(frame, 0.0)
                case says.RolledUp(cluster=cluster, rollup=rollup):
                    ack = pb.Acknowledgement(echo=str(rollup.timestamp_unix_nanos))
                    self._outboxes[cluster].put(pb.ShardMessage(ack=ack), 0.0)
                case says.Close(stream=stream):
                    self._closing[stream].set_result(output)
        self._stir()

    def _stir(self) -> None:
        self._happened.set()
        self._happened = asyncio.Event()


@asynccontextmanager
async def serving(shard: StandIn, tls: LiveTLS | None = None, port: int = 0) -> AsyncIterator[TCPAddress]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    service, method = SESSION.strip("/").split("/")
    handler: Any = grpc.stream_stream_rpc_method_handler(shard.session)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    bound = bind(server, TCPAddress("127.0.0.1", port), None if tls is None else tls.server_credentials())
    await server.start()
    try:
        yield TCPAddress("127.0.0.1", bound)
    finally:
        await server.stop(None)


@asynccontextmanager
async def running(*operators: SimOperator) -> AsyncIterator[None]:
    """They run; and where one fails, so does the test."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(operator.run()) for operator in operators]
        yield
        for task in tasks:
            task.cancel()


SOON = Waits(first=0.01, replaced=0.01)
QUICK = {"ready_seconds": 0.01, "rollup_seconds": 3600.0}


def operator(
    address: TCPAddress,
    kind: type[SimOperator] = SimOperator,
    waits: Waits = SOON,
    tls: LiveTLS | None = None,
    **habits: Any,
) -> SimOperator:
    return kind(Cluster("c", World(), Habits(**(QUICK | habits))), address, tls, waits)


def ready_machines(shard: StandIn) -> list[str]:
    return [each.machine for each in shard.seen(says.NodeReady) if each.state is says.NodeProgress.READY]
