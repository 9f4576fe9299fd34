"""Liars about lists."""

import asyncio
import time

import grpc

from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.liar import TICK, liar
from tests.conformance.reference import Context, Reference, RefusalError


@liar("B901", spares=("B208", "B215", "B906"))
class UnionIsItsFirstState(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        if len(request.states) > 1:
            del request.states[1:]
        return super().listing(request)


@liar("B902", spares=("B208", "B215", "B906"))
class MaxResultsIsIgnored(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        request.max_results = 0
        return super().listing(request)


@liar("B902", spares=("B208", "B215", "B906"), whole=True)
class FilterComesAfterTheBound(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        states = list(request.states)
        del request.states[:]
        listing = super().listing(request)
        kept = [record for record in listing.machines if not states or record.state in states]
        return pb.MachineList(machines=kept, revision=listing.revision)


@liar("B903")
class CursorNeverAdvances(Reference):
    def cursor(self, position: int) -> bytes:
        return b"rev:1"

    def position(self, cursor: bytes) -> int:
        return 0


@liar("B904")
class DeltaRepeatsTheLastChange(Reference):
    def position(self, cursor: bytes) -> int:
        return max(0, super().position(cursor) - 1)


@liar("B905", whole=True)
class CursorSkipsDrains(Reference):
    def put(self, record: pb.Machine) -> None:
        old = self.fleet.machines.get(record.id)
        if old is not None and pb.MACHINE_STATE_DRAINING in {old.state, record.state}:
            self.fleet.machines[record.id] = record
        else:
            super().put(record)


@liar("B905", whole=True)
class DeltaIgnoresTheFilter(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        if request.since_revision:
            del request.states[:]
        return super().listing(request)


@liar("B905")
class CursorIsReadAfterTheRows(Reference):
    async def List(self, request: pb.ListFilter, context: Context) -> pb.MachineList:  # noqa: N802 - the contract's name
        listing = await super().List(request, context)
        if not request.max_results:
            await asyncio.sleep(TICK / 2)
            listing.revision = self.cursor(self.head())
        return listing


@liar("B906")
class GarbageCursorIsAnError(Reference):
    def position(self, cursor: bytes) -> int:
        if cursor and not cursor.startswith(b"rev:"):
            raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, "no such cursor")
        return super().position(cursor)


@liar("B907", whole=True)
class PagesOverlap(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        listing = super().listing(request)
        if request.max_results > 1 and len(listing.machines) == request.max_results:
            listing.revision = self.cursor(self.position(listing.revision) - 1)
        return listing


@liar("B908")
class IdleTicksBumpTheCursor(Reference):
    started = time.monotonic()

    def cursor(self, position: int) -> bytes:
        return b"rev:%d.%d" % (position, (time.monotonic() - self.started) / 0.05)

    def position(self, cursor: bytes) -> int:
        position = cursor.removeprefix(b"rev:").partition(b".")[0]
        if not cursor.startswith(b"rev:") or not position.isdigit() or len(cursor) > 16:
            return 0
        return int(position) if int(position) <= self.head() else 0


@liar("B909", whole=True)
class FutureCursorIsEmpty(Reference):
    def position(self, cursor: bytes) -> int:
        if cursor.startswith(b"rev:") and cursor[4:].isdigit():
            return int(cursor[4:])
        return super().position(cursor)
