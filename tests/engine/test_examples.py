"""Worked examples, issue 4 item 5: each reads like a user's story."""

from dataclasses import replace

from tests.engine.oracle.bridge import decide
from tests.engine.oracle.build import acted, bound_to, counted, fleet, machine, need, settled, verdict
from tests.engine.oracle.generate import RACK
from tests.engine.oracle.loop import Loop, fixed
from tests.engine.oracle.world import ACQUIRING, PINNED, Cluster, Daemon, Kind, Need, Policy, State, Unrequested


def test_a_training_job_gets_one_rack() -> None:
    job = need("train", 8, 8, same=RACK, group="job-1")
    machines = [machine(f"a{i}", 16, "idle", rack="a") for i in range(3)]
    machines += [machine(f"b{i}", 16, rack="b") for i in range(4)]
    machines += [machine(f"c{i}", 16, rack="c") for i in range(9)]
    decision = decide(fleet(machines, [job]))
    assert verdict(decision, job).domain == ("b",), "rack a is too small, rack c is left whole for larger jobs"
    assert acted(decision, Kind.PROVISION) == ["b0", "b1", "b2", "b3"]


def test_a_stockout_is_a_shortfall_and_not_an_action() -> None:
    row = need("web", 10, 4)
    loop = settled(fleet([machine(f"m{i}", 4) for i in range(6)], [row]))
    told = verdict(decide(loop.world()), row)
    assert counted(loop.acquired()) == {"Provision": 6}
    assert (told.missing_units, told.residual, told.unmet_reason) == (4, {"cpu": 16}, "NO_MATCHING_SUPPLY")


def test_a_shape_that_is_out_of_stock_is_held_out_and_another_is_taken() -> None:
    policy = Policy(held_out_shapes={("cheap", "", "OnDemand"): 1180})
    machines = [machine("m1", 4, kind="cheap", price=1), machine("m2", 4, kind="dear", price=5)]
    assert acted(decide(fleet(machines, [need("web", 1, 4)], policy=policy)), Kind.PROVISION) == ["m2"]


def test_withdrawn_demand_is_given_back_and_released() -> None:
    loop = settled(fleet([machine(f"m{i}", 4) for i in range(3)], [need("web", 3, 4)]))
    loop.change([])
    assert loop.settle()
    assert counted([a for _, a in loop.log]) == {"Provision": 3, "Reclaim": 3, "Delete": 3}
    assert {m.state for m in loop.machines.values()} == {State.SPECULATIVE}


def test_a_silent_cluster_keeps_everything() -> None:
    for silent in (Cluster("web", reported=False, excess_since=0), Cluster("web", live=False, excess_since=0)):
        assert decide(fleet([machine("m", 4, "web", number=1)], [], [silent])).actions == ()


def test_a_higher_priority_in_another_cluster_preempts() -> None:
    low, high = need("batch", 2, 8, priority=10), need("web", 1, 8, priority=1_000_000)
    machines = [machine(f"m{i}", 8, "batch", number=1 + i, own=low) for i in range(2)]
    decision = decide(fleet(machines, [low, high]))
    (action,) = decision.actions
    assert (action.kind, action.cluster, action.grace_seconds) == (Kind.PREEMPT, "web", 10)
    assert verdict(decision, high).satisfied
    assert verdict(decision, low).missing_units == 1


def test_grace_shrinks_with_the_priority_gap() -> None:
    for gap, grace in ((900_001, 10), (900_000, 30), (500_001, 30), (500_000, 120), (100_001, 120), (100_000, 600)):
        low, high = need("batch", 1, 8, priority=0), need("web", 1, 8, priority=gap)
        decision = decide(fleet([machine("m", 8, "batch", number=1, own=low)], [low, high]))
        assert [a.grace_seconds for a in decision.actions] == [grace]


def test_the_machine_that_is_cheapest_to_lose_goes_first() -> None:
    dear, cheap = need("batch", 1, 8, reclamation=20), need("batch", 1, 8, reclamation=1)
    machines = [machine("m1", 8, "batch", number=1, own=dear), machine("m2", 8, "batch", number=2, own=cheap)]
    decision = decide(fleet(machines, [dear, cheap, need("web", 1, 8, priority=5)]))
    assert acted(decision, Kind.PREEMPT) == ["m2"]


def test_a_pinned_workload_is_never_a_victim() -> None:
    pinned = need("db", 1, 8, priority=0, interruption=PINNED)
    web = need("web", 1, 8, priority=1_000_000)
    decision = decide(fleet([machine("m", 8, "db", number=1, own=pinned)], [pinned, web]))
    assert decision.actions == ()
    assert verdict(decision, web).unmet_reason == "PRIORITY_STARVED"


