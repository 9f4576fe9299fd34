"""Liars about fields."""

from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.liar import liar
from tests.conformance.reference import Reference, copied


@liar("B801")
class InstanceTypeIsALabel(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        record = copied(record)
        record.labels["node.kubernetes.io/instance-type"] = record.instance_type
        record.instance_type = "machine"
        return record


@liar("B802")
class PriceIsNotANumber(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        record = copied(record)
        record.price_per_hour = float("inf")
        return record


@liar("B802", spot=2)
class SpotNeverInterrupts(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        record = copied(record)
        record.interruption_probability = 0.0
        return record


@liar("B803")
class CreatingHasAHost(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CREATING:
            record = copied(record)
            record.host.provider, record.host.ref = "ref", "pending"
        return record


@liar("B804")
class AllocatableExceedsResources(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        record = copied(record)
        record.allocatable.resources["memory"] = "17Gi"
        return record


@liar("B805", whole=True)
class HostChangesWithTheCluster(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CONFIGURED:
            record = copied(record)
            record.host.ref += "-joined"
        return record


@liar("B806")
class ZoneIsForgotten(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CONFIGURED:
            record = copied(record)
            record.zone = ""
            del record.labels["topology.kubernetes.io/zone"]
        return record


@liar("B807", whole=True)
class DeleteKeepsMetadata(Reference):
    def clear_deleted(self, record: pb.Machine) -> None:
        super().clear_deleted(record)
        record.shard_metadata["deleted"] = "yes"
