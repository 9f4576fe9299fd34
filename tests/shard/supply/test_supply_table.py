"""What supply believes of late, doubled, lost and false messages; protocol.md's rules are replayed by their numbers."""

from collections.abc import Iterable

import msgspec
import pytest

from bigfleet.engine.records import Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.provider.records import Answer, Listing, Refusal
from bigfleet.shard.supply.known import Changed, Doubt, Effect, Incident, IncidentKind, UnaskedDrain
from bigfleet.shard.supply.stamps import Binding, to_metadata
from bigfleet.shard.supply.table import NODE_NAME, Supply

S = MachineState
HOSTLESS = frozenset({S.SPECULATIVE, S.CREATING})
BOUND = frozenset({S.CONFIGURING, S.CONFIGURED, S.DRAINING})
P, Q = "sim", "metal"


def machine(machine_id: str = "m-1", state: MachineState = S.IDLE, **fields: object) -> Machine:
    settings: dict[str, object] = {
        "id": machine_id,
        "state": state,
        "instance_type": "c8",
        "capacity_type": CapacityType.ON_DEMAND,
        "host": None if state in HOSTLESS else Host("sim", f"i-{machine_id}"),
        "cluster": "prod" if state in BOUND else "",
        "last_error": "boom" if state is S.FAILED else "",
        "price_per_hour": 1.0,
    }
    return Machine(**{**settings, **fields})  # type: ignore[arg-type]


def many(count: int, state: MachineState = S.IDLE) -> list[Machine]:
    return [machine(f"m-{i:02d}", state) for i in range(count)]


def listing(
    *machines: Machine, began: float, full: bool = True, refused: tuple[Refusal, ...] = (), cursor: bytes = b""
) -> Listing:
    return Listing({m.id: m for m in machines}, refused, cursor, full, began)


def full(supply: Supply, *machines: Machine, at: float, provider: str = P) -> list[Effect]:
    """A full list that takes no time."""
    return supply.listed(provider, listing(*machines, began=at), at)


def delta(supply: Supply, *machines: Machine, at: float, provider: str = P) -> list[Effect]:
    return supply.listed(provider, listing(*machines, began=at, full=False), at)


def known(*machines: Machine, provider: str = P) -> Supply:
    """A supply that was shown these at time 0."""
    supply = Supply("eu-1")
    full(supply, *machines, at=0, provider=provider)
    return supply


def spoiled(row: Machine, *fields: str) -> Refusal:
    fields = fields or ("price_per_hour",)
    rest = msgspec.structs.replace(row, **dict.fromkeys(fields, 0.0))
    return Refusal(row.id, "price", fields[0], "is no price", rest, fields)


def stamped(shard_id: str = "eu-1", epoch: int = 5) -> dict[str, str]:
    stamp = Stamp(NeedKey("f", "", (("cpu", 1000),)), 0, PenaltyBucket.ZERO, PenaltyBucket.ZERO, 1)
    return to_metadata(Binding(stamp, shard_id, epoch, 1))


def doubted(effects: Iterable[Effect]) -> list[str]:
    return [effect.machine_id for effect in effects if isinstance(effect, Doubt)]


def removed(effects: Iterable[Effect]) -> list[str]:
    return [effect.machine_id for effect in effects if isinstance(effect, Changed) and effect.after is None]


def incidents(effects: Iterable[Effect]) -> list[IncidentKind]:
    return [effect.kind for effect in effects if isinstance(effect, Incident)]


# What is simply so


def test_the_first_list_makes_every_machine_known_and_the_same_again_is_no_news() -> None:
    supply = Supply("eu-1")
    rows = [machine("a"), machine("b", S.SPECULATIVE)]
    assert full(supply, *rows, at=0) == [Changed(row.id, None, row, P) for row in rows]
    again = [msgspec.structs.replace(row) for row in rows]
    assert full(supply, *again, at=1) == delta(supply, *again, at=2) == []
    assert list(supply.machines()) == list(supply.machines_of(P)) == rows
    # The object that is known stays: half a million equal ones would be thrown away at every list.
    assert supply.find("a") is rows[0]


def test_a_change_says_what_the_machine_was_and_is() -> None:
    supply = known(machine())
    after = machine(state=S.DELETING)
    assert delta(supply, after, at=1) == [Changed("m-1", machine(), after, P)]
    assert supply.find("m-1") == after


