"""Two machines with one id or one node name: rule 5."""

import pytest

from bigfleet.model.machine import Machine
from bigfleet.provider.records import Answer
from bigfleet.shard.supply.known import Changed, Doubt, Incident, IncidentKind
from bigfleet.shard.supply.table import NODE_NAME
from tests.shard.supply.shown import P, Q, S, delta, doubted, full, incidents, known, machine


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
