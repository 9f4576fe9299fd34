"""Needs in words: every sentence that a person may be told, as it is told."""
# ruff: noqa: E501 - what is printed stands here as it is printed

import io
from typing import Any

import pytest
from rich.console import Console

from bigfleet.cli.ctl.need_words import (
    Explanation,
    asks,
    explain,
    has,
    inspected_need,
    missing,
    on_their_way,
    span,
    unmet_for,
)
from bigfleet.cli.ctl.shard_client import InspectedNeeds, ShardState
from bigfleet.cli.ctl.shard_tables import show_clusters, show_needs, why_no_needs
from bigfleet.cli.wording import conditions
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Operator, Profile, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.resources import quantities
from bigfleet.wire.needs import need_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2
from bigfleet.wire.v1alpha1 import shardread_pb2 as pb
from bigfleet.wire.v1alpha1.shardadmin_pb2 import ClusterStanding, GetStatusResponse

ZONE = "topology.kubernetes.io/zone"
UNIT = (("cpu", 4_000), ("memory", 16 << 20))

IN_A_ZONE = Requirement(ZONE, Operator.IN, ("eu-9",))
ONE_RACK = Requirement("example.com/rack", Operator.SAME)
EVENLY = Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
RATHER = Spread("example.com/rack", 2, WhenUnsatisfiable.SCHEDULE_ANYWAY)


def need(priority: int, *requirements: Requirement, units: int = 64, group: str = "", **profile: Any) -> Need:
    asked = tuple((name, amount * units) for name, amount in UNIT)
    return Need(Profile(priority=priority, requirements=requirements, **profile), asked, UNIT, group)


GANG = need(100, ONE_RACK, group="train")
STARVED = need(1000, IN_A_ZONE)
DIVISIBLE = Need(Profile(priority=7), (("cpu", 8_000),), ())


def short(of: Need, units: int = 24, **fields: Any) -> pb.NeedView:
    """The need as a shard tells of it when so many units are missing."""
    said: dict[str, Any] = {"same_satisfiable": True, "unmet_reason": pb.UNMET_REASON_PRIORITY_STARVED}
    residual = quantities(tuple((name, amount * units) for name, amount in of.unit) or (("cpu", 2_000),))
    deficit = provider_pb2.Resources(resources=residual)
    return pb.NeedView(need=need_to_wire(of), cluster_id="shop", residual_deficit=deficit, **said | fields)


HEADER = pb.InspectNeedsHeader(computed_at_unix_nanos=1_000 * 10**9, cycle_interval_millis=2500)

# What a shard of ours says stands as it was sent; the next step is worked out here.
NEXT_STEPS = {
    "OPERATOR_AWAY": (
        STARVED,
        "Bring its operator back, or see why it cannot reach this shard; if the cluster is gone for good, `bigfleetctl clusters forget 'shop; true' --yes` gives its machines back.",
    ),
    "FALL_DOUBTED": (
        STARVED,
        "Wait: the shard believes the fall after three such roll-ups over a minute. If the fall is not meant, see why the operator reports so little.",
    ),
    "BOOTSTRAP_FAILED": (
        STARVED,
        "Mend what the operator's log says about the bootstrap; the shard tries again by itself.",
    ),
    "NO_MATCH": (STARVED, "Check its requirements for a label or a value that no machine has, or add such machines."),
    "TOO_LARGE": (
        STARVED,
        "Ask for smaller pods, or add larger machines with topology.kubernetes.io/zone eu-9.",
    ),
    "TOO_FEW": (DIVISIBLE, "Add machines of any kind, or ask for less."),
    "DOMAIN_TOO_SMALL": (
        GANG,
        "Make the gang smaller, let it share something wider than one rack, or add machines to one rack.",
    ),
    "SKEW": (
        need(5, spread=(EVENLY, RATHER)),
        "Add machines in the emptiest zone, raise maxSkew, or make the spread ScheduleAnyway.",
    ),
    "PAUSED": (STARVED, "See `bigfleetctl status`; `bigfleetctl resume` ends a pause."),
    "FILE_UNWRITABLE": (
        STARVED,
        "Make room on the shard's disk, or mend the permissions of its data directory.",
    ),
    "PROVIDER_UNREACHABLE": (
        STARVED,
        "Bring the provider back; `bigfleetctl status` shows when it was last listed.",
    ),
    "OUT_OF_STOCK": (STARVED, "Wait, or let its requirements allow other instance types or zones."),
    "MACHINES_FAILED": (STARVED, "See at the provider why they fail; the shard tries again by itself."),
    "MACHINES_ON_THEIR_WAY": (
        STARVED,
        "Wait; `kubectl get upcomingnodes` in the cluster shows how far each one is.",
    ),
    "PREEMPTION_EXHAUSTED": (
        STARVED,
        "Wait for those to drain, which may take 10 min, and add machines with topology.kubernetes.io/zone eu-9 for the rest.",
    ),
    "OUTRANKED": (GANG, "Raise its priority above 100, or add machines of any kind."),
}