def test_machines_are_counted_by_provider_state_and_type() -> None:
    supply = known(machine("a"), machine("b"), machine("c", S.SPECULATIVE))
    full(supply, machine("x", capacity_type=CapacityType.BARE_METAL), at=0, provider=Q)
    idle, speculative = (S.IDLE, CapacityType.ON_DEMAND), (S.SPECULATIVE, CapacityType.ON_DEMAND)
    assert supply.counts(P) == {idle: 2, speculative: 1}
    full(supply, machine("b", S.DELETING), machine("c"), at=1)
    assert supply.counts(P) == {idle: 1, (S.DELETING, CapacityType.ON_DEMAND): 1}
    assert supply.counts() == supply.counts(P) + supply.counts(Q)
    assert (len(supply), supply.provider_of("x"), supply.provider_of("a")) == (3, Q, None)


def test_a_machine_is_idle_since_it_was_first_seen_so() -> None:
    supply = known(machine("a", S.CREATING), machine("b"))
    delta(supply, machine("a"), at=10.25)
    delta(supply, machine("a", price_per_hour=2.0), at=20)
    assert (supply.idle_since("a"), supply.idle_since("b")) == (11, 0)
    assert supply.idle_for(30) == {"a": 19.75, "b": 30}
    delta(supply, machine("a", S.DELETING), at=40)
    assert supply.idle_for(40) == {"b": 40}
    delta(supply, machine("a"), at=50)
    assert supply.idle_since("a") == 50


def test_a_node_is_found_by_its_label_or_else_by_its_machines_id() -> None:
    supply = known(machine("a"), machine("b", labels={NODE_NAME: "node-b"}))
    names = ("a", "b", "node-b")
    assert [m and m.id for m in map(supply.by_node, names)] == ["a", None, "b"]
    delta(supply, machine("a", labels={NODE_NAME: "node-a"}), machine("b"), at=1)
    assert [m and m.id for m in map(supply.by_node, (*names, "node-a"))] == [None, "b", None, "a"]
    full(supply, machine("b"), machine("node-b"), at=2)
    assert [m and m.id for m in map(supply.by_node, (*names, "node-a"))] == [None, "b", "node-b", None]


# Rule 2


@pytest.mark.parametrize("before", S)
@pytest.mark.parametrize("after", S)
def test_rule_2_a_well_formed_record_is_taken_whatever_edge_it_implies(
    before: MachineState, after: MachineState
) -> None:
    supply = known(machine(state=before))
    delta(supply, machine(state=after), at=1)
    assert supply.find("m-1") == machine(state=after)


def test_rule_2_an_unasked_draining_is_reported_at_once() -> None:
    before, after = machine(state=S.CONFIGURED), machine(state=S.DRAINING)
    supply = known(before)
    assert delta(supply, after, at=1) == [Changed("m-1", before, after, P), UnaskedDrain("m-1")]
    assert delta(supply, after, at=2) == []


def test_rule_2_by_get_and_by_an_ack_that_does_not_fit_as_well() -> None:
    supply = known(machine(state=S.CONFIGURED))
    assert UnaskedDrain("m-1") in supply.got(P, "m-1", Answer(machine(state=S.DRAINING)), 1, 1)
    supply = known(machine())
    supply.in_flight("m-1", True)
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 1)
    # No drain can have been asked for while it was Configuring: what is in flight is the Configure.
    assert UnaskedDrain("m-1") in supply.acknowledged("m-1", machine(state=S.DRAINING), None, 2)


@pytest.mark.parametrize("by_row", [True, False])
def test_rule_2_a_drain_that_was_asked_for_is_none_of_it(by_row: bool) -> None:
    supply = known(machine(state=S.CONFIGURED))
    supply.in_flight("m-1", True)
    after = machine(state=S.DRAINING)
    effects = delta(supply, after, at=1) if by_row else supply.acknowledged("m-1", after, None, 1)
    assert effects == [Changed("m-1", machine(state=S.CONFIGURED), after, P)]


def test_rule_2_a_drain_already_running_when_the_shard_starts_is_the_journals_business() -> None:
    row = machine(state=S.DRAINING)
    assert full(Supply("eu-1"), row, at=0) == [Changed("m-1", None, row, P)]


# Rule 5


