"""What supply believes of late, lost and spoiled messages: rule 6."""

import pytest

from bigfleet.model.machine import Machine
from bigfleet.provider.records import Answer, Refusal
from bigfleet.shard.supply.known import Changed, Doubt
from bigfleet.shard.supply.table import Supply
from tests.shard.supply.shown import P, S, delta, doubted, full, known, listing, machine, removed, spoiled


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
