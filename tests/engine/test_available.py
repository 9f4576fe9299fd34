"""What could still be given: against a count machine by machine on random worlds, and by example."""

import os
import pickle
from collections import defaultdict
from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from bigfleet.engine.available import NOTHING, Supply, available
from bigfleet.engine.engine import Engine
from tests.engine.oracle.bridge import decide_with, engine_of, need_row
from tests.engine.oracle.build import fleet, machine, need
from tests.engine.oracle.decision import phase_one
from tests.engine.oracle.generate import DOLLAR, RACK, TYPE, Taste, worlds
from tests.engine.oracle.picture import Picture
from tests.engine.oracle.preempt import is_anothers, phase_two, standing
from tests.engine.oracle.rows import Facts, Row, Vector, matches, whole_units
from tests.engine.oracle.world import (
    PINNED,
    Cluster,
    Daemon,
    Machine,
    Need,
    Op,
    Policy,
    Requirement,
    State,
    Unrequested,
    World,
    fingerprint_of,
)

# A longer look: BIGFLEET_EXAMPLES=100000 make test TESTS=tests/engine/test_available.py
EXAMPLES = int(os.environ.get("BIGFLEET_EXAMPLES", "1500"))
LOOK = settings(max_examples=max(1, EXAMPLES // 15), deadline=None, suppress_health_check=list(HealthCheck))

FREE = (State.IDLE, State.SPECULATIVE)
TIERS = ("idle", "owned", "on_demand", "spot")
SLOTS = {"OnDemand": "on_demand", "Spot": "spot", "": "owned", "Reserved": "owned", "BareMetal": "owned"}


class Count:
    """The same, one machine after the other, for the rows of one profile of a cluster."""

    def __init__(self, picture: Picture, rows: list[Row]) -> None:
        self.picture, self.facts, self.rows, self.need = picture, picture.facts, rows, rows[0].need
        self.unit: Vector = {}
        for row in rows:
            for name, amount in row.unit.items():
                self.unit[name] = max(amount, self.unit.get(name, 0))
        self.asked = max(row.asked for row in rows)

    def units(self, m: Machine) -> int:
        """Units that the machine would hold."""
        labels, room = self.facts.labels[m.id], self.facts.fresh(self.need.cluster, m)
        if not matches(self.need.requirements, labels) or (self.rows[0].pinned and m.capacity_type == "Spot"):
            return 0
        if any(spread.key not in labels for spread in self.rows[0].hard_spread):
            return 0
        if not self.unit:
            wanted = {name for row in self.rows for name, amount in row.need.aggregate.items() if amount}
            return int(room["pods"] > 0 and any(room.get(name, 0) for name in wanted))
        units = whole_units(room, self.unit)
        return min(units, self.need.max_per_machine) if self.need.max_per_machine else units

    def tier(self, m: Machine) -> str:
        """How a free machine could be had."""
        return "idle" if m.state is State.IDLE else SLOTS[m.capacity_type]

    def is_free(self, m: Machine) -> bool:
        """Idle or Speculative, nobody's, and not held out."""
        return m.state in FREE and m.id not in self.picture.bound and self.is_open(m)

    def is_open(self, m: Machine) -> bool:
        """It serves and is not held out."""
        return self.units(m) > 0 and not self.facts.held_out(m)

    def could_be_taken(self, m: Machine) -> bool:
        """Somebody's who stands below."""
        stands = standing(self.picture, m)
        elsewhere = replace(self.rows[0], need=replace(self.need, cluster="nobody"))
        if m.protected or stands.pinned or not is_anothers(self.picture, elsewhere, m) or not self.is_open(m):
            return False
        return not stands.serves or stands.priority < self.need.priority

    def best_domain(self, machines: list[Machine], *, free: bool) -> tuple[list[Machine], bool]:
        """The machines of the domain that is best for a gang, and whether they hold it whole."""
        domains = defaultdict(list)
        for m in machines:
            domains[self.facts.domain(self.rows[0], m)].append(m)

        def rank(domain: tuple[str, ...]) -> tuple[bool, int, int, tuple[str, ...]]:
            there = domains[domain]
            soonest = min(TIERS.index(self.tier(m)) for m in there) if free else 0
            return not self.whole(there), soonest, -len(there), domain

        best = domains[min(domains, key=rank)] if domains else []
        return best, self.whole(best)

    def whole(self, machines: list[Machine]) -> bool:
        """Whether these hold as much as the largest row asks for."""
        return sum(self.units(m) for m in machines) >= self.asked

    def check(self, supply: Supply) -> None:
        """Compare."""
        machines = list(self.facts.machines.values())
        found, whole = [m for m in machines if self.is_free(m)], False
        gang, free = bool(self.rows[0].same_keys), bool(found)
        if not found:
            found = [m for m in machines if self.could_be_taken(m)]
        if gang:
            found, whole = self.best_domain(found, free=free)
        counts = dict.fromkeys((*TIERS, "preemptible"), 0)
        if free:
            for m in found:
                counts[self.tier(m)] += 1
        else:
            counts["preemptible"] = sum(self.picture.bound[m.id].cluster != self.need.cluster for m in found)
        assert {name: getattr(supply, name) for name in counts} == counts
        assert supply.count == sum(counts.values())
        assert supply.atomic == (free and (whole if gang else counts["on_demand"] + counts["spot"] == 0))
        if supply.count:
            cheapest = min(m.price for m in found)
            rooms = [self.facts.fresh(self.need.cluster, m) for m in found if m.price == cheapest]
            kinds = [m.instance_type for m in found if m.price == cheapest]
            told = supply.instance_type, dict(supply.room)
            assert told in [(kind, _filled(room)) for kind, room in zip(kinds, rooms, strict=True)]
            assert supply.price == cheapest / DOLLAR
        else:
            assert supply == NOTHING


def _filled(room: Vector) -> Vector:
    return {name: amount for name, amount in room.items() if amount}


def look_at(world: World) -> Engine:
    """An engine that has decided on this world."""
    engine = engine_of(world)
    decide_with(engine, world)
    return engine


def supply_for(row: Need, world: World) -> Supply:
    """What there is for one row's profile."""
    return found_by(look_at(world), row)


def found_by(engine: Engine, row: Need) -> Supply:
    """What there is for one row's profile."""
    (found,) = (a for a in available(engine, [row.cluster])[row.cluster] if a.profile.fingerprint == row.fingerprint)
    return found.supply


def everything_is_counted(world: World) -> None:
    engine = look_at(world)
    facts = Facts(world)
    picture = phase_two(phase_one(facts))
    answers = available(engine, [c.id for c in world.clusters])
    for cluster in world.clusters:
        profiles = defaultdict(list)
        for row in facts.rows_of(cluster.id):
            profiles[row.need.fingerprint].append(row)
        assert sorted(a.profile.fingerprint for a in answers[cluster.id]) == sorted(profiles)
        for answer in answers[cluster.id]:
            fingerprint = answer.profile.fingerprint
            if cluster.held_out.get(fingerprint, 0) > world.now:
                assert answer.supply == NOTHING
            else:
                Count(picture, profiles[fingerprint]).check(answer.supply)


@LOOK
@given(worlds())
def test_it_is_what_one_finds_going_from_machine_to_machine(world: World) -> None:
    everything_is_counted(world)


@LOOK
@given(worlds(Taste(machines=(10, 40), clusters=(2, 4), rows=(2, 5), rivals=True)))
def test_it_is_what_one_finds_where_rows_compete(world: World) -> None:
    everything_is_counted(world)


@LOOK
@given(worlds(Taste(machines=(10, 30), clusters=(2, 4), rows=(2, 5))))
def test_it_is_what_one_finds_where_nothing_is_free(world: World) -> None:
    everything_is_counted(replace(world, machines=tuple(m for m in world.machines if m.state not in FREE)))


@LOOK
@given(worlds(Taste(machines=(10, 30), rows=(2, 6))))
def test_it_is_what_one_finds_where_profiles_have_many_rows(world: World) -> None:
    needs = (replace(row, priority=row.priority // 100_000, interruption=0, reclamation=0) for row in world.needs)
    everything_is_counted(replace(world, needs=tuple(replace(row, fingerprint=fingerprint_of(row)) for row in needs)))


def test_idle_machines_slots_and_spot_are_told_apart() -> None:
    row = need("web", 1, 4)
    machines = [machine(f"i{i}", 8, "idle", capacity="Spot", price=9, interruption_probability=1) for i in range(3)]
    machines += [machine("r", 8, capacity="Reserved", price=5), machine("m", 8, capacity="BareMetal", price=5)]
    machines += [machine("u", 8, capacity="", price=5), machine("d", 8, price=7)]
    machines += [machine(f"s{i}", 8, capacity="Spot", price=3, interruption_probability=1) for i in range(2)]
    supply = supply_for(row, fleet(machines, [row]))
    # The row itself has bought one of the idle ones.
    assert (supply.idle, supply.owned, supply.on_demand, supply.spot) == (2, 3, 1, 2)
    assert (supply.count, supply.price) == (8, 3.0)


def test_what_the_decision_just_bought_is_not_there_any_more() -> None:
    row = need("web", 2, 4)
    assert supply_for(row, fleet([machine(f"m{i}", 4) for i in range(5)], [row])).on_demand == 3


def test_a_machine_is_worth_the_largest_unit_of_a_profile_in_every_dimension() -> None:
    wide, tall = need("web", 1, 4, memory=1), need("web", 1, 1, memory=8)
    assert wide.fingerprint == tall.fingerprint
    bound = [machine("b0", 4, "web", memory=1, number=1), machine("b1", 1, "web", memory=8, number=2)]
    spare = [machine("wide", 4, memory=1), machine("tall", 1, memory=8), machine("both", 4, memory=8)]
    assert supply_for(wide, fleet(bound + spare, [wide, tall])).on_demand == 1


def test_room_is_what_the_clusters_own_daemons_leave() -> None:
    row, other = need("a", 1, 4), need("b", 1, 4)
    machines = [machine(f"m{i}", 8, kind="t", pods=20) for i in range(9)]
    daemons = (Daemon({"cpu": 1}), Daemon({"cpu": 2}, (Requirement(TYPE, Op.IN, ("t",)),)))
    engine = look_at(fleet(machines, [row, other], [Cluster("a", daemons=daemons)]))
    assert found_by(engine, row).room == (("cpu", 5), ("pods", 18))
    assert found_by(engine, other).room == (("cpu", 8), ("pods", 20))
    assert found_by(engine, row).instance_type == "t"


def test_asking_changes_nothing() -> None:
    plain, divisible = need("a", 1, 4), replace(need("b", 1, 4), unit={})
    machines = [machine(f"m{i}", 8, pods=20) for i in range(3)]
    daemons = (Daemon({"cpu": 1}, (Requirement(RACK, Op.EXISTS, ()),)),)
    engine = look_at(fleet(machines, [plain, divisible], [Cluster("a", daemons=daemons)]))
    before = pickle.dumps(engine)
    assert available(engine, ["a", "b", "nobody"])["nobody"] == []
    assert pickle.dumps(engine) == before


def test_what_is_held_out_cannot_be_given() -> None:
    row = need("web", 1, 4)
    bound = machine("b", 4, "web", number=1)
    held = machine("held", 4, kind="t", not_before=1001)
    policy = Policy(held_out_shapes={("u", "", "OnDemand"): 1001})
    world = fleet([bound, held, machine("short", 4, kind="u")], [row], policy=policy)
    assert supply_for(row, world) == NOTHING
    assert supply_for(row, replace(world, now=1001)).on_demand == 2
    barred = [Cluster("web", held_out={row.fingerprint: 1001})]
    assert supply_for(row, fleet([bound, machine("m", 4)], [row], barred)) == NOTHING


def test_pinned_work_is_never_offered_spot() -> None:
    row = need("db", 1, 4, interruption=PINNED)
    spot = [machine(f"s{i}", 4, where, capacity="Spot", interruption_probability=1) for i, where in
            enumerate(("idle", "speculative"))]  # fmt: skip
    assert supply_for(row, fleet([machine("b", 4, "db", number=1), *spot], [row])) == NOTHING


def test_a_gang_is_offered_one_domain_and_told_whether_it_is_whole_there() -> None:
    gang = need("train", 4, 8, same=RACK, group="g")
    bound = [machine(f"b{i}", 8, "train", rack="z", number=1 + i) for i in range(4)]
    two_racks = [
        machine(f"{rack}{i}", 8, rack=rack, price=price) for rack, price in (("x", 1), ("y", 5)) for i in range(3)
    ]
    some = supply_for(gang, fleet(bound + two_racks, [gang]))
    assert (some.count, some.atomic, some.price) == (3, False, 1.0)
    one_more = machine("y3", 8, rack="y", price=5)
    whole = supply_for(gang, fleet([*bound, *two_racks, one_more], [gang]))
    assert (whole.count, whole.atomic, whole.price) == (4, True, 5.0)


def test_a_gang_is_measured_by_the_largest_of_its_profile_and_within_the_machine_limit() -> None:
    pair, four = need("train", 2, 2, same=RACK, group="g1"), need("train", 4, 2, same=RACK, group="g2")
    bound = [machine(f"b{i}", 2, "train", rack="z", number=1 + i) for i in range(6)]
    spare = [machine("s0", 4, rack="x"), machine("s1", 2, rack="x")]
    assert not supply_for(pair, fleet(bound + spare, [pair, four])).atomic
    assert supply_for(pair, fleet([*bound, *spare, machine("s2", 2, rack="x")], [pair, four])).atomic
    apart = need("train", 4, 2, same=RACK, group="g", limit=1)
    wide = [machine(f"w{i}", 64, rack="x") for i in range(3)]
    assert not supply_for(apart, fleet(bound + wide, [apart])).atomic
    assert supply_for(apart, fleet([*bound, *wide, machine("w3", 64, rack="x")], [apart])).atomic


def test_of_domains_that_are_alike_the_first_by_name_is_offered() -> None:
    gang = need("train", 1, 8, same=RACK, group="g")
    bound = machine("b", 8, "train", rack="z", number=1)
    alike = [machine("1", 8, rack="y", price=1), machine("2", 8, rack="x", price=2)]
    assert supply_for(gang, fleet([bound, *alike], [gang])).price == 2.0


def test_other_work_is_promised_together_only_what_cannot_fail_to_come() -> None:
    row = need("web", 1, 4)
    sure = [machine("b", 4, "web", number=1), machine("i", 4, "idle"), machine("r", 4, capacity="Reserved")]
    assert supply_for(row, fleet(sure, [row])).atomic
    assert not supply_for(row, fleet([*sure, machine("d", 4)], [row])).atomic


def test_preemption_counts_where_nothing_is_free_and_only_what_stands_below() -> None:
    high, low, equal = need("web", 1, 4, priority=9), need("batch", 2, 4, priority=1), need("peer", 1, 4, priority=9)
    pinned = need("db", 1, 4, priority=1, reclamation=PINNED)
    machines = [machine("w", 4, "web", number=1, own=high), machine("p", 4, "peer", number=2, own=equal)]
    machines += [machine(f"b{i}", 4, "batch", number=3 + i, own=low, price=2) for i in range(2)]
    machines += [machine("d", 4, "db", number=5, own=pinned)]
    rows = [high, low, equal, pinned]
    assert supply_for(high, fleet(machines, rows)) == Supply(preemptible=2, price=2.0, room=(("cpu", 4), ("pods", 110)))
    assert supply_for(low, fleet(machines, rows)) == NOTHING
    one_free = supply_for(high, fleet([*machines, machine("f", 4)], rows))
    assert (one_free.on_demand, one_free.preemptible) == (1, 0)
    protected = [replace(m, protected=True) for m in machines]
    assert supply_for(high, fleet(protected, rows)) == NOTHING


def test_rows_that_came_after_the_decision_are_answered_from_what_it_left() -> None:
    row = need("web", 1, 4)
    engine = look_at(fleet([machine(f"m{i}", 4) for i in range(3)], [row]))
    grown = replace(need("web", 1, 2, priority=5), unit={"cpu": 2, "example.com/new": 1})
    engine.needs.replace("web", [need_row(need("web", 1, 2)), need_row(grown)])
    assert found_by(engine, need("web", 1, 2)).on_demand == 2
    assert found_by(engine, grown) == NOTHING
    engine.needs.replace("web", [])
    assert available(engine, ["web"]) == {"web": []}


def test_in_a_partial_cluster_only_nodes_that_are_empty_or_named_could_be_preempted() -> None:
    row = need("web", 1, 4, priority=9)
    nodes = [machine(f"n{i}", 4, "other", number=1 + i) for i in range(3)]
    nodes[1:] = replace(nodes[1], empty=True), replace(nodes[2], unrequested=Unrequested(priority=0))
    world = fleet([machine("b", 4, "web", number=9, own=row), *nodes], [row], [Cluster("other", partial=True)])
    assert supply_for(row, world).preemptible == 2


def test_a_stranger_is_offered_what_has_something_of_what_it_asks_for() -> None:
    row = Need("other", "f", {"cpu": 0, "memory": 8})
    machines = [machine("cpu", 8, memory=0), machine("full", 8, memory=4, pods=1), machine("both", 4, memory=4)]
    machines += [machine("b", 8, "other", memory=8, number=1)]
    engine = look_at(fleet(machines, [row], [Cluster("other", daemons=(Daemon({"cpu": 1}),))]))
    (answer,) = available(engine, ["other"])["other"]
    assert (answer.supply.on_demand, answer.supply.room) == (1, (("cpu", 3), ("memory", 4), ("pods", 109)))
    (answer,) = available(look_at(fleet(machines, [replace(row, aggregate={"pods": 9})])), ["other"])["other"]
    assert answer.supply == NOTHING, "pod slots alone are nothing that can be bought"


def test_before_the_first_decision_and_for_strangers_there_is_nothing() -> None:
    row = need("web", 1, 4)
    assert found_by(engine_of(fleet([machine("m", 4)], [row])), row) == NOTHING
    assert available(engine_of(fleet([], [])), ["nobody"]) == {"nobody": []}
    assert available(engine_of(fleet([], [])), []) == {}