def test_rule_5_a_second_provider_with_the_same_id_is_refused_and_the_first_stays() -> None:
    first, second = machine(state=S.CONFIGURED), machine(state=S.IDLE)
    supply = known(first)
    assert incidents(full(supply, second, at=1, provider=Q)) == [IncidentKind.SECOND_ID]
    assert incidents(supply.got(Q, "m-1", Answer(second), 2, 2)) == []
    # It stands, and was reported.
    assert full(supply, second, at=3, provider=Q) == []
    assert (supply.find("m-1"), supply.provider_of("m-1"), list(supply.machines_of(Q))) == (first, P, [])
    # Nor does the second one's silence take anything from the first.
    assert full(supply, at=4, provider=Q) == []
    assert supply.find("m-1") == first


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (machine("a", labels={NODE_NAME: "n"}), machine("b", labels={NODE_NAME: "n"})),
        (machine("a"), machine("b", labels={NODE_NAME: "a"})),
        (machine("b", labels={NODE_NAME: "a"}), machine("a")),
    ],
)
def test_rule_5_a_second_machine_with_the_same_node_name_is_refused(first: Machine, second: Machine) -> None:
    supply = known(first)
    [incident] = full(supply, second, at=1, provider=Q)
    assert isinstance(incident, Incident)
    assert (incident.kind, incident.machine_id) == (IncidentKind.SECOND_NODE_NAME, second.id)
    assert first.id in incident.text
    assert (list(supply.machines()), supply.find(second.id)) == ([first], None)


def test_rule_5_a_known_machine_that_takes_anothers_name_stays_as_it_was() -> None:
    supply = known(machine("a", labels={NODE_NAME: "n"}), machine("b"))
    assert incidents(delta(supply, machine("b", labels={NODE_NAME: "n"}), at=1)) == [IncidentKind.SECOND_NODE_NAME]
    assert supply.find("b") == machine("b")


def test_rule_5_a_name_may_pass_from_one_machine_to_another_within_one_list() -> None:
    first, second = machine("b", labels={NODE_NAME: "n"}), machine("a", labels={NODE_NAME: "n"})
    supply = known(first)
    # The new one is listed before the old one, which has no name any more; or is there no more.
    effects = delta(supply, second, machine("b", S.SPECULATIVE), at=1)
    assert (incidents(effects), supply.by_node("n")) == ([], second)
    supply = known(first)
    assert (incidents(full(supply, second, at=1)), supply.by_node("n")) == ([], second)


@pytest.mark.parametrize("by_id", [True, False])
def test_rule_5_once_the_first_is_gone_the_refused_one_is_asked_for(by_id: bool) -> None:
    first = machine("a", labels={NODE_NAME: "n"})
    second = machine("a") if by_id else machine("b", labels={NODE_NAME: "n"})
    supply = known(first)
    full(supply, second, at=1, provider=Q)
    assert Doubt(second.id, Q) in full(supply, at=2)
    assert list(supply.doubts()) == [Doubt(second.id, Q)]
    assert supply.got(Q, second.id, Answer(second), 2, 3) == [Changed(second.id, None, second, Q)]
    assert (supply.provider_of(second.id), list(supply.doubts())) == (Q, [])


def test_rule_5_a_claimant_that_its_provider_lists_no_more_claims_nothing() -> None:
    supply = known(machine("a"))
    full(supply, machine("a"), at=1, provider=Q)
    full(supply, at=2, provider=Q)
    assert doubted(full(supply, at=3)) == []
    full(supply, machine("a"), at=4)
    assert incidents(full(supply, machine("a"), at=5, provider=Q)) == [IncidentKind.SECOND_ID]


def test_rule_5_a_machine_that_gave_up_its_claim_is_not_asked_for() -> None:
    supply = known(machine("a", labels={NODE_NAME: "n"}), machine("b"))
    delta(supply, machine("b", labels={NODE_NAME: "n"}), at=1)
    delta(supply, machine("b", S.DELETING), at=2)
    assert doubted(delta(supply, machine("a"), at=3)) == []


# Rule 6


def test_rule_6_a_row_of_a_list_that_began_before_the_ack_does_not_undo_it() -> None:
    supply = known(machine())
    acked = machine(state=S.CONFIGURING)
    assert supply.acknowledged("m-1", acked, None, 5) == [Changed("m-1", machine(), acked, P)]
    lagging = listing(machine(), began=4, full=False)
    assert supply.listed(P, lagging, 6) == [Doubt("m-1", P)]
    assert supply.find("m-1") == acked
    # It is asked for once, and the doubt stands until it is answered.
    assert supply.listed(P, lagging, 7) == []
    assert list(supply.doubts()) == [Doubt("m-1", P)]


def test_rule_6_a_lagging_row_is_no_doubt_where_it_agrees() -> None:
    supply = known(machine())
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    assert supply.listed(P, listing(machine(state=S.CONFIGURING), began=4), 6) == []


