"""The frames that a shard sends, made from what it knows."""

from collections.abc import Iterable

from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.profile import Requirement
from bigfleet.model.labels import of_fields
from bigfleet.model.machine import Machine, MachineState
from bigfleet.model.resources import quantities
from bigfleet.shard.execution.effects import Instruct, RequestBlob
from bigfleet.shard.supply.table import node_name
from bigfleet.wire.needs import requirements_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_MOST_SHORT = 1000
"""The most short needs that an acknowledgement names, the first served first. They are only a hint to the operator."""


def node_state(machine: Machine, cluster: str, state: MachineState, last_error: str = "") -> pb.ShardMessage:
    """The state of a machine, as one cluster sees it."""
    labels = dict(machine.labels) | of_fields(machine.instance_type, machine.zone, machine.capacity_type)
    return pb.ShardMessage(
        node_state_update=pb.NodeStateUpdate(
            supersedes_key=f"node:{machine.id}",
            machine_id=machine.id,
            cluster_id=cluster,
            state=provider_pb2.MachineState.ValueType(state),
            node_name=node_name(machine),
            provider_id="" if machine.host is None else machine.host.provider_id,
            last_error=last_error or machine.last_error,
            labels=labels,
            resources=provider_pb2.Resources(resources=quantities(machine.usable)),
        )
    )


def acknowledgement(echo: str, reason: str, epoch: int, short: Iterable[NeedKey]) -> pb.ShardMessage:
    """What became of a roll-up, and which rows the last decision left short."""
    keys = [
        pb.NeedKey(profile_fingerprint=key.fingerprint, group=key.group, min_unit=quantities(key.unit))
        for key, _ in zip(short, range(_MOST_SHORT), strict=False)
    ]
    return pb.ShardMessage(
        ack=pb.Acknowledgement(echo=echo, shard_epoch=epoch, rejection_reason=reason, short_needs=keys)
    )


def bootstrap_request(asked: RequestBlob, machine: Machine, requirements: Iterable[Requirement]) -> pb.BootstrapRequest:
    """A request for user data."""
    return pb.BootstrapRequest(
        request_id=asked.request_id,
        requirements=requirements_to_wire(requirements),
        cluster_id=asked.cluster,
        machine_id=asked.machine,
        node_name=node_name(machine),
    )


def reclaim_instruction(told: Instruct, machine: Machine) -> pb.ReclaimInstruction:
    """An instruction to empty a node."""
    kind = pb.ReclaimInstruction.KIND_RECLAIM
    if told.preempts is not None:
        kind = pb.ReclaimInstruction.KIND_PREEMPT
    elif machine.state in (MachineState.DRAINING, MachineState.FAILED):
        kind = pb.ReclaimInstruction.KIND_PROVIDER_TAKES_BACK
    return pb.ReclaimInstruction(
        instruction_id=told.instruction_id,
        nodes=[node_name(machine)],
        grace_period_seconds=told.grace_seconds,
        preemptor_priority=0 if told.preempts is None else told.preempts.priority,
        kind=kind,
    )


def reclaim_withdrawn(instruction_id: str, reason: str) -> pb.ShardMessage:
    """The withdrawal of an instruction."""
    return pb.ShardMessage(reclaim_withdrawn=pb.ReclaimWithdrawn(instruction_id=instruction_id, reason=reason))


def bootstrap_withdrawn(request_id: str) -> pb.ShardMessage:
    """The withdrawal of a request for user data."""
    return pb.ShardMessage(bootstrap_withdrawn=pb.BootstrapWithdrawn(request_id=request_id))
