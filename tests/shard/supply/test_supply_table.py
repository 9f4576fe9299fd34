"""What supply says of machines that it is shown: rules 2, 9, 10, 19 and 25, and what is simply so."""

import msgspec
import pytest

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.provider.records import Answer
from bigfleet.shard.supply.known import Changed, IncidentKind, UnaskedDrain
from bigfleet.shard.supply.table import NODE_NAME, Supply
from tests.shard.supply.shown import P, Q, S, delta, full, incidents, known, listing, machine, stamped


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
    row = machine(state=S.CONFIGURED, shard_metadata=stamped(epoch=5))
    assert incidents(full(supply, row, at=1, epoch=epoch)) == [IncidentKind.HIGHER_EPOCH] * higher
    assert supply.find("m-1") == row


def test_rule_10_before_there_is_an_epoch_the_highest_of_this_shard_alone_is_remembered() -> None:
    supply = Supply("eu-1")
    garbled = stamped(epoch=50) | {"bigfleet.lucy.sh/shard": "eu-1 51"}
    nothing: dict[str, str] = {}
    stamps = stamped(epoch=7), stamped("us-2", 99), stamped(epoch=8), garbled, nothing
    full(supply, *(machine(f"m-{i}", S.CONFIGURED, shard_metadata=each) for i, each in enumerate(stamps)), at=0)
    assert (supply.highest_epoch, supply.highest_number) == (8, 1)
    delta(supply, machine("m-4", S.CONFIGURED, shard_metadata=stamped(epoch=20)), at=1, epoch=9)
    assert supply.highest_epoch == 8


def test_rule_10_it_is_seen_on_rows_that_lag_and_rows_that_are_refused() -> None:
    supply = known(machine())
    row = machine(state=S.CONFIGURED, shard_metadata=stamped(epoch=5))
    assert IncidentKind.HIGHER_EPOCH in incidents(full(supply, row, at=1, provider=Q, epoch=4))
    supply.acknowledged("m-1", machine(state=S.CONFIGURING), None, 5)
    assert incidents(supply.listed(P, listing(row, began=4), 6, epoch=4)) == [IncidentKind.HIGHER_EPOCH]


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