@pytest.mark.parametrize("cause", NEXT_STEPS)
def test_a_cause_is_told_as_the_shard_says_it_with_a_next_step(cause: str) -> None:
    of, after = NEXT_STEPS[cause]
    view = short(of, cause=pb.NeedCause.Value(f"NEED_CAUSE_{cause}"), cause_text="It is so.")
    view.cluster_id = "shop; true"
    assert explain(inspected_need(view), HEADER) == Explanation("It is so.", after)
    view.cause_since_unix_nanos = 630 * 10**9
    assert explain(inspected_need(view), HEADER).why == "It is so. This has been so for 6 min 10 s."


def test_every_cause_has_a_next_step() -> None:
    assert {f"NEED_CAUSE_{cause}" for cause in NEXT_STEPS} | {"NEED_CAUSE_UNSPECIFIED"} == set(pb.NeedCause.keys())
    newer = short(STARVED, cause=77, cause_text="Something new.")
    assert explain(inspected_need(newer), HEADER) == Explanation("Something new.", "Look at the shard's log.")


STRANGERS = {
    "nothing matches": (
        STARVED,
        pb.UNMET_REASON_NO_MATCHING_SUPPLY,
        "The shard has too few machines with topology.kubernetes.io/zone eu-9 for it, or none.",
        "Add machines with topology.kubernetes.io/zone eu-9, or ask for less.",
    ),
    "the skew forbids it": (
        need(5, spread=(EVENLY, RATHER)),
        pb.UNMET_REASON_TOPOLOGY_UNSATISFIABLE,
        "Machines match, but the skew forbids to use them.",
        "Add machines in the emptiest zone, raise maxSkew, or make the spread ScheduleAnyway.",
    ),
    "a gang has no place": (
        GANG,
        pb.UNMET_REASON_TOPOLOGY_UNSATISFIABLE,
        "Machines match, but no one domain holds the gang.",
        "Make the gang smaller, let it share something wider than one rack, or add machines to one rack.",
    ),
    "it is outranked": (
        GANG,
        pb.UNMET_REASON_PRIORITY_STARVED,
        "Other needs have the machines that match.",
        "Raise its priority above 100, or add machines of any kind.",
    ),
    "victims are not enough": (
        need(5),
        pb.UNMET_REASON_PREEMPTION_EXHAUSTED,
        "It takes every machine of lower needs that it may, and that is not enough.",
        "Wait for those to drain, which may take 10 min, and add machines of any kind for the rest.",
    ),
    "no reason is given": (need(5), 0, "The shard gives no reason.", "Look at the shard's log."),
    "the reason is a new one": (need(5), 77, "The shard gives no reason.", "Look at the shard's log."),
}


@pytest.mark.parametrize(("of", "reason", "why", "after"), STRANGERS.values(), ids=STRANGERS)
def test_of_a_stranger_s_shard_that_names_no_cause_the_reason_is_told(
    of: Need, reason: Any, why: str, after: str
) -> None:
    assert explain(inspected_need(short(of, unmet_reason=reason)), HEADER) == Explanation(why, after)


