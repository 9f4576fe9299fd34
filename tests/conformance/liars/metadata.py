"""Liars about metadata."""

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.liar import liar
from tests.conformance.reference import Options, Reference, Request, copied


@liar("B501", whole=True)
class MetadataDroppedOnList(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        listing = super().listing(request)
        for record in listing.machines:
            record.shard_metadata.clear()
        return listing


@liar("B501")
class MetadataEndsAtNul(Reference):
    def kept_metadata(self, request: pb.ConfigureRequest) -> dict[str, str]:
        return {key: value.split("\0")[0] for key, value in request.shard_metadata.items()}


@liar("B502", whole=True)
class MetadataResidue(Reference):
    def __init__(self, options: Options) -> None:
        self.residue: dict[str, dict[str, str]] = {}
        super().__init__(options)

    def clear_drained(self, record: pb.Machine) -> None:
        self.residue[record.id] = dict(record.shard_metadata)
        super().clear_drained(record)

    def entered(self, call: Call, request: Request, record: pb.Machine) -> pb.Machine:
        new = super().entered(call, request, record)
        if call is Call.CONFIGURE and request.shard_metadata:
            residue = self.residue.get(record.id, {})
            new.shard_metadata.update({key: value for key, value in residue.items() if key not in new.shard_metadata})
        return new


@liar("B503")
class MetadataIsTruncated(Reference):
    def kept_metadata(self, request: pb.ConfigureRequest) -> dict[str, str]:
        return {key[:253]: value[:4096] for key, value in request.shard_metadata.items()}


@liar("B504")
class MetadataOnlyOnceConfigured(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CONFIGURING:
            record = copied(record)
            record.shard_metadata.clear()
        return record


@liar("B505", whole=True)
class MetadataIsShared(Reference):
    def clear_drained(self, record: pb.Machine) -> None:
        shared = dict(record.shard_metadata)
        super().clear_drained(record)
        for other in self.fleet.machines.values():
            if other.id != record.id and shared and dict(other.shard_metadata) == shared:
                new = copied(other)
                new.shard_metadata.clear()
                self.put(new)