@pytest.mark.parametrize("heard", [machine(state=S.CONFIGURED), machine()])
def test_rule_6_an_ack_that_comes_after_a_row_may_be_older_than_it(heard: Machine) -> None:
    supply = known(machine())
    supply.called("m-1")
    delta(supply, heard, at=4)
    assert Doubt("m-1", P) in supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    supply.got(P, "m-1", Answer(heard), 6, 7)
    assert supply.find("m-1") == heard
    assert list(supply.doubts()) == []


def test_rule_6_a_row_of_a_list_that_began_before_a_get_was_answered_does_not_undo_it() -> None:
    supply = known(machine())
    supply.got(P, "m-1", Answer(machine(state=S.CONFIGURING)), 4, 5)
    assert doubted(supply.listed(P, listing(machine(), began=3, full=False), 6)) == ["m-1"]
    assert supply.find("m-1") == machine(state=S.CONFIGURING)


def test_rule_6_a_call_without_answer_makes_an_older_doubt_one_of_its_own() -> None:
    supply = known(machine())
    delta(supply, machine(state=S.CONFIGURING), at=3)
    assert doubted(supply.got(P, "m-1", Answer(machine()), 2, 4)) == ["m-1"]
    supply.called("m-1")
    supply.unanswered("m-1", 6)
    # Its List began after the doubt and before the call: it says nothing of what became of that.
    supply.listed(P, listing(machine(state=S.CONFIGURED), began=5, full=False), 7)
    assert list(supply.doubts()) == [Doubt("m-1", P)]


def test_rule_6_what_was_heard_of_a_machine_before_a_call_is_older_than_its_ack() -> None:
    supply = known(machine(state=S.CONFIGURED))
    supply.called("m-1")
    delta(supply, machine(), at=2)
    supply.unanswered("m-1", 3)
    supply.called("m-1")
    assert doubted(supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)) == []


def test_rule_6_a_row_lags_behind_the_ack_though_a_fresh_list_came_in_between() -> None:
    supply = known(machine())
    acked = machine(state=S.CONFIGURING)
    supply.acknowledged("m-1", acked, None, 5)
    full(supply, acked, at=6)
    assert supply.listed(P, listing(machine(), began=4), 7) == [Doubt("m-1", P)]
    assert supply.find("m-1") == acked


def test_rule_6_a_list_that_began_with_the_ack_is_asked_about() -> None:
    supply = known(machine())
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    assert doubted(supply.listed(P, listing(machine(), began=5), 6)) == ["m-1"]


def test_rule_6_a_lagging_row_may_be_the_news_and_is_not_lost() -> None:
    supply = known(machine(state=S.SPECULATIVE))
    supply.in_flight("m-1", True)
    supply.acknowledged("m-1", machine(state=S.CREATING), None, 5)
    # The list began before, but got to this machine after it had failed; no later delta will say so again.
    failed = machine(state=S.FAILED)
    supply.listed(P, listing(failed, began=4, full=False), 6)
    supply.got(P, "m-1", Answer(failed), 6, 7)
    assert (supply.find("m-1"), list(supply.doubts())) == (failed, [])


@pytest.mark.parametrize("in_flight", [True, False])
def test_rule_6_a_row_of_a_list_that_began_after_the_ack_is_taken_though_an_action_is_in_flight(
    in_flight: bool,
) -> None:
    supply = known(machine())
    supply.in_flight("m-1", in_flight)
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    supply.listed(P, listing(machine(), began=4), 5.5)
    delta(supply, machine(state=S.FAILED), at=6)
    assert (supply.find("m-1"), list(supply.doubts())) == (machine(state=S.FAILED), [])


def test_rule_6_gets_answer_is_final_only_if_it_began_after_the_ack() -> None:
    supply = known(machine())
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    supply.listed(P, listing(machine(), began=4), 6)
    assert supply.got(P, "m-1", Answer(machine()), 4.5, 7) == [Doubt("m-1", P)]
    assert supply.got(P, "m-1", None, 4.5, 7) == [Doubt("m-1", P)]
    assert supply.find("m-1") == machine(state=S.CONFIGURING)
    supply.got(P, "m-1", Answer(machine(state=S.CONFIGURED)), 8, 9)
    assert (supply.find("m-1"), list(supply.doubts())) == (machine(state=S.CONFIGURED), [])


