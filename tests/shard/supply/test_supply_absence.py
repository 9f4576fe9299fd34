"""What supply believes of machines that a list lacks: rule 7."""

import pytest

from bigfleet.provider.records import Answer, Refusal
from bigfleet.shard.supply.known import Changed, Doubt
from tests.shard.supply.shown import P, Q, S, delta, doubted, full, known, listing, machine, many, removed


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