@pytest.mark.parametrize(
    ("of", "asked", "wanted"),
    [
        (need(1, units=1), "1 unit of cpu 4, memory 16Gi", "anything"),
        (need(1, units=1_234), "1,234 units of cpu 4, memory 16Gi", "anything"),
        (DIVISIBLE, "cpu 8, cut anywhere", "anything"),
        (
            need(1, Requirement("a/gpu", Operator.DOES_NOT_EXIST), Requirement("a/rack", Operator.SAME, ("r1", "r2"))),
            "64 units of cpu 4, memory 16Gi",
            "no gpu, all in one rack of r1|r2",
        ),
        (
            need(1, spread=(EVENLY, RATHER), max_per_machine=1),
            "64 units of cpu 4, memory 16Gi",
            "rather spread ≤ 2 over rack, spread ≤ 1 over zone, at most 1 a machine",
        ),
    ],
)
def test_what_a_need_asks_is_said_in_short_words(of: Need, asked: str, wanted: str) -> None:
    assert (asks(of), conditions(of)) == (asked, wanted)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (short(STARVED, claimed_machine_count=5), ("40 of 64 on 5 machines", "24 units: cpu 96, memory 384Gi", "-")),
        (
            short(STARVED, 1, claimed_machine_count=3, bootstrap_count=1, provision_count=1),
            ("63 of 64 on 3 machines, 2 new", "1 unit: cpu 4, memory 16Gi", "1 idle, 1 to be created"),
        ),
        (short(STARVED, 64), ("0 of 64", "64 units: cpu 256, memory 1Ti", "-")),
        (short(DIVISIBLE, claimed_machine_count=1), ("some on 1 machine", "cpu 2", "-")),
        (short(DIVISIBLE), ("nothing", "cpu 2", "-")),
        (pb.NeedView(need=need_to_wire(GANG), satisfied=True, claimed_machine_count=1), ("all on 1 machine", "-", "-")),
        (pb.NeedView(need=need_to_wire(GANG), satisfied=True), ("all", "-", "-")),
    ],
)
def test_what_a_need_has_and_lacks_is_counted_in_its_units(view: pb.NeedView, words: tuple[str, str, str]) -> None:
    each = inspected_need(view)
    assert (has(each), missing(each), on_their_way(view)) == words


@pytest.mark.parametrize(
    ("cycles", "millis", "text"),
    [
        (1, 10_000, "1 cycle (up to 10 s at 10 s each)"),
        (360, 2_500, "360 cycles (up to 15 min at 2.5 s each)"),
        (7, 0, "7 cycles"),
    ],
)
def test_how_long_a_need_has_been_unmet_is_told_in_the_shard_s_own_cycles(cycles: int, millis: int, text: str) -> None:
    header = pb.InspectNeedsHeader(cycle_interval_millis=millis)
    assert unmet_for(short(STARVED, age_cycles_unmet=cycles), header) == text
    assert unmet_for(pb.NeedView(satisfied=True), header) == "-"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (370, "6 min 10 s"), (3_605, "1 h"), (90_061, "1 d 1 h")],
)
def test_a_length_of_time_is_told_in_its_two_largest_units(seconds: int, text: str) -> None:
    assert span(seconds) == text


SHOP = ClusterStanding(cluster_id="shop", connected=True, live=True, reported=True)


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        (SHOP, "cluster shop asks for nothing"),
        (
            ClusterStanding(reported=True, needs=3),
            "the shard has yet to decide on the 3 needs of cluster shop; ask again soon",
        ),
        (ClusterStanding(forgotten=True, machines=1), "cluster shop was forgotten and still has 1 machine"),
        (
            ClusterStanding(connected=True),
            "cluster shop has sent no roll-up since this shard started; its operator is connected",
        ),
        (
            ClusterStanding(seconds_away=90),
            "cluster shop has sent no roll-up since this shard started; its operator has had no session for 1 min 30 s",
        ),
    ],
)
def test_why_a_cluster_has_no_needs_here_is_told(cluster: ClusterStanding, sentence: str) -> None:
    assert why_no_needs(ShardState(GetStatusResponse(), {"shop": cluster}), "shop") == sentence


def test_a_cluster_that_is_not_known_is_told_apart_from_one_that_a_stranger_s_shard_does_not_tell_of() -> None:
    assert why_no_needs(ShardState(GetStatusResponse(), {"shop": SHOP}), "shpo") == ""
    assert why_no_needs(None, "bank") == "cluster bank has not reported to this shard, or asks for nothing"


def test_on_a_terminal_needs_are_a_table() -> None:
    needs = [inspected_need(short(STARVED, claimed_machine_count=5)), inspected_need(short(GANG))]
    header = pb.InspectNeedsHeader(cycle=412, computed_at_unix_nanos=1_700_000_000 * 10**9, total_needs=2)
    screen = io.StringIO()
    terminal = Console(file=screen, width=100, force_terminal=True, color_system=None, markup=False)
    show_needs(InspectedNeeds(header, needs, None), "shop", 0, terminal, unmet=False, wide=False)
    lines = screen.getvalue().splitlines()
    assert lines[1].startswith("┏━━━┳")
    assert all(len(line) <= 100 for line in lines)
    assert any(line.startswith("│ 1 │     1000 │ 64 units of") for line in lines)
    assert any(line.startswith("   Next: Raise its priority above 1000") for line in lines)


def test_a_shard_without_clusters_says_so() -> None:
    screen = io.StringIO()
    show_clusters([], Console(file=screen))
    assert screen.getvalue() == "no cluster has reported to this shard\n"