def test_rule_6_a_poll_that_began_before_the_ack_is_repeated_not_believed() -> None:
    supply = known(machine())
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    assert supply.got(P, "m-1", Answer(machine(state=S.CONFIGURING)), 4, 6) == []
    assert supply.got(P, "m-1", Answer(machine()), 4, 6) == [Doubt("m-1", P)]
    assert supply.find("m-1") == machine(state=S.CONFIGURING)


def test_rule_6_a_second_ack_makes_an_older_get_worthless() -> None:
    supply = known(machine(state=S.SPECULATIVE))
    supply.acknowledged("m-1", machine(state=S.CREATING), None, 5)
    supply.listed(P, listing(machine(state=S.SPECULATIVE), began=4), 6)
    supply.acknowledged("m-1", machine(state=S.DELETING), None, 7)
    assert supply.got(P, "m-1", Answer(machine(state=S.CREATING)), 6, 8) == [Doubt("m-1", P)]
    assert supply.find("m-1") == machine(state=S.DELETING)


def test_rule_6_not_found_after_the_ack_is_final_too() -> None:
    supply = known(machine())
    supply.acknowledged("m-1", machine(state=S.DELETING), None, 5)
    supply.listed(P, listing(machine(), began=4), 6)
    assert removed(supply.got(P, "m-1", None, 7, 8)) == ["m-1"]
    # Rows may lag still; they bring it back no more than they would have changed it.
    assert supply.listed(P, listing(machine(), began=4), 9) == [Doubt("m-1", P)]
    assert supply.find("m-1") is None
    assert supply.got(P, "m-1", None, 10, 11) == []
    assert list(supply.doubts()) == []


def test_rule_6_an_ack_is_the_truth_though_it_is_not_what_was_asked_for() -> None:
    supply = known(machine())
    strange = machine(state=S.CONFIGURED, cluster="somebody else's")
    supply.acknowledged("m-1", strange, None, 1)
    assert supply.find("m-1") == strange


def test_rule_6_an_ack_for_a_machine_that_is_gone_waits_for_its_row() -> None:
    supply = known(machine("a"))
    assert supply.acknowledged("m-1", machine(), None, 1) == []
    delta(supply, machine(), at=2)
    assert supply.find("m-1") == machine()


@pytest.mark.parametrize("source", ["list", "get", "ack"])
def test_rule_6_a_bad_price_costs_the_price_and_nothing_else(source: str) -> None:
    supply = known(machine(interruption_probability=0.25))
    row = machine(state=S.CONFIGURING, price_per_hour=-1.0, interruption_probability=0.5)
    refusal = spoiled(row)
    assert refusal.rest is not None
    for at in (1, 2):
        if source == "list":
            effects = supply.listed(P, listing(began=at, refused=(refusal,)), at)
        elif source == "get":
            effects = supply.got(P, "m-1", Answer(refusal.rest, refusal), at, at)
        else:
            effects = supply.acknowledged("m-1", refusal.rest, refusal, at)
        # The second time it is no news.
        assert len(effects) == (at == 1)
    assert supply.find("m-1") == machine(state=S.CONFIGURING, price_per_hour=1.0, interruption_probability=0.5)
    assert supply.usable("m-1")


def test_rule_6_a_record_refused_whole_leaves_the_last_good_one() -> None:
    supply = known(machine())
    assert supply.listed(P, listing(began=1, refused=(Refusal("m-1", "structural", "host", "is empty"),)), 1) == []
    assert supply.find("m-1") == machine()


def test_rule_6_a_lagging_row_with_a_bad_price_is_asked_about_like_any_other() -> None:
    supply = known(machine())
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    assert supply.listed(P, listing(began=4, refused=(spoiled(machine()),)), 6) == [Doubt("m-1", P)]
    assert supply.find("m-1") == machine(state=S.CONFIGURING)


@pytest.mark.parametrize("source", ["list", "get", "ack"])
@pytest.mark.parametrize("price", [0.0, 2.0])
def test_rule_6_a_machine_first_seen_with_a_bad_price_counts_but_is_not_acted_on(source: str, price: float) -> None:
    """Unknown, it would be bought a second time; at price 0 it would be everybody's first choice."""
    supply, refusal = Supply("eu-1"), spoiled(machine(state=S.CONFIGURED))
    for at in (0, 1):
        supply.listed(P, listing(began=at, refused=(refusal,)), at)
        assert supply.find("m-1") == refusal.rest
        assert not supply.usable("m-1")
    good = machine(state=S.CONFIGURED, price_per_hour=price)
    if source == "list":
        effects = delta(supply, good, at=2)
    elif source == "get":
        effects = supply.got(P, "m-1", Answer(good), 2, 2)
    else:
        effects = supply.acknowledged("m-1", good, None, 2)
    # Said also where the price is 0 indeed: whoever asks `usable` must know when to ask again.
    assert effects == [Changed("m-1", refusal.rest, good, P)]
    assert supply.usable("m-1")


