"""Protocol 16: a Node that was seen Ready is believed for good, one that never was is flagged, but not too many are.

Lists of events, and what follows from them; at the end everything at once, against the rule written out naively.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.shard.sessions.node_readiness import (
    DEADLINE_SECONDS,
    Cleared,
    DrainFlagged,
    Effect,
    Flagged,
    Latched,
    NodeReadiness,
)
from bigfleet.shard.sessions.outputs import NodeProgress

ABSENT, NOT_READY, READY = NodeProgress.ABSENT, NodeProgress.NOT_READY, NodeProgress.READY
BAD = pytest.mark.parametrize("word", [ABSENT, NOT_READY])


class World:
    """One cluster with an operator that reports, and as many machines as it is given, none of them empty."""

    def __init__(self, *machines: str, size: int = 20) -> None:
        self.now, self.size = 1000.0, size
        self.empty: set[str] = set()
        self.readiness = NodeReadiness()
        self.readiness.session_opened("c", True, self.now)
        for machine in machines:
            self.bound(machine)

    def bound(self, machine: str, number: int = 1) -> list[Effect]:
        return self.readiness.bound(machine, "c", number, self.now)

    def says(self, word: NodeProgress, *machines: str) -> list[Effect]:
        return [effect for machine in machines for effect in self.readiness.reported(machine, "c", word, self.now)]

    def later(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.readiness.tick(self.now, lambda cluster: self.size, self.empty.__contains__)

    def close(self) -> None:
        self.readiness.session_closed("c", self.now)

    def open(self, reports: bool = True) -> list[Effect]:
        return self.readiness.session_opened("c", reports, self.now)


def flagged_of(effects: Iterable[Effect]) -> list[str]:
    return [effect.machine_id for effect in effects if isinstance(effect, Flagged)]


# The latch


def test_rule_16_a_node_seen_ready_is_latched_and_written_down() -> None:
    world = World("m-1")
    assert world.says(READY, "m-1") == [Latched("m-1", 1)]
    assert world.readiness.latched() == {"m-1": 1}
    assert world.readiness.seen_ready("m-1")
    assert not world.readiness.seen_ready("m-2")


def test_rule_16_the_latch_is_never_withdrawn_by_not_ready() -> None:
    world = World("m-1")
    world.says(READY, "m-1")
    assert world.says(NOT_READY, "m-1") == world.says(READY, "m-1") == []
    assert world.bound("m-1") == world.later(10 * DEADLINE_SECONDS) == []
    assert world.readiness.latched() == {"m-1": 1}


def test_a_node_that_is_there_no_more_is_no_supply_any_more_though_it_was_ready() -> None:
    world = World("m-1")
    world.says(READY, "m-1")
    assert world.says(ABSENT, "m-1") == []
    assert not world.readiness.seen_ready("m-1")
    assert world.bound("m-1") == world.later(DEADLINE_SECONDS - 1) == []
    assert world.later(1) == [Flagged("m-1"), DrainFlagged("m-1", "c")]


def test_a_node_that_comes_back_in_time_is_ready_again() -> None:
    world = World("m-1")
    world.says(READY, "m-1")
    world.says(ABSENT, "m-1")
    world.later(DEADLINE_SECONDS - 1)
    assert world.says(READY, "m-1") == [Latched("m-1", 1)]
    assert world.later(10 * DEADLINE_SECONDS) == []


def test_rule_16_the_latch_is_of_one_binding() -> None:
    world = World("m-1")
    world.says(READY, "m-1")
    assert world.bound("m-1", 2) == []
    assert world.readiness.latched() == {}
    world.says(NOT_READY, "m-1")
    assert flagged_of(world.later(DEADLINE_SECONDS)) == ["m-1"]


def test_rule_16_what_was_latched_is_latched_after_a_restart() -> None:
    before = World("m-1", "m-2")
    before.says(READY, "m-1", "m-2")
    after = World()
    after.readiness.restored(msgspec.json.decode(msgspec.json.encode(dict(before.readiness.latched()))))
    after.bound("m-1")
    after.bound("m-2", 2)
    after.says(NOT_READY, "m-1", "m-2")
    assert flagged_of(after.later(DEADLINE_SECONDS)) == ["m-2"]


def test_a_latch_that_turns_out_to_be_of_no_binding_any_more_is_dropped() -> None:
    world = World()
    world.readiness.restored({"m-1": 1})
    assert world.readiness.unbound("m-1") == []
    assert world.readiness.latched() == {}


# Words that come before the list


def test_rule_16_a_node_that_is_ready_before_its_machine_is_seen_configured_is_latched_then() -> None:
    world = World()
    assert world.says(READY, "m-1") == []
    assert world.readiness.seen_ready("m-1")
    world.says(NOT_READY, "m-1")
    world.open()
    assert world.bound("m-1", 7) == [Latched("m-1", 7)]


def test_rule_16_a_word_before_the_list_counts_from_the_list_on() -> None:
    world = World()
    world.says(ABSENT, "m-1")
    assert not world.readiness.seen_ready("m-1")
    assert world.later(DEADLINE_SECONDS) == world.bound("m-1") == world.later(DEADLINE_SECONDS - 1) == []
    assert flagged_of(world.later(1)) == ["m-1"]


def test_rule_16_a_word_before_the_list_does_not_count_in_another_session() -> None:
    world = World()
    world.says(ABSENT, "m-1")
    world.open()
    world.bound("m-1")
    assert world.later(DEADLINE_SECONDS) == []


@BAD
def test_rule_16_a_word_on_an_earlier_binding_does_not_count_in_the_next(word: NodeProgress) -> None:
    for said in (word, READY):
        world = World()
        world.says(said, "m-1")
        assert world.readiness.unbound("m-1") == world.bound("m-1", 2) == world.later(DEADLINE_SECONDS) == []
        assert not world.readiness.seen_ready("m-1")


# The deadline


@BAD
def test_rule_16_a_node_that_does_not_come_up_in_time_is_flagged(word: NodeProgress) -> None:
    world = World("m-1")
    world.says(word, "m-1")
    assert world.later(DEADLINE_SECONDS - 1) == []
    assert not world.readiness.flagged("m-1")
    assert Flagged("m-1") in world.later(1)
    assert world.readiness.flagged("m-1")
    assert world.later(DEADLINE_SECONDS) == []


def test_rule_16_what_nothing_was_said_of_is_not_flagged() -> None:
    world = World("m-1")
    assert world.later(10 * DEADLINE_SECONDS) == []


def test_rule_16_a_word_that_is_repeated_or_turns_does_not_begin_the_clock_anew() -> None:
    world = World("m-1")
    for word in (ABSENT, NOT_READY, NOT_READY, ABSENT):
        world.says(word, "m-1")
        assert world.bound("m-1") == world.later(DEADLINE_SECONDS / 4 - 1) == []
    assert flagged_of(world.later(4)) == ["m-1"]


def test_rule_16_the_clock_stands_still_without_a_session_and_until_the_operator_speaks_again() -> None:
    world = World("m-1")
    world.says(NOT_READY, "m-1")
    world.later(DEADLINE_SECONDS - 10)
    world.close()
    assert world.later(DEADLINE_SECONDS) == []
    world.open()
    assert world.later(DEADLINE_SECONDS) == []
    world.says(NOT_READY, "m-1")
    assert world.later(9) == []
    assert flagged_of(world.later(1)) == ["m-1"]


def test_rule_16_a_session_that_keeps_dropping_hides_nothing_for_ever() -> None:
    world = World("m-1")
    seen: list[str] = []
    for _ in range(7):
        world.open()
        world.says(ABSENT, "m-1")
        seen += flagged_of(world.later(100.0))
    assert seen == ["m-1"]


def test_rule_16_a_new_binding_begins_its_own_clock() -> None:
    world = World("m-1")
    world.says(NOT_READY, "m-1")
    world.later(DEADLINE_SECONDS - 1)
    world.open()
    world.bound("m-1", 2)
    assert world.later(10) == []
    world.says(NOT_READY, "m-1")
    assert world.later(DEADLINE_SECONDS - 1) == []
    assert flagged_of(world.later(1)) == ["m-1"]


def test_rule_16_an_operator_that_does_not_report_readiness_flags_nothing() -> None:
    world = World("m-1")
    world.open(reports=False)
    world.says(NOT_READY, "m-1")
    assert world.later(10 * DEADLINE_SECONDS) == []
    assert world.says(READY, "m-1") == [Latched("m-1", 1)]


def test_rule_16_when_an_operator_that_reports_gives_way_to_one_that_does_not_the_providers_word_stands() -> None:
    world = World("m-1", "m-2")
    world.says(NOT_READY, "m-1", "m-2")
    world.later(DEADLINE_SECONDS)
    assert world.open(reports=False) == [Cleared("m-1")]
    assert not world.readiness.flagged("m-1")
    world.open()
    world.says(NOT_READY, "m-1", "m-2")
    assert world.later(DEADLINE_SECONDS - 1) == []


# Flags


def test_rule_16_a_flagged_node_that_becomes_ready_is_cleared() -> None:
    world = World("m-1")
    world.says(NOT_READY, "m-1")
    world.later(DEADLINE_SECONDS)
    assert world.says(READY, "m-1") == [Latched("m-1", 1), Cleared("m-1")]
    assert not world.readiness.flagged("m-1")


@pytest.mark.parametrize("how", ["unbound", "bound anew"])
def test_rule_16_a_flag_ends_with_its_binding(how: str) -> None:
    world = World("m-1")
    world.says(NOT_READY, "m-1")
    world.later(DEADLINE_SECONDS)
    ended = world.readiness.unbound("m-1") if how == "unbound" else world.bound("m-1", 2)
    assert ended == [Cleared("m-1")]
    assert world.readiness.unbound("m-1") == world.later(DEADLINE_SECONDS) == []


def test_rule_16_a_flag_outlasts_its_session_and_takes_up_its_place() -> None:
    world = World("m-1", "m-2")
    world.says(NOT_READY, "m-1", "m-2")
    world.later(DEADLINE_SECONDS)
    world.open()
    world.says(NOT_READY, "m-1", "m-2")
    assert world.later(10) == []
    assert world.readiness.flagged("m-1")


@pytest.mark.parametrize(("size", "most"), [(0, 1), (1, 1), (39, 1), (40, 2), (100, 5), (119, 5), (1000, 30)])
def test_rule_16_at_most_a_twentieth_of_a_cluster_is_flagged_and_at_least_one(size: int, most: int) -> None:
    names = [f"m-{i:02}" for i in range(30)]
    world = World(*names, size=size)
    world.says(NOT_READY, *names)
    assert flagged_of(world.later(DEADLINE_SECONDS)) == names[:most]
    assert world.later(DEADLINE_SECONDS) == []


def test_rule_16_who_has_waited_longest_is_next_when_a_place_is_free() -> None:
    world = World("m-1", "m-2", "m-3")
    for name in ("m-3", "m-1", "m-2"):
        world.says(NOT_READY, name)
        world.later(10)
    assert flagged_of(world.later(DEADLINE_SECONDS)) == ["m-3"]
    world.says(READY, "m-3")
    assert flagged_of(world.later(1)) == ["m-1"]
    world.readiness.unbound("m-1")
    assert flagged_of(world.later(1)) == ["m-2"]


def test_rule_16_who_waits_is_not_flagged_while_nobody_vouches_for_it() -> None:
    world = World("m-1", "m-2")
    world.says(NOT_READY, "m-1", "m-2")
    world.later(DEADLINE_SECONDS)
    world.close()
    world.readiness.unbound("m-1")
    assert world.later(1) == world.open() == world.later(1) == []
    world.says(NOT_READY, "m-2")
    assert flagged_of(world.later(0)) == ["m-2"]


def test_rule_16_in_a_cluster_that_shrinks_the_newest_flags_go_and_come_back_first() -> None:
    world = World("m-1", "m-2", "m-3", size=60)
    for name in ("m-1", "m-2", "m-3"):
        world.says(NOT_READY, name)
        world.later(10)
    world.later(DEADLINE_SECONDS)
    world.size = 40
    assert world.later(1) == [Cleared("m-3")]
    world.size = 19
    world.close()
    assert world.later(1) == [Cleared("m-2")]
    world.open()
    world.says(NOT_READY, "m-2")
    world.size = 40
    assert world.later(1) == [Flagged("m-2")]


def test_rule_16_clusters_have_places_of_their_own() -> None:
    world = World("m-1")
    world.readiness.session_opened("d", True, world.now)
    world.readiness.bound("m-2", "d", 1, world.now)
    world.says(NOT_READY, "m-1", "m-2")
    assert flagged_of(world.later(DEADLINE_SECONDS)) == ["m-1", "m-2"]


# Drains


def test_rule_16_a_flagged_machine_is_drained_once_when_it_is_empty() -> None:
    world = World("m-1")
    world.empty = {"m-1"}
    world.says(NOT_READY, "m-1")
    assert world.later(DEADLINE_SECONDS) == [Flagged("m-1"), DrainFlagged("m-1", "c")]
    assert world.later(10) == []


def test_rule_16_a_flagged_machine_that_runs_pods_is_only_reported_until_it_is_empty() -> None:
    world = World("m-1")
    world.says(NOT_READY, "m-1")
    assert world.later(DEADLINE_SECONDS) == [Flagged("m-1")]
    assert world.later(100) == []
    world.empty = {"m-1"}
    assert world.later(10) == [DrainFlagged("m-1", "c")]


def test_rule_16_a_node_that_is_not_there_runs_no_pods_though_no_roll_up_names_it_empty() -> None:
    world = World("m-1")
    world.says(ABSENT, "m-1")
    assert world.later(DEADLINE_SECONDS) == [Flagged("m-1"), DrainFlagged("m-1", "c")]
    world = World("m-1")
    world.says(ABSENT, "m-1")
    world.says(NOT_READY, "m-1")
    assert world.later(DEADLINE_SECONDS) == [Flagged("m-1")]


def test_rule_16_nothing_is_drained_on_the_word_of_an_earlier_session() -> None:
    world = World("m-1")
    world.says(NOT_READY, "m-1")
    world.later(DEADLINE_SECONDS)
    world.close()
    world.empty = {"m-1"}
    assert world.later(10) == world.open() == world.later(10) == []
    world.says(NOT_READY, "m-1")
    assert world.later(10) == [DrainFlagged("m-1", "c")]


def test_rule_16_what_is_flagged_anew_is_drained_anew() -> None:
    world = World("m-1", "m-2", size=40)
    world.says(ABSENT, "m-1", "m-2")
    world.later(DEADLINE_SECONDS)
    world.size = 20
    world.later(1)
    world.size = 40
    assert world.later(1) == [Flagged("m-2"), DrainFlagged("m-2", "c")]


# Laws


@dataclass
class Told:
    """One machine as the rule sees it: what has been said since its binding began."""

    cluster: str
    number: int
    ready: bool = False
    word: NodeProgress | None = None
    counted: float = 0.0
    flagged: bool = False
    drained: bool = False


@dataclass
class Rule:
    """Rule 16, written out over everything that happened, second by second and machine by machine."""

    machines: dict[str, Told] = field(default_factory=dict)
    sessions: dict[str, bool] = field(default_factory=dict)
    early: dict[str, tuple[NodeProgress, set[str]]] = field(default_factory=dict)
    """What was said before the machine was bound, and which clusters have connected since."""

    def passes(self, seconds: float) -> None:
        for told in self.machines.values():
            if told.word is not None and not told.ready:
                told.counted += seconds

    def binds(self, name: str, cluster: str, number: int) -> None:
        assert name not in self.machines or not self.machines[name].flagged, "flagged beyond its binding"
        told = self.machines[name] = Told(cluster, number)
        word, connected = self.early.pop(name, (None, set[str]()))
        told.ready = word is READY
        if self.sessions[cluster] and cluster not in connected:
            told.word = word

    def says(self, name: str, word: NodeProgress) -> None:
        told = self.machines.get(name)
        if told is None:
            if self.early.get(name, (None,))[0] is not READY:
                self.early[name] = word, set()
            return
        told.ready = (told.ready and word is not ABSENT) or word is READY
        if told.ready:
            told.counted = 0.0
        if self.sessions[told.cluster]:
            told.word = word

    def silence(self, cluster: str, reports: bool | None) -> None:
        self.sessions[cluster] = bool(reports)
        if reports is not None:
            for _, connected in self.early.values():
                connected.add(cluster)
        for told in self.machines.values():
            if told.cluster == cluster:
                told.word = None
                if reports is False:
                    assert not told.flagged, "flagged though nobody reports readiness"
                    told.counted = 0.0

    def waiting(self, cluster: str) -> list[float]:
        """For how long those have waited who may be flagged and are not."""
        own = [told for told in self.machines.values() if told.cluster == cluster and not told.flagged]
        late = [told for told in own if told.word is not None and told.counted >= DEADLINE_SECONDS]
        return [told.counted for told in late if not told.ready]

    def check(self, effects: list[Effect]) -> None:
        for effect in effects:
            told = self.machines[effect.machine_id]
            match effect:
                case Flagged():
                    assert not told.flagged, "flagged twice"
                    assert not told.ready, "flagged though it was seen Ready"
                    assert told.word is not None, "flagged on nobody's word of this session"
                    assert self.sessions[told.cluster]
                    assert told.counted >= DEADLINE_SECONDS, "flagged before its time"
                    assert told.counted == max(self.waiting(told.cluster)), "somebody has waited for longer"
                    told.flagged, told.drained = True, False
                case Cleared():
                    assert told.flagged, "cleared though not flagged"
                    told.flagged = False
                case DrainFlagged(_, cluster):
                    assert (told.flagged, told.drained, cluster) == (True, False, told.cluster)
                    assert told.word is not None
                    told.drained = True
                case Latched(_, number):
                    assert (told.ready, number) == (True, told.number)
        assert not any(told.ready and told.flagged for told in self.machines.values()), "flagged though seen Ready"

    def agrees(self, readiness: NodeReadiness, size: int) -> None:
        """After a tick: too many are never flagged, and a place is free only if nobody may take it."""
        for cluster in "cd":
            own = [told for told in self.machines.values() if told.cluster == cluster]
            flagged = [told for told in own if told.flagged]
            most = max(1, size // 20)
            assert len(flagged) <= most, "too many flagged at a time"
            assert len(flagged) == most or not self.waiting(cluster), "a place is free and somebody waits"
        for name, told in self.machines.items():
            assert readiness.flagged(name) == told.flagged
            assert readiness.seen_ready(name) == told.ready
        for name, (word, _) in self.early.items():
            assert readiness.seen_ready(name) == (word is READY)
        ready = {name: told.number for name, told in self.machines.items() if told.ready}
        assert readiness.latched() == ready, "a latch was undone by NotReady, or is of another binding"


NAMES = [f"m-{i}" for i in range(4)]
names, clusters = st.sampled_from(NAMES), st.sampled_from("cd")
steps = st.one_of(
    st.tuples(st.just("bound"), names, clusters, st.integers(1, 2)),
    st.tuples(st.just("said"), names, st.sampled_from([ABSENT, NOT_READY, NOT_READY, READY])),
    st.tuples(st.just("said"), names, st.sampled_from([ABSENT, NOT_READY])),
    st.tuples(st.just("later"), st.sampled_from([1, 300, 600, 900]), st.sampled_from([0, 40, 60]), st.sets(names)),
    st.tuples(st.just("later"), st.sampled_from([1, 300, 600, 900]), st.just(60), st.sets(names)),
    st.tuples(st.sampled_from(["opened", "opened", "closed", "stranger"]), clusters),
    st.tuples(st.just("unbound"), names),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, min_size=20, max_size=60))
def test_rule_16_no_order_of_events_flags_too_many_too_soon_or_what_was_ready(plan: list[Any]) -> None:
    readiness, rule, now, numbers = NodeReadiness(), Rule(), 0.0, 0
    for name in "cd":
        rule.silence(name, True)
        readiness.session_opened(name, True, now)
    for name in NAMES:
        readiness.bound(name, "c", 0, now)
        readiness.reported(name, "c", NOT_READY, now)
        rule.binds(name, "c", 0)
        rule.says(name, NOT_READY)
    for step in plan:
        match step:
            case ("bound", name, cluster, 1):
                # Every binding has a number of its own.
                numbers += 1
                effects = readiness.bound(name, cluster, numbers, now)
                rule.check([effect for effect in effects if isinstance(effect, Cleared)])
                rule.binds(name, cluster, numbers)
                rule.check([effect for effect in effects if not isinstance(effect, Cleared)])
            case ("bound", name, _, _) if name in rule.machines:
                assert readiness.bound(name, rule.machines[name].cluster, rule.machines[name].number, now) == []
            case ("said", name, word):
                rule.says(name, word)
                cluster = rule.machines[name].cluster if name in rule.machines else "c"
                rule.check(readiness.reported(name, cluster, word, now))
            case ("unbound", name):
                rule.check(readiness.unbound(name))
                rule.early.pop(name, None)
                gone = rule.machines.pop(name, None)
                assert gone is None or not gone.flagged, "flagged beyond its binding"
            case ("opened" | "stranger" as how, cluster):
                rule.check(readiness.session_opened(cluster, how == "opened", now))
                rule.silence(cluster, how == "opened")
            case ("closed", cluster):
                readiness.session_closed(cluster, now)
                rule.silence(cluster, None)
            case ("later", seconds, size, empty):
                now += seconds
                rule.passes(seconds)
                rule.check(readiness.tick(now, {"c": size, "d": size}.__getitem__, empty.__contains__))
                rule.agrees(readiness, size)
