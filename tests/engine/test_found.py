"""Counter-examples found while the oracle was written; the numbers are those of ADR 9."""

from dataclasses import replace

from tests.engine.oracle import laws
from tests.engine.oracle.bridge import decide
from tests.engine.oracle.build import acted, fleet, machine, need, settled, verdict
from tests.engine.oracle.generate import RACK, ZONE
from tests.engine.oracle.world import ACQUIRING, PINNED, Cluster, Kind, State, Unrequested


def test_1_the_latency_of_a_drain_does_not_choose_the_machine() -> None:
    row = need("c", 8, 1)
    large = machine("large", 8, "draining", price=9, cluster="d")
    small = machine("small", 2, price=1)
    drained = replace(large, state=State.IDLE, cluster="")
    assert acted(decide(fleet([large, small], [row])), *ACQUIRING) == ["large"]
    assert acted(decide(fleet([drained, small], [row])), *ACQUIRING) == ["large"]


def test_1_nor_does_the_latency_of_a_delete() -> None:
    row = need("c", 8, 1)
    large = machine("large", 8, "deleting", price=1)
    small = machine("small", 2, price=1)
    deleted = replace(large, state=State.SPECULATIVE)
    assert acted(decide(fleet([large, small], [row])), *ACQUIRING) == ["large"]
    assert acted(decide(fleet([deleted, small], [row])), *ACQUIRING) == ["large"]


def test_2_what_a_lower_need_just_bought_goes_to_the_one_that_lost_its_machine() -> None:
    top = need("top", 1, 8, priority=9, kind=("t",))
    middle = need("middle", 1, 8, priority=5)
    low = need("low", 1, 8, priority=1)
    machines = [machine("m", 8, "middle", kind="t", number=1, own=middle), machine("free", 8)]
    decision = decide(fleet(machines, [top, middle, low]))
    assert {(a.kind, a.machine, a.cluster) for a in decision.actions} == {
        (Kind.PREEMPT, "m", "top"),
        (Kind.PROVISION, "free", "middle"),
    }
    assert not verdict(decision, low).satisfied


def test_3_excess_that_only_the_ordinary_order_sees_is_given_back() -> None:
    """Keep order leaves `named` (dear, may not go) untaken; the ordinary order leaves `cheap`, which may."""
    row = need("c", 1, 4)
    named = machine("named", 4, "c", number=1, price=9, unrequested=Unrequested(0))
    cheap = machine("cheap", 4, "c", number=2, price=1)
    loop = settled(fleet([named, cheap], [row]))
    assert [a.machine for _, a in loop.log if a.kind is Kind.RECLAIM] == ["cheap"]


def test_6_a_need_that_lost_its_machine_moves_to_what_its_cluster_still_has() -> None:
    top = need("top", 1, 8, priority=9, kind=("t",))
    first = need("c", 1, 8, priority=5)
    second = need("c", 1, 8, priority=3)
    machines = [
        machine("m1", 8, "c", kind="t", number=1, own=first),
        machine("m2", 8, "c", kind="u", number=2, own=second),
        machine("spare", 8, kind="u"),
    ]
    decision = decide(fleet(machines, [top, first, second]))
    assert verdict(decision, first).takes.keys() == {"m2"}
    assert verdict(decision, second).takes.keys() == {"spare"}
    assert acted(decision, *ACQUIRING) == ["m1", "spare"]


def test_10_either_penalty_pins_a_machine() -> None:
    high = need("h", 1, 4, priority=9)
    for row in (need("c", 1, 4, interruption=PINNED), need("c", 1, 4, reclamation=PINNED)):
        assert decide(fleet([machine("m", 4, "c", number=1, own=row)], [row, high])).actions == ()


def test_13_a_gang_whose_demand_is_not_live_keeps_its_own_and_buys_nothing() -> None:
    gang = need("c", 3, 4, same=RACK, group="g")
    machines = [machine("own", 4, "c", rack="r", number=1, own=gang), machine("s1", 4, rack="r")]
    machines += [machine("s2", 4, rack="r")]
    decision = decide(fleet(machines, [gang], [Cluster("c", live=False)]))
    assert decision.actions == ()
    assert verdict(decision, gang).takes.keys() == {"own"}


