"""Liars after a restart; these run as processes of their own."""

import asyncio
import os
from pathlib import Path
from typing import Any

import grpc

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.reference import Context, Reference, RefusalError, Request

DURABLE: dict[str, str] = {
    "MarksAreForgotten": "B1001",
    "AnswersBeforeItWrites": "B1001",
    "OperationsAreForgotten": "B1002",
    "MetadataIsForgotten": "B1003",
    "InventoryShrinks": "B1004",
    "OldCursorLeadsNowhere": "B1004",
    "OperationIdsStartAgain": "B1005",
    "InterruptedStaysInFlight": "B1006",
    "NewShardsAreStrangers": "B1007",
}


class EndsAtTheFirstConfigure(Reference):
    """No liar of the table: it shows what the suite says of a provider that ends in the middle of a run."""

    async def mutate(self, call: Call, request: Request, context: Context) -> pb.TransitionAck:
        if call is Call.CONFIGURE:
            os.write(2, b"out of luck\n")
            os._exit(3)
        return await super().mutate(call, request, context)


class MarksAreForgotten(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        self.fleet.marks.clear()


class AnswersBeforeItWrites(Reference):
    def write(self, path: Path, content: str) -> None:
        asyncio.get_running_loop().call_later(0.05, super().write, path, content)


class OperationsAreForgotten(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        for operation in self.fleet.operations.values():
            operation.id += "-restored"


class MetadataIsForgotten(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        for record in self.fleet.machines.values():
            record.shard_metadata.clear()


class InventoryShrinks(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        gone = max(self.fleet.machines)
        del self.fleet.machines[gone]
        self.fleet.log = [entry for entry in self.fleet.log if entry[1] != gone]


class OldCursorLeadsNowhere(Reference):
    restored = 0

    def load(self, path: Any) -> None:
        super().load(path)
        self.restored = self.head() + 10_000

    def position(self, cursor: bytes) -> int:
        position = super().position(cursor)
        return self.restored if 0 < position < self.restored else position


class OperationIdsStartAgain(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        self.fleet.issued = 0


class InterruptedStaysInFlight(Reference):
    def interrupted(self, record: pb.Machine) -> None:
        pass


class NewShardsAreStrangers(Reference):
    known: frozenset[str] | None = None

    def load(self, path: Any) -> None:
        super().load(path)
        self.known = frozenset(shard for shard, _ in self.fleet.marks)

    def fence(self, request: Request) -> None:
        if self.known is not None and request.shard_id and request.shard_id not in self.known:
            raise RefusalError(grpc.StatusCode.PERMISSION_DENIED, "unknown shard")
        super().fence(request)
