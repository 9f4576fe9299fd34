from bench import engine_profile
from bigfleet.engine.engine import Engine
from bigfleet.engine.records import MachineRecord
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.model.machine import CapacityType, Machine, MachineState


def test_a_profile_of_changes_names_its_steps_and_leaves_the_engine_as_it_was() -> None:
    engine, apply = Engine(), Inventory.apply
    machine = Machine(id="m", state=MachineState.SPECULATIVE, instance_type="any", capacity_type=CapacityType.ON_DEMAND)
    quick, slow = engine_profile.of_changes(lambda: engine.inventory.apply([MachineRecord(machine=machine)]), 2)
    assert {"reading: fields of records", "writing: columns"} <= quick.keys()
    assert min(quick.values()) >= 0
    assert sum(quick.values()) <= sum(slow.values())
    assert Inventory.apply is apply
    assert len(engine.inventory) == 1