def test_rule_6_a_lagging_row_with_a_good_price_is_not_taken_for_its_price() -> None:
    supply, refusal = Supply("eu-1"), spoiled(machine())
    supply.listed(P, listing(began=0, refused=(refusal,)), 0)
    after = spoiled(machine(state=S.CONFIGURING))
    assert after.rest is not None
    supply.acknowledged("m-1", after.rest, after, 5)
    assert supply.listed(P, listing(machine(), began=4), 6) == [Doubt("m-1", P)]
    assert (supply.find("m-1"), supply.usable("m-1")) == (after.rest, False)


# Rule 7


def test_rule_7_a_machine_nobody_uses_goes_with_the_full_list_that_lacks_it() -> None:
    supply = known(machine("a"), machine("b"))
    assert delta(supply, machine("a"), at=1) == []
    assert full(supply, machine("a"), at=2) == [Changed("b", machine("b"), None, P)]
    assert (supply.find("b"), supply.idle_for(2)) == (None, {"a": 2})


@pytest.mark.parametrize("in_flight", [True, False])
def test_rule_7_a_bound_or_in_flight_machine_goes_only_when_get_says_so_too(in_flight: bool) -> None:
    row = machine(state=S.SPECULATIVE if in_flight else S.CONFIGURED)
    supply = known(row)
    supply.in_flight("m-1", in_flight)
    # Get alone is not enough.
    assert supply.got(P, "m-1", None, 1, 1) == []
    assert full(supply, at=2) == [Doubt("m-1", P)]
    assert supply.find("m-1") == row
    assert supply.got(P, "m-1", None, 3, 3) == [Changed("m-1", row, None, P)]


def test_rule_7_a_bound_machine_that_get_still_knows_stays() -> None:
    row = machine(state=S.CONFIGURED)
    supply = known(row)
    full(supply, at=2)
    assert supply.got(P, "m-1", Answer(row), 3, 3) == []
    assert supply.got(P, "m-1", None, 4, 4) == []
    assert supply.find("m-1") == row


def test_rule_7_get_must_have_been_asked_after_the_list() -> None:
    supply = known(machine(state=S.CONFIGURED))
    supply.listed(P, listing(began=2), 4)
    assert supply.got(P, "m-1", None, 3, 5) == [Doubt("m-1", P)]
    assert supply.got(P, "m-1", Answer(machine(state=S.CONFIGURED)), 3, 5) == [Doubt("m-1", P)]
    assert removed(supply.got(P, "m-1", None, 6, 7)) == ["m-1"]


@pytest.mark.parametrize("sign", ["row", "refused row", "ack"])
def test_rule_7_a_sign_of_life_after_the_list_calls_for_a_new_list(sign: str) -> None:
    row = machine(state=S.CONFIGURED)
    supply = known(row)
    full(supply, at=2)
    if sign == "row":
        delta(supply, row, at=3)
    elif sign == "refused row":
        supply.listed(P, listing(began=3, full=False, refused=(Refusal("m-1", "structural", "host", "is empty"),)), 3)
    else:
        supply.acknowledged("m-1", machine(state=S.DRAINING), None, 3)
    assert removed(supply.got(P, "m-1", None, 4, 4)) == []


def test_rule_7_an_unused_machine_acknowledged_after_the_list_began_is_asked_about() -> None:
    supply = known(machine(state=S.DELETING), machine("a"))
    supply.acknowledged("m-1", machine(state=S.SPECULATIVE), None, 5)
    assert supply.listed(P, listing(machine("a"), began=4), 6) == [Doubt("m-1", P)]
    assert removed(supply.got(P, "m-1", None, 7, 7)) == ["m-1"]


def test_rule_7_a_machine_in_doubt_already_goes_by_the_same_get_once_a_full_list_lacks_it() -> None:
    supply = known(machine())
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    supply.listed(P, listing(machine(), began=4, full=False), 6)
    full(supply, at=7)
    assert removed(supply.got(P, "m-1", None, 8, 9)) == ["m-1"]


