"""The catalogue makes fleets that are alike for a seed, look like real ones, and are at rest when settled."""

from collections import Counter

import pytest

from bigfleet.engine.engine import Engine
from bigfleet.engine.records import MachineRecord, Policy
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.labels import RACK
from bigfleet.model.machine import CapacityType, MachineState, check_invariants
from bigfleet.sim import catalog
from bigfleet.sim.demand import SHAPES, FleetShape
from bigfleet.sim.fleet import Fleet, generate

SHARED = FleetShape(name="shared", machines=1_000, clusters=4, rows=1_500)
WHOLE = FleetShape(name="whole", machines=1_200, clusters=5, units=1_200)


@pytest.fixture(scope="module", params=[SHARED, WHOLE], ids=lambda shape: shape.name)
def fleet(request: pytest.FixtureRequest) -> Fleet:
    return generate(request.param, seed=3)


def rows(fleet: Fleet) -> list[Need]:
    return [need for needs in fleet.needs.values() for need in needs]


def told(fleet: Fleet) -> tuple[list[MachineRecord], dict[str, list[Need]]]:
    return list(fleet.machines()), fleet.needs


def test_one_seed_makes_one_fleet_and_another_makes_another() -> None:
    assert told(generate(SHARED, seed=5)) == told(generate(SHARED, seed=5))
    assert told(generate(SHARED, seed=5)) != told(generate(SHARED, seed=6))


def test_a_fleet_has_as_many_machines_and_clusters_as_its_shape_says(fleet: Fleet) -> None:
    machines = [record.machine for record in fleet.machines()]
    assert len({machine.id for machine in machines}) == len(machines) == fleet.shape.machines
    assert len(fleet.needs) == len(fleet.clusters) == fleet.shape.clusters


def test_rows_or_units_are_as_many_as_the_shape_says() -> None:
    assert generate(SHARED, seed=3).rows == pytest.approx(SHARED.rows, rel=0.01)
    assert generate(WHOLE, seed=3).units == pytest.approx(WHOLE.units, rel=0.2)


def test_nearly_all_rows_are_gangs_and_most_have_the_default_priority(fleet: Fleet) -> None:
    demand = rows(fleet)
    assert sum(bool(need.group) for need in demand) / len(demand) == pytest.approx(0.93, abs=0.02)
    assert sum(need.profile.priority == 0 for need in demand) / len(demand) == pytest.approx(0.85, abs=0.05)


def test_every_row_is_a_row_of_its_own(fleet: Fleet) -> None:
    for needs in fleet.needs.values():
        assert len({need.key for need in needs}) == len(needs)


def test_every_machine_is_well_formed_settled_or_not(fleet: Fleet) -> None:
    for settled in (True, False):
        for record in fleet.machines(settled=settled):
            check_invariants(record.machine)


def test_with_nothing_bound_it_is_the_same_hardware(fleet: Fleet) -> None:
    bare = list(fleet.machines(settled=False))
    assert [r.machine.id for r in bare] == [r.machine.id for r in fleet.machines()]
    assert {r.machine.state for r in bare} == {MachineState.IDLE, MachineState.SPECULATIVE}
    assert all(r.stamp is None and not r.machine.cluster for r in bare)


def test_spot_costs_about_a_third_and_may_be_interrupted_and_reservations_cost_three_fifths(fleet: Fleet) -> None:
    on_demand = {kind.name: kind.price for types in catalog.INSTANCE_TYPES.values() for kind in types}
    for machine in (record.machine for record in fleet.machines()):
        ratio = machine.price_per_hour / on_demand[machine.instance_type]
        match machine.capacity_type:
            case CapacityType.SPOT:
                assert 0.29 < ratio < 0.41
                assert machine.interruption_probability > 0
            case CapacityType.RESERVED | CapacityType.BARE_METAL:
                assert 0.49 < ratio < 0.63
                assert machine.interruption_probability == 0
            case _:
                assert (ratio, machine.interruption_probability) == (1, 0)


def test_machines_of_a_rack_agree_in_zone_and_payment_and_share_their_labels(fleet: Fleet) -> None:
    racks: dict[str, MachineRecord] = {}
    for record in fleet.machines():
        machine = record.machine
        first = racks.setdefault(machine.labels[RACK], record).machine
        assert machine.labels is first.labels
        assert (machine.zone, machine.capacity_type) == (first.zone, first.capacity_type)
    assert {record.machine.zone for record in racks.values()} == set(catalog.ZONES)


def test_pinned_rows_are_never_bound_to_spot(fleet: Fleet) -> None:
    for record in fleet.machines():
        if record.stamp is not None and record.stamp.interruption is PenaltyBucket.PINNED:
            assert record.machine.capacity_type is not CapacityType.SPOT


def test_a_settled_fleet_is_at_rest_and_one_row_in_fifty_goes_without(fleet: Fleet) -> None:
    engine = Engine()
    engine.inventory.apply(fleet.machines())
    for record in fleet.clusters:
        engine.set_cluster(record)
        engine.needs.replace(record.id, fleet.needs[record.id])
    decision = engine.decide(Policy(), 10**6, fleet.next_binding)
    assert Counter(action.kind for action in decision.actions) == {}
    assert decision.excess == frozenset()
    assert len(decision.verdicts.short()) / fleet.rows == pytest.approx(0.02, abs=0.005)


def test_demand_beyond_the_machines_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'crowded': 100 machines"):
        generate(FleetShape(name="crowded", machines=100, clusters=2, rows=5_000))


def test_the_bench_shapes_are_those_of_the_budget_table() -> None:
    sizes = {name: (shape.machines, shape.clusters, shape.rows or shape.units) for name, shape in SHAPES.items()}
    assert sizes == {
        "5k": (5_000, 20, 7_700),
        "50k": (50_000, 200, 77_000),
        "500k": (500_000, 2_000, 500_000),
        "5m": (5_000_000, 2_000, 500_000),
    }