def test_a_pinned_workload_never_takes_spot_and_prefers_what_is_never_interrupted() -> None:
    row = need("db", 1, 8, interruption=PINNED)
    spot = machine("spot", 8, "idle", capacity="Spot", interruption_probability=10_000)
    risky = machine("risky", 8, "idle", interruption_probability=1)
    safe = machine("safe", 8, price=99)
    assert acted(decide(fleet([spot], [row])), *ACQUIRING) == []
    assert acted(decide(fleet([spot, risky], [row])), *ACQUIRING) == ["risky"]
    assert acted(decide(fleet([spot, risky, safe], [row])), *ACQUIRING) == ["safe"]


def test_spot_or_on_demand_flips_with_the_interruption_penalty() -> None:
    spot = machine("spot", 8, price=3, capacity="Spot", interruption_probability=100_000)
    on_demand = machine("demand", 8, price=10)
    # $3 + 0.1 * penalty: $64 still leaves spot at $9.40, $128 makes it $15.80.
    assert acted(decide(fleet([spot, on_demand], [need("c", 1, 8, interruption=8)])), *ACQUIRING) == ["spot"]
    assert acted(decide(fleet([spot, on_demand], [need("c", 1, 8, interruption=9)])), *ACQUIRING) == ["demand"]


def test_a_hundred_pods_of_5_cores_need_a_hundred_machines_of_8() -> None:
    row = need("web", 100, 5)
    decision = decide(fleet([machine(f"m{i:03}", 8) for i in range(130)], [row]))
    assert verdict(decision, row).provision_count == 100
    assert verdict(decision, row).satisfied


def test_a_machine_rich_in_memory_is_worth_the_pods_that_fit() -> None:
    row = need("cache", 6, 2, memory=4)
    rich = [machine(f"m{i}", 4, memory=1000) for i in range(5)]
    assert verdict(decide(fleet(rich, [row])), row).provision_count == 3


def test_daemons_shrink_every_node_of_their_cluster_only() -> None:
    daemons = (Daemon({"cpu": 1}),)
    machines = [machine(f"m{i}", 8) for i in range(9)]
    with_daemons, without = need("a", 4, 4), need("b", 4, 4)
    decision = decide(fleet(machines, [with_daemons, without], [Cluster("a", daemons=daemons)]))
    assert verdict(decision, with_daemons).provision_count == 4
    assert verdict(decision, without).provision_count == 2


def test_daemons_take_only_of_the_nodes_they_match() -> None:
    daemon = Daemon({"cpu": 1}, need("a", 1, 1, kind=("gpu",)).requirements)
    machines = [machine(f"m{i}", 8, kind="plain") for i in range(9)]
    row = need("a", 4, 4)
    assert verdict(decide(fleet(machines, [row], [Cluster("a", daemons=(daemon,))])), row).provision_count == 2


def test_tiny_pods_are_limited_by_a_nodes_pod_count() -> None:
    row = need("tiny", 330, 250)
    decision = decide(fleet([machine(f"m{i}", 96_000) for i in range(5)], [row]))
    assert verdict(decision, row).provision_count == 3
    small = [machine(f"m{i}", 96_000, pods=30) for i in range(12)]
    assert verdict(decide(fleet(small, [row])), row).provision_count == 11


def test_pods_that_refuse_to_share_a_host_get_one_each() -> None:
    row = need("quorum", 3, 1, limit=1)
    decision = decide(fleet([machine(f"m{i}", 64) for i in range(5)], [row]))
    assert verdict(decision, row).provision_count == 3


def test_the_machine_limit_counts_all_sizes_of_one_profile() -> None:
    large, small = need("quorum", 1, 2, limit=1), need("quorum", 1, 1, limit=1)
    assert large.fingerprint == small.fingerprint
    decision = decide(fleet([machine(f"m{i}", 64) for i in range(5)], [large, small]))
    assert len(acted(decision, Kind.PROVISION)) == 2


def test_ten_small_profiles_share_one_machine() -> None:
    rows = [need("web", 1, 1, priority=i) for i in range(10)]
    decision = decide(fleet([machine(f"m{i}", 16) for i in range(5)], rows))
    assert len(decision.actions) == 1
    assert not decision.shortfalls


def test_a_machine_never_serves_two_clusters() -> None:
    rows = [need("a", 1, 1), need("b", 1, 1)]
    assert len(decide(fleet([machine(f"m{i}", 16) for i in range(5)], rows)).actions) == 2


def test_empty_nodes_go_before_busy_ones() -> None:
    row = need("web", 1, 4)
    busy = [machine(f"busy{i}", 4, "web", number=1 + i, price=9) for i in range(2)]
    empty = [machine(f"empty{i}", 4, "web", number=9 + i, price=1, empty=True) for i in range(2)]
    loop = settled(fleet(busy + empty, [row]))
    assert [a.machine for _, a in loop.log if a.kind is Kind.RECLAIM] == ["empty0", "empty1", "busy1"]


