"""Worlds, frames of the shard and what is read off frames of a cluster, in short forms."""

from typing import TYPE_CHECKING, Any

from bigfleet.model.demand.profile import Profile
from bigfleet.model.machine import MachineState
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.habits import Habits
from bigfleet.sim.clusters.world import Workload, World
from bigfleet.wire.v1alpha1 import provider_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

if TYPE_CHECKING:
    pass


S = MachineState
GIB = 2**20
UNIT = (("cpu", 1000), ("memory", GIB))
NODE = (("cpu", 4000), ("memory", 8 * GIB), ("pods", 10))
Kind = pb.ReclaimInstruction
Frames = list[pb.OperatorMessage]


def workload(name: str = "web", **fields: Any) -> Workload:
    profile = {field: fields.pop(field) for field in list(fields) if field in Profile.__struct_fields__}
    return Workload(name=name, unit=fields.pop("unit", UNIT), profile=Profile(**profile), **fields)


def add_node(world: World, name: str, labels: dict[str, str] | None = None, *, ready: bool = True) -> None:
    world.register(name, f"sim://{name}", labels or {}, NODE)
    if ready:
        world.become_ready(name)


def world_of(*nodes: str) -> World:
    world = World()
    for name in nodes:
        add_node(world, name)
    return world


def placed(world: World) -> dict[str, dict[str, int]]:
    return {node.name: dict(node.pods) for node in world.nodes.values()}


def state(machine: str, state: MachineState, cluster: str = "c", **fields: Any) -> pb.ShardMessage:
    update = pb.NodeStateUpdate(
        supersedes_key=f"node:{machine}",
        machine_id=machine,
        cluster_id=cluster,
        state=provider_pb2.MachineState.ValueType(state),
        node_name=machine,
        provider_id=f"sim://{machine}" if state >= S.IDLE else "",
        resources=provider_pb2.Resources(resources={"cpu": "4", "memory": "8Gi", "pods": "10"}),
    )
    for name, value in fields.items():
        setattr(update, name, value)
    return pb.ShardMessage(node_state_update=update)


def reclaim(instruction: str, *nodes: str, grace: int = 60, kind: Any = Kind.KIND_RECLAIM) -> pb.ShardMessage:
    return pb.ShardMessage(
        reclaim_instruction=pb.ReclaimInstruction(
            instruction_id=instruction, nodes=nodes, grace_period_seconds=grace, kind=kind
        )
    )


def withdrawal(instruction: str, *nodes: str) -> pb.ShardMessage:
    return pb.ShardMessage(reclaim_withdrawn=pb.ReclaimWithdrawn(instruction_id=instruction, nodes=nodes))


def request(request_id: str, machine: str = "m", cluster: str = "c") -> pb.ShardMessage:
    return pb.ShardMessage(
        bootstrap_request=pb.BootstrapRequest(
            request_id=request_id, cluster_id=cluster, machine_id=machine, node_name=machine
        )
    )


def kinds(frames: Frames) -> list[str]:
    return [str(frame.WhichOneof("payload")) for frame in frames]


def readiness(frames: Frames) -> list[tuple[str, str]]:
    """Machine and state of every readiness report."""
    reports = [frame.node_ready for frame in frames if frame.HasField("node_ready")]
    return [(each.machine_id, pb.NodeReadyReport.State.Name(each.state)[6:]) for each in reports]


def drained(frames: Frames) -> list[tuple[str, str]]:
    reports = [frame.node_drained for frame in frames if frame.HasField("node_drained")]
    return [(each.node_name, pb.NodeDrainedReport.Outcome.Name(each.outcome)[8:]) for each in reports]


class Mind(Cluster):
    """A cluster that is connected from the start, of which a test says only what comes."""

    def __init__(self, world: World | None = None, **habits: Any) -> None:
        super().__init__("c", world or World(), Habits(**habits), stamp=lambda: 7)
        self.opened(0.0)

    def hear(self, frame: pb.ShardMessage, now: float = 0.0) -> Frames:
        return self.received(frame, now)

    def bind(self, *machines: str) -> None:
        """These are nodes that have been Ready for a while."""
        for machine in machines:
            self.hear(state(machine, S.CONFIGURED))
        self.tick(5.0)
