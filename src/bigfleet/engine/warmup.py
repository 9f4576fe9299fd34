"""One small decision that calls every entry, so that its types are seen."""

from bigfleet.engine.engine import Engine
from bigfleet.engine.records import ClusterRecord, MachineRecord, Policy
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Operator, Profile, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState


def one_decision() -> None:
    """Decide about a small fleet that leaves no entry uncalled."""
    engine = Engine()
    engine.inventory.apply(_machine(name) for name in ("kept", "spare"))
    engine.set_cluster(ClusterRecord(id="gives-back", excess_since=0))
    # The asking cluster is not live, so it takes nothing and the other keeps something to give back.
    engine.set_cluster(ClusterRecord(id="asks", live=False))
    unit, much = (("cpu", 1000),), (("cpu", 9000),)
    engine.needs.replace("gives-back", [Need(Profile(), unit, unit)])
    # There is one unmet row of each sort, since its reason is worked out by another function for each.
    gang = Profile(requirements=(Requirement("zone", Operator.SAME),))
    spread = Profile(spread=(Spread("zone", 1, WhenUnsatisfiable.DO_NOT_SCHEDULE),))
    engine.needs.replace(
        "asks", [Need(Profile(), much, unit), Need(gang, much, unit, "group"), Need(spread, much, unit)]
    )
    decision = engine.decide(Policy(), now=1000, next_binding=1)
    for row in decision.verdicts.short():
        _ = decision.verdicts[row]


def _machine(name: str) -> MachineRecord:
    return MachineRecord(
        machine=Machine(
            id=name,
            state=MachineState.CONFIGURED,
            instance_type="any",
            capacity_type=CapacityType.RESERVED,
            host=Host("warm-up", name),
            allocatable=(("cpu", 8000),),
            labels={"zone": "one"},
            cluster="gives-back",
        )
    )
