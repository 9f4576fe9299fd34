"""engine-cases.md, each case by its letter: what broke earlier wordings of engine.md must stay mended."""

import itertools
from dataclasses import replace

import pytest

from tests.engine.oracle.bridge import decide
from tests.engine.oracle.build import acted, bound_to, counted, fleet, machine, need, settled, verdict
from tests.engine.oracle.decision import phase_one
from tests.engine.oracle.generate import RACK, TYPE, ZONE
from tests.engine.oracle.giveback import emission, keep_credit, leaves_all_covered, untaken
from tests.engine.oracle.loop import Loop, fixed
from tests.engine.oracle.preempt import phase_two
from tests.engine.oracle.rows import Facts
from tests.engine.oracle.world import ACQUIRING, PINNED, Cluster, Kind, Spread, State

LATENCIES = [fixed(0, 0, 0), fixed(1, 1, 1), fixed(2, 3, 6), fixed(60, 60, 60)]


def short_rows(loop: Loop) -> list[str]:
    return [v.key.fingerprint for v in decide(loop.world()).shortfalls]


def test_a_a_spread_need_does_not_preempt_what_the_skew_would_not_count() -> None:
    p = need("p", 4, 2, priority=9, spread=1)
    q = need("q", 1, 4, priority=1)
    machines = [
        machine("m1", 4, "p", zone="z0", number=1, own=p),
        machine("m2", 4, "q", zone="z0", number=2, own=q),
        machine("m3", 2, "p", zone="z1", number=3, own=p),
    ]
    decision = decide(fleet(machines, [p, q]))
    assert decision.actions == ()
    assert verdict(decision, p).missing_units == 1


def test_b_a_purchase_does_not_move_an_assignment() -> None:
    rows = [need("c", 1, 8), need("c", 3, 2, memory=8), need("c", 1, 3, kind=("c",))]
    machines = [
        machine("m04", 32, "c", kind="x", memory=24, number=1),
        machine("m00", 8, kind="c", memory=24),
        machine("m03", 8, kind="c", memory=24),
    ]
    loop = settled(fleet(machines, rows))
    assert counted(loop.acquired()) == {"Provision": 1}
    assert short_rows(loop) == []


def test_c_after_buying_and_giving_back_nobody_is_short() -> None:
    rows = [
        need("c", 1, 1, kind=("t", "v"), priority=4),
        need("c", 1, 1, priority=3),
        need("c", 2, 1, kind=("v",), priority=2),
        need("c", 1, 2, priority=1),
    ]
    machines = [
        machine("m0", 3, "c", kind="v", number=1),
        machine("m2", 4, "c", kind="u", number=2),
        machine("m1", 3, "idle", kind="v", idle_since=1000),
    ]
    for price in (1, 2, 9):
        priced = [replace(m, price=price) if m.id == "m2" else m for m in machines]
        loop = Loop.of(fleet(priced, rows), fixed(0, 0, 0))
        for _ in range(20):
            loop.step()
            assert short_rows(loop) == []
        assert loop.settle()


def test_d_a_small_gang_is_not_starved() -> None:
    high = need("c", 1, 8, priority=3)
    gang = need("c", 4, 2, priority=2, same=RACK, group="g")
    low = need("c", 1, 5, priority=1)
    machines = [machine("m04", 8, rack="r"), machine("m01", 7, rack="r"), machine("m03", 3, rack="r")]
    decision = decide(fleet(machines, [high, gang, low]))
    assert verdict(decision, high).takes.keys() == {"m04"}
    assert verdict(decision, gang).takes.keys() == {"m01", "m03"}
    assert verdict(decision, gang).satisfied
    assert not verdict(decision, low).satisfied