def test_rule_7_nothing_is_in_doubt_about_a_machine_that_went() -> None:
    supply = known(machine(), machine("a"))
    supply.acknowledged("m-1", machine(state=S.DELETING), None, 5)
    supply.listed(P, listing(machine(), began=4, full=False), 6)
    assert removed(full(supply, machine("a"), at=7)) == ["m-1"]
    assert list(supply.doubts()) == []


def test_rule_7_a_refused_machine_is_not_absent() -> None:
    supply = known(machine("a"), machine("b"))
    refusal = Refusal("b", "structural", "host", "is empty")
    assert supply.listed(P, listing(machine("a"), began=1, refused=(refusal,)), 1) == []


@pytest.mark.parametrize(
    ("count", "lacking", "guarded"), [(9, 9, False), (10, 1, False), (10, 2, True), (30, 30, True)]
)
def test_rule_7_a_full_list_that_lacks_more_than_a_tenth_of_ten_removes_nothing_until_three_agree(
    count: int, lacking: int, guarded: bool
) -> None:
    rows = many(count)
    supply = known(*rows)
    gone = [row.id for row in rows[:lacking]]
    for at in (1, 2) if guarded else ():
        assert full(supply, *rows[lacking:], at=at) == []
        assert len(supply) == count
    assert removed(full(supply, *rows[lacking:], at=3)) == gone
    assert len(supply) == count - lacking


def test_rule_7_lists_agree_only_in_a_row_and_only_on_the_same_machines() -> None:
    rows = many(20)
    supply = known(*rows)
    for at in (1, 2):
        full(supply, *rows[5:], at=at)
    full(supply, *rows, at=3)
    for at in (4, 5):
        assert removed(full(supply, *rows[5:], at=at)) == []
    # One of them is back and another missing: what three lists lacked goes, and no more.
    assert removed(full(supply, rows[0], *rows[6:], at=6)) == [row.id for row in rows[1:5]]
    assert {rows[0].id, rows[5].id} <= {m.id for m in supply.machines()}


def test_rule_7_deltas_between_full_lists_neither_agree_nor_disagree() -> None:
    rows = many(20)
    supply = known(*rows)
    for at in (1, 2, 3):
        delta(supply, at=at)
        effects = full(supply, *rows[10:], at=at + 0.5)
    assert len(removed(effects)) == 10


def test_rule_7_a_provider_that_lost_its_database_does_not_erase_what_is_bound() -> None:
    rows = many(20, S.CONFIGURED)
    supply = known(*rows)
    for at in (1, 2):
        assert full(supply, at=at) == []
        # Whoever polls all the same hears NOT_FOUND, and nothing goes.
        assert supply.got(P, "m-00", None, at, at) == []
    assert doubted(full(supply, at=3)) == [row.id for row in rows]
    assert len(supply) == 20
    assert supply.got(P, "m-00", Answer(rows[0]), 4, 4) == []
    assert removed(supply.got(P, "m-01", None, 4, 4)) == ["m-01"]
    assert len(supply) == 19


def test_rule_7_a_tenth_is_of_that_providers_machines() -> None:
    supply = known(*many(100))
    rows = [machine(f"x-{i}") for i in range(10)]
    full(supply, *rows, at=0, provider=Q)
    assert full(supply, *rows[2:], at=1, provider=Q) == []


@pytest.mark.parametrize("gone", [True, False])
def test_rule_7_machines_of_a_provider_out_of_reach_stay_as_last_known_and_are_not_acted_on(gone: bool) -> None:
    supply = known(machine(), *many(3))
    full(supply, machine("x"), at=0, provider=Q)
    (supply.provider_gone if gone else supply.provider_lost)(P)
    assert (supply.find("m-1"), len(supply)) == (machine(), 5)
    assert (supply.usable("m-1"), supply.usable("x"), supply.usable("nobody")) == (False, True, False)
    full(supply, machine(), *many(3), at=9)
    assert supply.usable("m-1")


def test_rule_7_nobody_is_asked_about_the_machines_of_an_unregistered_provider() -> None:
    supply = known(machine(state=S.CONFIGURED))
    full(supply, at=1)
    supply.provider_gone(P)
    assert list(supply.doubts()) == []


# Rules 9, 10, 19, 25


def test_rule_9_a_provider_has_listed_once_a_full_list_of_it_came() -> None:
    supply = Supply("eu-1")
    supply.got(P, "m-1", Answer(machine()), 0, 0)
    delta(supply, machine(), at=1)
    assert not supply.has_listed(P)
    full(supply, machine(), at=2)
    assert supply.has_listed(P)