def test_a_partial_cluster_gives_back_only_empty_nodes() -> None:
    machines = [machine("busy", 4, "web", number=1), machine("empty", 4, "web", number=2, empty=True)]
    loop = settled(fleet(machines, [], [Cluster("web", partial=True)]))
    assert bound_to(loop, "web") == {"busy"}


def test_a_node_with_pods_without_requests_is_never_given_back_and_has_their_priority() -> None:
    row = replace(machine("m", 4, "web", number=1), unrequested=Unrequested(priority=50))
    assert settled(fleet([row], [])).log == []
    assert decide(fleet([row], [need("rival", 1, 4, priority=50)])).actions == ()
    assert acted(decide(fleet([row], [need("rival", 1, 4, priority=51)])), Kind.PREEMPT) == ["m"]


def test_excess_must_last_before_anything_is_given_back() -> None:
    loop = Loop.of(fleet([machine("m", 4, "web", number=1)], []), fixed(0, 0, 0))
    when = []
    for _ in range(6):
        now = loop.now
        when += [now for a in loop.step().actions if a.kind is Kind.RECLAIM]
    assert when == [1030]


def test_the_rail_lets_five_percent_go_per_window() -> None:
    machines = [machine(f"m{i:02}", 4, "web", number=1 + i) for i in range(60)]
    world = fleet(machines, [], [Cluster("web", excess_since=0)])
    assert len(decide(world).actions) == 3
    half_used = fleet(machines, [], [Cluster("web", excess_since=0, reclaimed_in_window=2)])
    assert len(decide(half_used).actions) == 1


def test_an_unsatisfiable_gang_of_64_nodes_causes_no_action_for_a_thousand_cycles() -> None:
    gang = need("train", 64, 8, same=RACK, group="big")
    loop = Loop.of(fleet([machine(f"m{i:02}", 8, rack="r") for i in range(63)], [gang]), fixed(1, 1, 1))
    for _ in range(40):
        loop.step()
        loop.advance(24)  # a decision is a pure function: between two equal worlds nothing can differ
    assert loop.settle()
    assert loop.log == []


def test_a_ten_minute_grace_preempts_once() -> None:
    low, high = need("batch", 4, 8, priority=0), need("web", 1, 8, priority=5)
    machines = [machine(f"m{i}", 8, "batch", number=1 + i, own=low) for i in range(4)]
    loop = Loop.of(fleet(machines, [low, high]), fixed(0, 0, 60))
    for _ in range(70):
        loop.step()
    assert counted([a for _, a in loop.log]) == {"Preempt": 1}


def test_idle_hardware_that_is_owned_is_never_released() -> None:
    machines = [machine(kind, 4, "idle", capacity=kind, idle_since=0) for kind in ("BareMetal", "Reserved", "OnDemand")]
    machines.append(machine("unknown", 4, "idle", capacity="", idle_since=0))
    assert acted(decide(fleet(machines, [])), Kind.DELETE) == ["OnDemand"]


def test_a_divisible_row_of_a_stranger_takes_what_is_free() -> None:
    row = Need("other", "f", {"cpu": 10, "memory": 10})
    machines = [machine("cpu", 8, "idle", memory=1), machine("both", 4, "idle", memory=16)]
    decision = decide(fleet(machines, [row]))
    assert verdict(decision, row).satisfied
    assert verdict(decision, row).takes == {
        "both": {"cpu": 4, "memory": 10, "pods": 1},
        "cpu": {"cpu": 6, "pods": 1},
    }


def test_a_dropped_mark_frees_a_machine_that_nobody_needs_any_more() -> None:
    machines = [machine("m", 4, "idle", committed_to="web", idle_since=0)]
    decision = decide(fleet(machines, []))
    assert decision.dropped == ("m",)
    assert decision.actions == ()


def test_a_higher_gang_keeps_what_a_lower_need_of_another_cluster_just_bought() -> None:
    """The gang is whole only with a victim, so in phase 1 it takes nothing and a lower need buys the free machine."""
    gang = need("train", 2, 8, priority=9, same=RACK, group="g")
    low = need("batch", 1, 8, priority=1)
    victim = need("web", 1, 8, priority=5)
    machines = [machine("free", 8, rack="r"), machine("used", 8, "web", rack="r", number=1, own=victim)]
    decision = decide(fleet(machines, [gang, low, victim]))
    assert {(a.kind, a.machine, a.cluster) for a in decision.actions} == {
        (Kind.PROVISION, "free", "train"),
        (Kind.PREEMPT, "used", "train"),
    }
    assert verdict(decision, gang).satisfied