def test_e_a_gang_stays_put_when_others_are_given_back() -> None:
    gang = need("c", 5, 1, same=RACK, group="g")
    machines = [
        machine("m05", 4, "c", rack="r", number=1, own=gang, capacity="BareMetal"),
        machine("m18", 4, "c", rack="r", number=2, own=gang, capacity="BareMetal"),
        machine("m12", 4, "c", rack="r", number=3, capacity="BareMetal"),
        machine("m04", 16, "idle", rack="r", capacity="BareMetal"),
    ]
    for latency in LATENCIES:
        loop = settled(fleet(machines, [gang]), latency)
        assert counted([a for _, a in loop.log]) == {"Reclaim": 1}
        assert "m04" not in bound_to(loop, "c")


def test_f_an_uncoverable_gang_does_not_eat() -> None:
    gang = need("c", 10, 4, priority=2, same=RACK, group="g")
    low = need("c", 2, 4, priority=1)
    loop = settled(fleet([machine(f"m{i}", 4, rack="r") for i in range(9)], [gang, low]))
    decision = decide(loop.world())
    assert counted(loop.acquired()) == {"Provision": 2}
    assert verdict(decision, low).satisfied
    assert verdict(decision, gang).missing_units == 10
    assert not verdict(decision, gang).same_satisfiable


@pytest.mark.parametrize("latency", LATENCIES)
def test_g_a_gang_does_not_flip_domain_while_others_drain_or_buy(latency: object) -> None:
    gang = need("c", 4, 2, priority=2, same=RACK, group="g")
    other = need("c", 2, 4, priority=1)
    rival = need("d", 3, 4, priority=0)
    machines = [
        machine("a1", 4, "c", rack="a", number=1, own=gang),
        machine("a2", 4, rack="a"),
        machine("b1", 4, "c", rack="b", number=2),
        machine("b2", 4, rack="b"),
        machine("b3", 4, "d", rack="b", number=3),
        machine("b4", 4, "d", rack="b", number=4),
    ]
    loop = Loop.of(fleet(machines, [gang, other, rival]), latency)  # type: ignore[arg-type]
    domains = set()
    for _ in range(80):
        domains.add(verdict(loop.step(), gang).domain)
    assert len(domains) == 1
    assert loop.settle()


def test_h_a_gang_preempts_where_it_succeeds() -> None:
    gang = need("p", 3, 4, priority=9, same=RACK, group="g")
    low = need("q", 3, 4, priority=1)
    machines = [machine("m1", 4, "p", rack="z0", number=1, own=gang)]
    machines += [machine(f"q{i}", 4, "q", rack="z1", number=2 + i, own=low) for i in range(3)]
    decision = decide(fleet(machines, [gang, low]))
    assert set(acted(decision, Kind.PREEMPT)) == {"q0", "q1", "q2"}
    assert verdict(decision, gang).domain == ("z1",)
    assert verdict(decision, gang).satisfied


@pytest.mark.parametrize("latency", LATENCIES)
def test_i_one_preempt_serves_two_needs(latency: object) -> None:
    low = need("v", 2, 8, priority=0)
    rows = [need("h", 1, 4, priority=9), need("h", 1, 2, priority=8), low]
    machines = [machine("m1", 8, "v", number=1, own=low), machine("m2", 8, "v", number=2, own=low)]
    loop = settled(fleet(machines, rows), latency)  # type: ignore[arg-type]
    assert counted([a for _, a in loop.log]) == {"Preempt": 1}
    assert len(bound_to(loop, "h")) == 1


def test_i_two_drains_that_end_together_go_to_the_needs_they_were_made_for() -> None:
    small = need("v", 2, 4, priority=0)
    first = need("h", 1, 8, priority=9, kind=("t",))
    second = need("k", 1, 8, priority=8, kind=("t",))
    machines = [machine(f"m{i}", 8, "v", kind="t", number=1 + i, own=small) for i in range(2)]
    loop = settled(fleet(machines, [first, second, small]), fixed(0, 0, 3))
    assert counted(loop.acquired()) == {"Preempt": 2}
    for _, action in loop.log:
        assert action.machine in bound_to(loop, action.cluster)


