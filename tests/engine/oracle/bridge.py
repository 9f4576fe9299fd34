"""The compiled engine behind the oracle's own types, so that one world can be put to both."""

from collections.abc import Iterable, Mapping

from bigfleet.engine.engine import Decision as EngineDecision
from bigfleet.engine.engine import Engine
from bigfleet.engine.records import Action as EngineAction
from bigfleet.engine.records import ClusterRecord, MachineRecord, Stakes
from bigfleet.engine.records import Policy as EnginePolicy
from bigfleet.engine.records import Stamp as EngineStamp
from bigfleet.engine.records import Verdict as EngineVerdict
from bigfleet.model.demand.need import Daemon as ModelDaemon
from bigfleet.model.demand.need import Need as ModelNeed
from bigfleet.model.demand.need import NeedKey as ModelKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, Host, MachineState
from bigfleet.model.machine import Machine as ModelMachine
from bigfleet.model.resources import Resources
from tests.engine.oracle.world import (
    Action,
    Cluster,
    Decision,
    Kind,
    Machine,
    Need,
    NeedKey,
    Policy,
    Stamp,
    State,
    Verdict,
    World,
    profile_of,
    requirements_of,
)

_TYPES = {"": CapacityType.UNSPECIFIED} | {kind.label: kind for kind in CapacityType if kind}
_HOSTED = {State.IDLE, State.CONFIGURING, State.CONFIGURED, State.DRAINING, State.DELETING}


def decide(world: World) -> Decision:
    """What the engine decides on this world."""
    return decide_with(engine_of(world), world)


def decide_with(engine: Engine, world: World, *, full: bool = False) -> Decision:
    """What this engine decides, having been told this world."""
    return oracle_decision(world, engine.decide(_policy(world.policy), world.now, world.next_binding, full=full))


def engine_of(world: World) -> Engine:
    """An engine that was told exactly this world."""
    engine = Engine()
    engine.inventory.apply(machine_record(machine) for machine in world.machines)
    for cluster in world.clusters:
        engine.set_cluster(cluster_record(cluster))
    for cluster_id in sorted({need.cluster for need in world.needs}):
        rows, arrivals = rows_and_arrivals(need for need in world.needs if need.cluster == cluster_id)
        engine.needs.replace(cluster_id, rows, arrivals)
    return engine


def rows_and_arrivals(needs: Iterable[Need]) -> tuple[list[ModelNeed], dict[ModelKey, int]]:
    """One cluster's rows, and when each was first seen; of equal rows the earliest counts."""
    rows = []
    arrivals: dict[ModelKey, int] = {}
    for need in needs:
        row = need_row(need)
        arrivals[row.key] = min(need.arrival, arrivals.get(row.key, need.arrival))
        rows.append(row)
    return rows, arrivals


def need_row(need: Need) -> ModelNeed:
    """One row of a roll-up."""
    return ModelNeed(profile_of(need), _vector(need.aggregate), _vector(need.unit), need.group)


def machine_record(machine: Machine) -> MachineRecord:
    """The record of one machine."""
    pods = machine.unrequested
    return MachineRecord(
        machine=ModelMachine(
            id=machine.id,
            state=MachineState[machine.state.name],
            instance_type=machine.instance_type,
            capacity_type=_TYPES[machine.capacity_type],
            host=Host("oracle", machine.id) if machine.state in _HOSTED else None,
            zone=machine.zone,
            price_per_hour=machine.price / 1e6,
            interruption_probability=machine.interruption_probability / 1e6,
            allocatable=_vector(machine.allocatable),
            labels=dict(machine.labels),
            last_error="broken" if machine.state is State.FAILED else "",
            cluster=machine.cluster,
        ),
        committed_to=machine.committed_to,
        stamp=_engine_stamp(machine.stamp),
        drain_seconds=machine.drain_seconds,
        not_before=machine.not_before,
        idle_since=machine.idle_since,
        empty=machine.empty,
        unrequested=None
        if pods is None
        else Stakes(pods.priority, _bucket(pods.interruption), _bucket(pods.reclamation)),
        protected=machine.protected,
        not_ready=machine.ready_failed,
        reclaim_hold_until=machine.reclaim_hold_until,
    )


