"""Demand as a state machine: lists of events, and what follows from them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.engine.records import ClusterRecord, Stakes
from bigfleet.model.demand.need import Daemon, Need, Rollup, UnrequestedNode
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.shard.demand.effects import (
    Acknowledge,
    ClusterChanged,
    EarlyCycle,
    Effect,
    MachinesChanged,
    NodesChanged,
    QuarantineChanged,
    Replace,
)
from bigfleet.shard.demand.table import Demand, ForgetError, KeptDemand

UNIT: Resources = (("cpu", 1000),)
DAY = 24 * 3600.0


def row(cores: int, priority: int = 0, group: str = "") -> Need:
    return Need(Profile(priority=priority), (("cpu", cores * 1000),), UNIT, group)


def rollup(said_at: int, *needs: Need, **fields: Any) -> Rollup:
    return Rollup(cluster_id="c", timestamp_unix_nanos=said_at, needs=needs, **fields)


def connected(*rollups: Rollup) -> Demand:
    """Demand of one cluster that connected at 0 and said these ten seconds apart."""
    demand = Demand(0.0)
    demand.session_opened("c")
    for i, each in enumerate(rollups):
        demand.rolled_up("c", each, (), 10.0 * i)
    return demand


def of(effects: list[Effect], kind: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def ack(effects: list[Effect]) -> Acknowledge:
    (found,) = of(effects, Acknowledge)
    assert isinstance(found, Acknowledge)
    assert bool(found.echo) != bool(found.reason)
    return found


def test_the_same_rows_with_other_owners_change_nothing_but_who_is_named() -> None:
    rows = row(1), row(2, priority=7)
    demand = connected(rollup(1, *rows, owners=(("team/web",), ())))
    assert (demand.owners("c", rows[0].key), demand.owners("c", rows[1].key)) == (("team/web",), ())
    assert demand.rolled_up("c", rollup(2, *rows, owners=(("team/api",),)), (), 10.0) == [Acknowledge("c", "2")]
    assert demand.owners("c", rows[0].key) == ("team/api",)
    demand.rolled_up("c", rollup(3, *rows), (), 20.0)
    assert demand.owners("c", rows[0].key) == ()
    assert demand.owners("nobody", rows[0].key) == ()


def test_a_doubtful_roll_up_is_told_since_the_first_one_and_for_the_last_reason() -> None:
    demand = connected(rollup(1, row(100)))
    demand.rolled_up("c", rollup(2, row(1)), (), 10.0)
    demand.rolled_up("c", rollup(3, row(1)), (), 20.0)
    doubted = demand.doubted("c")
    assert doubted is not None
    assert (doubted.since, "number 2 after 10 s" in doubted.reason) == (10.0, True)
    demand.rolled_up("c", rollup(4, row(100)), (), 30.0)
    assert demand.doubted("c") is None


def record(demand: Demand) -> ClusterRecord:
    return demand.record("c", {})


def kept(demand: Demand, now: float) -> KeptDemand:
    clusters = (demand.kept(cluster, now) for cluster in demand)
    return KeptDemand(demand.next_arrival, tuple(each for each in clusters if each is not None))


class TestAccepting:
    def test_rule_20_a_roll_up_that_became_the_demand_is_echoed(self) -> None:
        demand = connected()
        assert demand.rolled_up("c", rollup(17, row(4)), (), 1.0) == [
            ClusterChanged("c"),
            Replace("c", (row(4),), {row(4).key: 0}),
            Acknowledge("c", "17"),
            EarlyCycle(),
        ]
        assert demand.rollup("c") == rollup(17, row(4))

    def test_rule_20_a_roll_up_that_did_not_become_the_demand_is_not_echoed(self) -> None:
        demand = connected(rollup(1, row(400)))
        effects = demand.rolled_up("c", rollup(2), (), 10.0)
        assert not ack(effects).echo
        assert "cpu from 400 to 0" in ack(effects).reason
        assert not of(effects, Replace)
        assert demand.rollup("c") == rollup(1, row(400))

    def test_an_unchanged_roll_up_is_only_acknowledged(self) -> None:
        rest: dict[str, Any] = {"daemons": (Daemon((), UNIT),), "empty_nodes": ("n",), "partial_demand": True}
        demand = connected(rollup(1, row(4), row(2, 5), **rest))
        assert demand.rolled_up("c", rollup(2, row(4), row(2, 5), **rest), (), 10.0) == [Acknowledge("c", "2")]

    def test_what_stands_beside_the_rows_changes_without_the_rows(self) -> None:
        demand = connected(rollup(1, row(4)))
        daemons = (Daemon((), UNIT),)
        effects = demand.rolled_up("c", rollup(2, row(4), daemons=daemons), (), 10.0)
        assert effects == [ClusterChanged("c"), Acknowledge("c", "2")]
        assert record(demand).daemons == daemons
        effects = demand.rolled_up("c", rollup(3, row(4), daemons=daemons, partial_demand=True), (), 20.0)
        assert effects == [ClusterChanged("c"), MachinesChanged("c"), Acknowledge("c", "3")]
        assert record(demand).partial

    def test_an_empty_first_roll_up_is_a_report(self) -> None:
        demand = connected()
        assert not record(demand).reported
        effects = demand.rolled_up("c", rollup(1), (), 0.0)
        assert of(effects, ClusterChanged)
        assert record(demand).reported
        assert demand.reported("c")

    def test_the_record_carries_what_the_caller_knows(self) -> None:
        demand = connected(rollup(1, row(4)))
        assert demand.record("c", {"f": 9}, excess_since=5, reclaimed_in_window=2) == ClusterRecord(
            id="c", held_out={"f": 9}, excess_since=5, reclaimed_in_window=2
        )


class TestLate:
    def test_an_overtaken_roll_up_does_not_undo_a_newer_one(self) -> None:
        demand = connected(rollup(5, row(4)))
        effects = demand.rolled_up("c", rollup(3, row(9)), (), 1.0)
        assert effects == [Acknowledge("c", "", "roll-up 3 is older than 5, which came before it", is_news=True)]
        assert demand.rollup("c") == rollup(5, row(4))

    def test_that_roll_ups_come_late_is_news_once_a_session(self) -> None:
        demand = connected(rollup(5, row(4)))
        assert ack(demand.rolled_up("c", rollup(3, row(9)), (), 1.0)).is_news
        assert not ack(demand.rolled_up("c", rollup(6, row(4)), (), 2.0)).is_news
        assert not ack(demand.rolled_up("c", rollup(4, row(9)), (), 3.0)).is_news
        demand.session_opened("c")
        demand.rolled_up("c", rollup(8, row(4)), (), 4.0)
        assert ack(demand.rolled_up("c", rollup(7, row(9)), (), 5.0)).is_news

    def test_a_doubled_roll_up_changes_nothing(self) -> None:
        demand = connected(rollup(5, row(4)))
        assert demand.rolled_up("c", rollup(5, row(4)), (), 0.1) == [Acknowledge("c", "5")]

    def test_a_cluster_whose_clock_went_back_is_heard_again(self) -> None:
        demand = connected(rollup(500, row(4)))
        echoes = [ack(demand.rolled_up("c", rollup(i, row(9)), (), 10.0 * i)).echo for i in range(1, 6)]
        assert echoes == ["", "", "3", "4", "5"]
        assert demand.rollup("c") == rollup(5, row(9))

    def test_an_operator_that_fills_in_no_timestamp_is_heard(self) -> None:
        demand = connected(rollup(0, row(4)), rollup(0, row(5)), rollup(0, row(6)))
        assert demand.rollup("c") == rollup(0, row(6))

    def test_an_overtaken_roll_up_does_not_break_a_row_of_doubtful_ones(self) -> None:
        demand = connected(rollup(1, row(400)))
        assert ack(demand.rolled_up("c", rollup(3), (), 10.0)).reason
        assert ack(demand.rolled_up("c", rollup(2, row(400)), (), 11.0)).reason
        assert ack(demand.rolled_up("c", rollup(4), (), 40.0)).reason
        assert ack(demand.rolled_up("c", rollup(5), (), 70.0)).echo == "5"

    def test_a_new_session_is_not_measured_by_the_clock_of_the_old(self) -> None:
        demand = connected(rollup(500, row(4)))
        demand.session_opened("c")
        assert ack(demand.rolled_up("c", rollup(1, row(5)), (), 1.0)).echo == "1"


class TestRule11:
    def test_rule_11_demand_outlives_its_session_by_sixty_seconds_and_no_more(self) -> None:
        demand = connected(rollup(1, row(4)))
        demand.session_closed("c", 100.0)
        assert demand.tick(159.9) == []
        assert record(demand).live
        assert demand.tick(160.0) == [ClusterChanged("c")]
        assert not record(demand).live
        assert record(demand).reported
        assert demand.rollup("c") == rollup(1, row(4))
        assert demand.tick(161.0) == []

    def test_rule_11_a_session_in_time_keeps_it_live_and_a_later_one_revives_it(self) -> None:
        demand = connected(rollup(1, row(4)))
        demand.session_closed("c", 100.0)
        assert ClusterChanged("c") not in demand.session_opened("c")
        assert demand.tick(1000.0) == []
        demand.session_closed("c", 1000.0)
        demand.tick(1060.0)
        assert ClusterChanged("c") in demand.session_opened("c")
        assert record(demand).live

    def test_rule_11_after_a_restart_nothing_is_live_before_a_session(self) -> None:
        demand = Demand(0.0)
        assert demand.met("c") == [ClusterChanged("c"), MachinesChanged("c")]
        assert demand.met("c") == []
        assert not record(demand).live
        assert not record(demand).reported

    def test_rule_11_forgetting_withdraws_demand_and_lets_the_machines_go(self) -> None:
        node = UnrequestedNode("m", 7, PenaltyBucket.ZERO, PenaltyBucket.ZERO)
        demand = connected(rollup(1, row(4), empty_nodes=("n",), unrequested_nodes=(node,), partial_demand=True))
        demand.session_closed("c", 100.0)
        demand.tick(200.0)
        assert demand.forget("c") == [
            ClusterChanged("c"),
            MachinesChanged("c"),
            Replace("c", (), {}),
            EarlyCycle(),
        ]
        assert record(demand) == ClusterRecord(id="c", reported=True, live=True, partial=False)
        assert not demand.protects("c", "m")
        assert demand.node("c", "m") == (False, None)
        assert demand.tick(10_000.0) == []
        assert demand.silent(10 * DAY) == []
        demand.unbound("c")
        assert list(demand) == []

    def test_rule_11_a_forgotten_cluster_stays_forgotten_through_a_restart(self) -> None:
        demand = Demand(0.0)
        demand.met("c")
        demand.forget("c")
        again = Demand(0.0, kept(demand, 0.0))
        assert record(again) == record(demand)
        assert not again.protects("c", "m")

    def test_a_forgotten_cluster_that_connects_is_a_new_one(self) -> None:
        demand = connected(rollup(1, row(400)))
        demand.session_closed("c", 100.0)
        demand.forget("c")
        assert ClusterChanged("c") in demand.session_opened("c")
        assert not record(demand).reported
        assert ack(demand.rolled_up("c", rollup(1, row(1)), (), 101.0)).echo == "1"
        demand.unbound("c")
        assert demand.has_session("c")

    def test_a_cluster_with_a_session_or_unknown_is_not_forgotten(self) -> None:
        with pytest.raises(ForgetError, match="'c': has a session"):
            connected().forget("c")
        with pytest.raises(ForgetError, match="'x': is not known here"):
            connected().forget("x")

    def test_rule_11_clusters_silent_for_a_day_are_named_restarts_included(self) -> None:
        demand = connected()
        demand.session_closed("c", 100.0)
        assert demand.silent(100.0 + DAY - 1) == []
        assert demand.silent(100.0 + DAY) == ["c"]
        again = Demand(5.0, kept(demand, 100.0 + DAY / 2))
        assert again.silent(4.0 + DAY / 2) == []
        assert again.silent(5.0 + DAY / 2) == ["c"]
        again.session_opened("c")
        assert again.silent(DAY * 9) == []
        again.session_closed("c", DAY * 9)
        assert again.silent(DAY * 9 + DAY / 2) == []


class TestRule12:
    def test_rule_12_a_cluster_away_for_less_than_five_minutes_is_spared(self) -> None:
        demand = connected()
        assert not demand.protects("c", "m")
        assert demand.session_closed("c", 100.0) == [MachinesChanged("c")]
        assert demand.protects("c", "m")
        assert of(demand.tick(399.9), MachinesChanged) == []
        assert demand.tick(400.0) == [MachinesChanged("c")]
        assert not demand.protects("c", "m")
        assert demand.away_seconds("c", 400.0) == 300.0

    def test_rule_12_one_that_never_had_a_session_is_away_from_the_start_on(self) -> None:
        demand = Demand(1000.0)
        assert demand.protects("x", "m")
        assert demand.away_seconds("x", 1010.0) == 10.0
        demand.met("c")
        assert demand.tick(1299.0) == []
        assert demand.tick(1300.0) == [MachinesChanged("c")]

    def test_rule_12_what_was_silent_before_a_restart_is_spared_anew(self) -> None:
        demand = connected()
        demand.session_closed("c", 100.0)
        again = Demand(0.0, kept(demand, 100_000.0))
        assert again.protects("c", "m")
        assert again.away_seconds("c", 7.0) == 7.0

    def test_a_session_ends_the_sparing(self) -> None:
        demand = connected()
        demand.session_closed("c", 100.0)
        assert MachinesChanged("c") in demand.session_opened("c")
        assert demand.away_seconds("c", 200.0) == 0.0
        assert demand.tick(1000.0) == []


class TestRule13:
    def test_rule_13_nodes_with_pods_that_no_request_speaks_for_carry_the_highest_stakes(self) -> None:
        zero, four = PenaltyBucket.ZERO, PenaltyBucket.P_4
        nodes = (UnrequestedNode("m", 5, zero, four), UnrequestedNode("m", 9, four, zero))
        demand = connected()
        effects = demand.rolled_up("c", rollup(1, unrequested_nodes=nodes, empty_nodes=("n",)), (), 0.0)
        assert of(effects, NodesChanged) == [NodesChanged("c", frozenset({"m", "n"}))]
        assert demand.node("c", "m") == (False, Stakes(9, four, four))
        assert demand.node("c", "n") == (True, None)
        assert demand.node("x", "n") == (False, None)

    def test_only_nodes_of_which_something_else_is_said_are_named(self) -> None:
        zero = PenaltyBucket.ZERO
        stay, rise = UnrequestedNode("stay", 1, zero, zero), UnrequestedNode("rise", 1, zero, zero)
        gone = UnrequestedNode("gone", 1, zero, zero)
        demand = connected(rollup(1, empty_nodes=("a", "b"), unrequested_nodes=(stay, rise, gone)))
        risen = msgspec.structs.replace(rise, priority=2)
        after = rollup(2, empty_nodes=("b", "d"), unrequested_nodes=(risen, stay))
        assert demand.rolled_up("c", after, (), 10.0) == [
            NodesChanged("c", frozenset({"a", "d", "rise", "gone"})),
            Acknowledge("c", "2"),
        ]

    def test_rule_13_in_a_partial_cluster_a_node_of_which_nothing_is_said_is_no_victim(self) -> None:
        named = UnrequestedNode("named", 1, PenaltyBucket.ZERO, PenaltyBucket.ZERO)
        said: dict[str, Any] = {"empty_nodes": ("empty",), "unrequested_nodes": (named,)}
        demand = connected(rollup(1, **said))
        nodes = ("empty", "named", "full")
        assert [demand.protects("c", node) for node in nodes] == [False, False, False]
        assert MachinesChanged("c") in demand.rolled_up("c", rollup(2, partial_demand=True, **said), (), 10.0)
        assert [demand.protects("c", node) for node in nodes] == [False, False, True]
        again = Demand(0.0, kept(demand, 0.0))
        again.tick(1000.0)
        assert [again.protects("c", node) for node in nodes] == [True, True, True]
        assert record(again).partial

    def test_rule_12_the_nodes_of_a_cluster_that_is_spared_are_no_victims(self) -> None:
        demand = connected(rollup(1, empty_nodes=("n",)))
        demand.session_closed("c", 10.0)
        assert demand.protects("c", "n")
        assert demand.protects("x", "n")


class TestRule17:
    def test_rule_17_after_a_restart_a_roll_up_is_measured_by_what_is_bound(self) -> None:
        demand = connected()
        bound: Resources = (("cpu", 100_000),)
        for now in (0.0, 30.0):
            effects = demand.rolled_up("c", rollup(int(now) + 1, row(1)), bound, now)
            assert "of what is bound" in ack(effects).reason
            assert not record(demand).reported
        assert ack(demand.rolled_up("c", rollup(99, row(1)), bound, 60.0)).echo == "99"
        assert ack(demand.rolled_up("c", rollup(100, row(2)), bound, 70.0)).echo == "100"

    def test_rule_17_quarantine_begins_and_ends_once(self) -> None:
        demand = connected(rollup(1, row(400)))
        seen = [
            of(demand.rolled_up("c", rollup(2 + i, *needs), (), 10.0 + 10 * i), QuarantineChanged)
            for i, needs in enumerate([(), (), (row(400),), (), (row(401),)])
        ]
        on, off = [QuarantineChanged("c", True)], [QuarantineChanged("c", False)]
        assert seen == [on, [], off, on, off]

    @pytest.mark.parametrize("how", ["replaced", "lost"])
    def test_rule_17_sessions_do_not_confirm_each_other(self, how: str) -> None:
        demand = connected(rollup(1, row(400)))
        for i in range(1, 6):
            assert ack(demand.rolled_up("c", rollup(1 + i), (), 60.0 * i)).reason
            effects = demand.session_closed("c", 60.0 * i + 1) if how == "lost" else []
            effects += demand.session_opened("c")
            assert of(effects, QuarantineChanged) == [QuarantineChanged("c", False)]

    def test_rule_17_the_streak_needs_the_roll_ups_and_the_time(self) -> None:
        demand = connected(rollup(1, row(400)))
        acks = [ack(demand.rolled_up("c", rollup(2 + i), (), 10.0 * i)).echo for i in range(1, 8)]
        assert acks == ["", "", "", "", "", "", "9"]
        assert demand.rollup("c") == rollup(9)


class TestRule19:
    def test_rule_19_a_row_keeps_its_arrival_through_replacements(self) -> None:
        demand = connected(rollup(1, row(4), row(2, 5)))
        (replace,) = of(demand.rolled_up("c", rollup(2, row(6), row(1, 9), row(1, 8)), (), 10.0), Replace)
        assert replace.arrivals == {row(6).key: 0, row(1, 9).key: 1, row(1, 8).key: 1}
        (replace,) = of(demand.rolled_up("c", rollup(3, row(2, 5), row(6)), (), 20.0), Replace)
        assert replace.arrivals == {row(6).key: 0, row(2, 5).key: 2}

    def test_rule_19_arrivals_count_per_shard_and_not_by_any_clock(self) -> None:
        demand = Demand(0.0)
        seen = []
        for name in "ab":
            demand.session_opened(name)
            (replace,) = of(demand.rolled_up(name, rollup(99, row(1)), (), 5.0), Replace)
            seen.append(replace.arrivals[row(1).key])
        assert seen == [0, 1]

    def test_rule_19_arrivals_survive_a_restart_through_a_file(self) -> None:
        demand = connected(rollup(1, row(4)), rollup(2, row(4), row(2, 5)))
        data = msgspec.json.encode(kept(demand, 50.0))
        again = Demand(0.0, msgspec.json.decode(data, type=KeptDemand))
        assert list(again) == ["c"]
        again.session_opened("c")
        (replace,) = of(again.rolled_up("c", rollup(1, row(1, 7), row(2, 5), row(4)), (), 0.0), Replace)
        assert replace.arrivals == {row(4).key: 0, row(2, 5).key: 1, row(1, 7).key: 2}

    def test_a_roll_up_without_a_new_row_uses_up_no_arrival(self) -> None:
        demand = connected(rollup(1, row(4), row(2, 5)), rollup(2, row(4)))
        assert kept(demand, 0.0).next_arrival == 1


amounts = st.sampled_from([(), (row(1),), (row(400),), (row(399), row(1, 3)), (row(41), row(2, 3)), (row(39),)])
events = st.one_of(
    st.tuples(st.just("rollup"), amounts, st.integers(-2, 3)),
    st.sampled_from([("close",), ("open",), ("open",)]),
)


@settings(max_examples=300)
@given(st.lists(st.tuples(events, st.floats(0.1, 45)), max_size=40))
def test_rule_17_demand_is_what_was_sent_and_never_suddenly_next_to_nothing(plan: list[Any]) -> None:
    demand, now, closed, stamp = Demand(0.0), 0.0, 0.0, 1000
    demand.session_opened("c")
    open_, sent, asked = True, list[Rollup](), 0
    streak: list[tuple[int, float]] = []
    for event, gap in plan:
        now += gap
        before = demand.rollup("c")
        match event:
            case ("rollup", needs, step) if open_:
                stamp += step
                said = rollup(stamp, *needs)
                sent.append(said)
                effects = demand.rolled_up("c", said, (), now)
                accepted = demand.rollup("c")
                total = sum(need.aggregate[0][1] for need in needs)
                if "older than" in ack(effects).reason:
                    assert accepted == before
                    continue
                small = total * 10 < asked
                streak = [*streak, (stamp, now)] if small else []
                if ack(effects).echo:
                    assert ack(effects).echo == str(stamp)
                    assert accepted == said
                    assert not small or (len(streak) >= 3 and now - streak[0][1] >= 60)
                    asked, streak = total, []
                else:
                    assert small
                    assert accepted == before
            case ("close",) if open_:
                demand.session_closed("c", now)
                open_, closed, streak = False, now, []
            case ("open",):
                demand.session_opened("c")
                open_, streak = True, []
        demand.tick(now)
        assert demand.rollup("c") is None or demand.rollup("c") in sent
        assert record(demand).live == (open_ or now - closed < 60)