def test_j_preempt_and_reclaim_in_one_cycle() -> None:
    p = need("p", 1, 4, kind=("t",), priority=1)
    q = need("q", 1, 4, kind=("t",), priority=9)
    machines = [
        machine("m1", 4, "p", kind="t", price=5, number=1, own=p),
        machine("m2", 4, "p", kind="t", price=1, number=2),
        machine("m3", 4, "p", kind="u", price=9, number=3),
    ]
    world = fleet(machines, [p, q], [Cluster("p", excess_since=0)])
    decision = decide(world)
    assert len(acted(decision, Kind.PREEMPT)) == 1
    assert verdict(decision, p).satisfied
    assert acted(decision, Kind.RECLAIM) == ["m3"]
    loop = settled(world)
    assert len(bound_to(loop, "q")) == 1
    assert len(bound_to(loop, "p")) == 1


def test_k_what_is_tested_is_what_goes_this_cycle() -> None:
    """Keep order leaves {m3, m1}. Without both, 3 units fit within both skews; without m3 alone they do not."""
    row = replace(need("c", 3, 4, limit=2), spread=(Spread(ZONE, 1), Spread(TYPE, 1)))
    machines = [
        machine("m1", 16, "c", kind="u", zone="z0", price=5),
        machine("m2", 16, "c", kind="u", zone="z2", price=1),
        machine("m3", 16, "c", kind="t", zone="z2", price=2, number=5, empty=True),
        machine("m0", 16, "c", kind="t", zone="z0", price=1, number=6),
    ]
    world = fleet(machines, [row], [Cluster("c", excess_since=0)])
    picture = phase_two(phase_one(Facts(world)))
    left = emission(picture, world.clusters[0], untaken(keep_credit(picture, "c"), "c"))
    assert [m.id for m in left] == ["m3", "m1"]
    assert leaves_all_covered(picture, "c", left)
    assert not leaves_all_covered(picture, "c", left[:1])
    assert "m3" not in acted(decide(world), Kind.RECLAIM)
    loop = Loop.of(world, fixed(0, 0, 0))
    for _ in range(20):
        loop.step()
        assert short_rows(loop) == []
    assert loop.settle()
    assert not loop.acquired()


@pytest.mark.parametrize("latency", LATENCIES)
def test_l_a_spread_domain_that_returns_changes_nothing(latency: object) -> None:
    p = need("p", 4, 2, spread=1, priority=1)
    q = need("q", 1, 2, kind=("only-z",), priority=5)
    machines = [machine(f"y{i}", 2, zone="y") for i in range(4)]
    machines.append(machine("z0", 2, "q", zone="z", kind="only-z", number=1, own=q))
    loop = settled(fleet(machines, [p, q]), latency)  # type: ignore[arg-type]
    assert counted(loop.acquired()) == {"Provision": 1}
    place = len(loop.log)
    loop.change([p])
    assert loop.settle()
    assert not [a for _, a in loop.log[place:] if a.kind is Kind.RECLAIM and a.cluster == "p"]


def test_m_lower_pinned_demand_protects_and_changes_nothing_above() -> None:
    low = need("c1", 1, 4, priority=0)
    high = need("c2", 1, 4, priority=10)
    pinned = need("c1", 1, 1, priority=-5, interruption=PINNED)
    machines = [machine("m", 8, "c1", number=1, own=low)]
    assert acted(decide(fleet(machines, [low, high])), Kind.PREEMPT) == ["m"]
    assert acted(decide(fleet(machines, [low, high, pinned])), Kind.PREEMPT) == []


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
@pytest.mark.parametrize("gap", [0, 1])
def test_n_what_drains_for_nobody_is_supply(order: tuple[int, ...], gap: int) -> None:
    gib = 1024
    low = need("c0", 1, 5)
    gang = need("c1", 9, 2, memory=8 * gib, same=ZONE, group="g", priority=gap)
    machines = [
        machine("m04", 8, "c0", memory=16 * gib, zone="z", price=2, number=order[0]),
        machine("m05", 32, "c0", memory=64 * gib, zone="z", price=1, number=order[1]),
        machine("m06", 32, "c0", memory=64 * gib, price=32, number=order[2]),
    ]
    world = fleet(machines, [low, gang])
    at_once = settled(world)
    if gap or order[2] == 1:
        assert bound_to(at_once, "c1") == {"m04", "m05"}
        assert bound_to(at_once, "c0") == {"m06"}
    for latency in (fixed(0, 0, 6), fixed(3, 1, 2), fixed(0, 0, 60)):
        late = settled(world, latency)
        assert bound_to(late, "c1") == bound_to(at_once, "c1")
        assert bound_to(late, "c0") == bound_to(at_once, "c0")