def test_rule_9_what_get_settles_before_the_first_list_is_known_but_not_acted_on() -> None:
    supply = Supply("eu-1")
    assert supply.got(P, "m-1", Answer(machine()), 0, 0) == [Changed("m-1", None, machine(), P)]
    assert not supply.usable("m-1")


@pytest.mark.parametrize(("epoch", "higher"), [(None, False), (4, True), (5, False)])
def test_rule_10_this_shards_id_with_a_higher_epoch_is_an_incident(epoch: int | None, higher: bool) -> None:
    supply = known()
    supply.epoch = epoch
    row = machine(state=S.CONFIGURED, shard_metadata=stamped(epoch=5))
    assert incidents(full(supply, row, at=1)) == [IncidentKind.HIGHER_EPOCH] * higher
    assert supply.find("m-1") == row


def test_rule_10_before_there_is_an_epoch_the_highest_of_this_shard_alone_is_remembered() -> None:
    supply = Supply("eu-1")
    garbled = stamped(epoch=50) | {"bigfleet.lucy.sh/shard": "eu-1 51"}
    nothing: dict[str, str] = {}
    stamps = stamped(epoch=7), stamped("us-2", 99), stamped(epoch=8), garbled, nothing
    full(supply, *(machine(f"m-{i}", S.CONFIGURED, shard_metadata=each) for i, each in enumerate(stamps)), at=0)
    assert (supply.highest_epoch, supply.highest_number) == (8, 1)
    supply.epoch = 9
    delta(supply, machine("m-4", S.CONFIGURED, shard_metadata=stamped(epoch=20)), at=1)
    assert supply.highest_epoch == 8


def test_rule_10_it_is_seen_on_rows_that_lag_and_rows_that_are_refused() -> None:
    supply = known(machine())
    supply.epoch = 4
    row = machine(state=S.CONFIGURED, shard_metadata=stamped(epoch=5))
    assert IncidentKind.HIGHER_EPOCH in incidents(full(supply, row, at=1, provider=Q))
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    assert incidents(supply.listed(P, listing(row, began=4), 6)) == [IncidentKind.HIGHER_EPOCH]


def test_rule_19_a_machine_has_been_idle_for_as_long_as_before_the_restart() -> None:
    supply = Supply("eu-1")
    supply.resume_idle({"a": 40.0, "b": 40.0}, 100)
    full(supply, machine("a"), machine("b", S.SPECULATIVE), machine("c"), at=110)
    assert (supply.idle_since("a"), supply.idle_since("c")) == (60, 110)
    delta(supply, machine("b"), at=120)
    assert supply.idle_since("b") == 120


def test_rule_25_another_shards_machine_is_reported_once_and_left_alone_until_it_is_free() -> None:
    supply = known(machine())
    row = machine(state=S.CONFIGURED, shard_metadata=stamped("us-2"))
    assert incidents(delta(supply, row, at=1)) == [IncidentKind.FOREIGN_STAMP]
    dearer = msgspec.structs.replace(row, price_per_hour=2.0)
    assert delta(supply, dearer, at=2) == [Changed("m-1", row, dearer, P)]
    assert not supply.usable("m-1")
    draining = msgspec.structs.replace(dearer, state=S.DRAINING)
    assert delta(supply, draining, at=3) == [Changed("m-1", dearer, draining, P)]
    delta(supply, machine(), at=4)
    assert supply.usable("m-1")


def test_rule_25_a_foreign_machine_that_went_leaves_no_trace() -> None:
    supply = known(machine(state=S.CONFIGURED, shard_metadata=stamped("us-2")))
    full(supply, at=1)
    supply.got(P, "m-1", None, 2, 2)
    full(supply, machine(), at=3)
    assert supply.usable("m-1")


@pytest.mark.parametrize("metadata", [stamped(), {}, {"theirs": "x"}])
def test_rule_25_its_own_machines_and_those_of_no_shard_are_its_business(metadata: dict[str, str]) -> None:
    supply = known(machine(state=S.CONFIGURED, shard_metadata=metadata))
    assert supply.usable("m-1")


def test_a_garbled_stamp_counts_as_none_and_is_reported() -> None:
    row = machine(state=S.CONFIGURED, shard_metadata=stamped() | {"bigfleet.lucy.sh/shard": "us-2 7"})
    supply = Supply("eu-1")
    assert incidents(full(supply, row, at=0)) == [IncidentKind.GARBLED_STAMP]
    assert supply.usable("m-1")