def cluster_record(cluster: Cluster) -> ClusterRecord:
    """The record of one cluster."""
    return ClusterRecord(
        id=cluster.id,
        reported=cluster.reported,
        live=cluster.live,
        partial=cluster.partial,
        excess_since=cluster.excess_since,
        reclaimed_in_window=cluster.reclaimed_in_window,
        daemons=tuple(ModelDaemon(requirements_of(d.requirements), _vector(d.vector)) for d in cluster.daemons),
        held_out=dict(cluster.held_out),
    )


def oracle_decision(world: World, decision: EngineDecision) -> Decision:
    """The engine's outcome in the oracle's types."""
    return Decision(
        actions=tuple(_action(action) for action in decision.actions),
        verdicts=tuple(_verdict(world, decision, row) for row in range(len(decision.verdicts))),
        excess=decision.excess,
        dropped=tuple(decision.dropped),
        capped=decision.capped,
    )


def _action(action: EngineAction) -> Action:
    stamp = action.stamp
    kind = Kind(action.kind.value)
    if stamp is None:
        return Action(kind, action.machine, action.cluster, action.reason, grace_seconds=action.grace_seconds)
    key = stamp.key
    unit = _text(key.unit)
    made = Stamp(
        key.fingerprint, unit, key.group, stamp.priority, stamp.interruption - 1, stamp.reclamation - 1, stamp.number
    )
    return Action(
        kind,
        action.machine,
        action.cluster,
        action.reason,
        key.fingerprint,
        unit,
        key.group,
        action.grace_seconds,
        stamp.number,
        made,
    )


def _verdict(world: World, decision: EngineDecision, row: int) -> Verdict:
    verdict: EngineVerdict = decision.verdicts[row]
    key = verdict.key
    return Verdict(
        key=NeedKey(verdict.cluster, key.fingerprint, key.group, _text(key.unit)),
        satisfied=verdict.satisfied,
        missing_units=verdict.missing_units,
        residual=dict(verdict.residual),
        claimed_machines=verdict.claimed_machines,
        bootstrap_count=verdict.bootstraps,
        provision_count=verdict.provisions,
        preempt_count=verdict.preempts,
        domain=verdict.domain,
        same_satisfiable=verdict.same_satisfiable,
        unmet_reason=verdict.unmet_reason.name if verdict.unmet_reason else "",
        takes=decision.verdicts.takes(row),
    )


def _policy(policy: Policy) -> EnginePolicy:
    return EnginePolicy(
        weight_priority=policy.weight_priority / 1e9,
        weight_drain=policy.weight_drain / 1e9,
        weight_interrupt=policy.weight_interrupt / 1e9,
        weight_reclaim=policy.weight_reclaim / 1e9,
        idle_hold={_TYPES[kind]: hold for kind, hold in policy.idle_hold.items()},
        reclaim_after=policy.reclaim_after,
        reclaim_percent=policy.reclaim_percent,
        draining_percent=policy.draining_percent,
        held_out_shapes={(a, b, _TYPES[c]): until for (a, b, c), until in policy.held_out_shapes.items()},
    )


def _engine_stamp(stamp: Stamp | None) -> EngineStamp | None:
    if stamp is None:
        return None
    unit = tuple(
        (name, int(amount)) for name, _, amount in (part.partition("=") for part in stamp.unit.split(",")) if name
    )
    key = ModelKey(stamp.fingerprint, stamp.group, unit)
    return EngineStamp(key, stamp.priority, _bucket(stamp.interruption), _bucket(stamp.reclamation), stamp.number)


def _bucket(number: int) -> PenaltyBucket:
    return PenaltyBucket(number + 1)


def _vector(amounts: Mapping[str, int]) -> Resources:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def _text(unit: Resources) -> str:
    return ",".join(f"{name}={amount}" for name, amount in unit)