def test_o_a_higher_gang_is_not_overtaken_in_phase_two() -> None:
    """The gang's rack holds one machine that a later need of its cluster uses; victims complete it, the later waits."""
    gang = need("c", 2, 4, priority=9, same=RACK, group="g")
    later = need("c", 1, 4, priority=5)
    victim = need("v", 1, 4, priority=1)
    machines = [
        machine("a", 4, "c", rack="r", number=1, own=later),
        machine("b", 4, "v", rack="r", number=2, own=victim),
    ]
    decision = decide(fleet(machines, [gang, later, victim]))
    assert acted(decision, Kind.PREEMPT) == ["b"]
    assert verdict(decision, gang).satisfied
    assert verdict(decision, gang).takes.keys() == {"a", "b"}
    assert not verdict(decision, later).satisfied


@pytest.mark.parametrize("latency", LATENCIES)
def test_p_an_uncoverable_gang_does_not_wander(latency: object) -> None:
    gang = need("c", 9, 4, priority=9, same=RACK, group="g")
    low = need("c", 2, 4, priority=1)
    machines = [machine(f"a{i}", 4, "c", rack="r1", number=1 + i, own=gang) for i in range(2)]
    machines += [machine(f"b{i}", 4, rack="r2") for i in range(3)]
    loop = Loop.of(fleet(machines, [gang, low]), latency)  # type: ignore[arg-type]
    for _ in range(20):
        told = verdict(loop.step(), gang)
        assert told.domain == ("r1",)
        assert told.missing_units == 7
    assert loop.settle()


def test_q_an_equal_does_not_steal() -> None:
    """The gang comes to rely on `a` in phase 2, which served a lower need before; an equal of it may not take `a`."""
    gang = need("c", 2, 4, priority=9, same=RACK, group="g", arrival=1)
    later = need("c", 1, 4, priority=1)
    victim = need("v", 1, 4, priority=1)
    equal = need("e", 1, 4, priority=9, zone=("here",), arrival=2)
    machines = [
        machine("a", 4, "c", rack="r", zone="here", number=1, own=later),
        machine("b", 4, "v", rack="r", zone="there", number=2, own=victim),
    ]
    decision = decide(fleet(machines, [gang, later, victim, equal]))
    assert acted(decision, Kind.PREEMPT) == ["b"]
    assert verdict(decision, gang).satisfied
    assert not verdict(decision, equal).satisfied
    assert not [a for a in decision.actions if a.kind in ACQUIRING and a.cluster == "e"]


def test_states_are_as_the_loop_leaves_them() -> None:
    """A sanity check of the loop itself: one purchase walks Speculative, Creating, Idle, Configuring, Configured."""
    row = need("c", 1, 4)
    loop = Loop.of(fleet([machine("m", 4)], [row]), fixed(1, 1, 1))
    seen = []
    for _ in range(6):
        seen.append(loop.machines["m"].state)
        loop.step()
    assert seen == [
        State.SPECULATIVE,
        State.CREATING,
        State.IDLE,
        State.CONFIGURING,
        State.CONFIGURED,
        State.CONFIGURED,
    ]