def test_24_a_mark_is_kept_while_the_machine_is_on_its_way_and_dropped_once_idle() -> None:
    for state in ("creating", "deleting", "speculative"):
        assert decide(fleet([machine("m", 4, state, committed_to="c")], [])).dropped == ()
    assert decide(fleet([machine("m", 4, "idle", committed_to="c")], [])).dropped == ("m",)


def test_2_but_not_what_a_higher_need_came_to_rely_on() -> None:
    """`free` is bought for x's low need; x's high need, robbed, moves onto it; y, robbed and in between, may not."""
    tops = [need("top", 1, 8, priority=9, kind=("t",)), need("top", 1, 8, priority=9, kind=("u",))]
    high, low = need("x", 1, 8, priority=5), need("x", 1, 8, priority=1)
    between = need("y", 1, 8, priority=3)
    machines = [
        machine("m1", 8, "x", kind="t", number=1, own=high),
        machine("m2", 8, "y", kind="u", number=2, own=between),
        machine("free", 8),
    ]
    decision = decide(fleet(machines, [*tops, high, low, between]))
    assert verdict(decision, high).takes.keys() == {"free"}
    assert not verdict(decision, between).satisfied


def test_6_a_machine_that_a_gang_leaves_in_phase_2_is_no_lower_needs_prey() -> None:
    high = need("h", 1, 2, priority=5, reclamation=1, zone=("z0",))
    gang = need("g", 5, 2, priority=5, same=ZONE)
    low = need("l", 1, 1, priority=1)
    machines = [
        machine("left", 2, "g", zone="z0", number=1, own=gang),
        machine("v", 8, "l", zone="z2", number=2, own=low),
        machine("free", 8, zone="z2"),
    ]
    world = fleet(machines, [high, gang, low])
    decision = decide(world)
    assert verdict(decision, gang).domain == ("z2",)
    assert "left" not in acted(decision, Kind.PREEMPT)
    loop = settled(world)
    assert loop.machines["left"].cluster == "h"


def test_35_what_is_given_back_may_complete_a_higher_gang_at_the_cost_of_a_lower_need() -> None:
    """The giver keeps `cheap` and gives `dear` back, which no victim was: the gang, now whole, outranks `low`."""
    gang = need("c", 2, 8, priority=5, same=RACK)
    low = need("c", 1, 8, priority=1)
    giver = need("giver", 1, 8, priority=5)
    machines = [
        machine("m", 8, "c", rack="r", number=1, own=low),
        machine("dear", 8, "giver", rack="r", number=2, own=giver, price=9),
        machine("cheap", 8, "giver", number=3, price=1),
    ]
    world = fleet(machines, [gang, low, giver], [Cluster("giver", excess_since=0)])
    first = decide(world)
    assert [(a.kind, a.machine) for a in first.actions] == [(Kind.RECLAIM, "dear")]
    assert verdict(first, low).satisfied
    assert laws.opens_no_gap(world, first) == []
    loop = settled(world)
    last = loop.decide()
    assert verdict(last, gang).takes.keys() == {"m", "dear"}
    assert not verdict(last, low).satisfied
    assert verdict(last, giver).takes.keys() == {"cheap"}


def test_a_need_that_only_phase_2_robs_finds_its_victim() -> None:
    """Victims were listed for needs unmet when phase 2 began. `held`, which may not act, takes what `robbed` bought."""
    held, robbed = need("c", 1, 4, priority=9), need("c", 1, 4, priority=5, group="robbed")
    low = need("low", 1, 4, priority=1)
    machines = [machine("free", 4, "idle"), machine("victim", 4, "low", number=1, own=low)]
    world = fleet(machines, [held, robbed, low], [Cluster("c", held_out={held.fingerprint: 2000})])
    assert acted(decide(world), Kind.PREEMPT) == ["victim"]


def test_a_gang_that_asks_for_nothing_hides_no_machine_from_the_next() -> None:
    """To the first no machine has room, and what has none for one row has none for others of its kind."""
    nothing, gang = need("c", 0, 4, priority=9, same=RACK), need("c", 1, 4, priority=5, same=RACK)
    machines = [machine("bound", 4, "c", rack="r", number=1), machine("free", 4, "idle", rack="r")]
    decision = decide(fleet(machines, [nothing, gang]))
    assert acted(decision, *ACQUIRING) == []
    assert verdict(decision, gang).takes.keys() == {"bound"}
