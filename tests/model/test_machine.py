import itertools

import msgspec
import pytest

from bigfleet.model.machine import (
    ASKS,
    EDGES,
    INVARIANTS,
    TRANSITIONAL,
    Call,
    CapacityType,
    Host,
    IllegalCallError,
    InvariantError,
    LegalCall,
    Machine,
    MachineState,
    acknowledged,
    can,
    check,
    check_invariants,
)

S = MachineState
HOST = Host("sim", "i-1")

# Written from contract.md's life cycle and protocol rule 1, not from the tables under test.
LEGAL_CALLS = {
    (Call.CREATE, S.SPECULATIVE, False): S.CREATING,
    (Call.CONFIGURE, S.IDLE, True): S.CONFIGURING,
    (Call.DRAIN, S.CONFIGURED, True): S.DRAINING,
    (Call.DELETE, S.IDLE, True): S.DELETING,
    (Call.DRAIN, S.FAILED, True): S.DRAINING,
    (Call.DELETE, S.FAILED, True): S.DELETING,
    (Call.DELETE, S.FAILED, False): S.DELETING,
    (Call.CREATE, S.FAILED, False): S.CREATING,
}

# From contract.md's life cycle, then the ways out of Failed, then protocol rule 2.
LEGAL_EDGES = {
    *itertools.pairwise((S.SPECULATIVE, S.CREATING, S.IDLE, S.CONFIGURING, S.CONFIGURED, S.DRAINING, S.IDLE)),
    *itertools.pairwise((S.IDLE, S.DELETING, S.SPECULATIVE)),
    *((state, S.FAILED) for state in S if state not in (S.SPECULATIVE, S.FAILED)),
    (S.FAILED, S.IDLE),
    (S.FAILED, S.DRAINING),
    (S.FAILED, S.DELETING),
    (S.FAILED, S.CREATING),
    *((state, S.SPECULATIVE) for state in S if state not in (S.SPECULATIVE, S.CREATING)),
}


def machine(state: MachineState, *, host: bool, cluster: bool, error: bool = False) -> Machine:
    return Machine(
        id="m-1",
        state=state,
        instance_type="c8",
        capacity_type=CapacityType.ON_DEMAND,
        host=HOST if host else None,
        cluster="prod" if cluster else "",
        last_error="boom" if error else "",
    )


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("host", [True, False])
def test_a_call_is_legal_exactly_where_the_contract_says(call: Call, state: MachineState, host: bool) -> None:
    target = LEGAL_CALLS.get((call, state, host))
    assert can(call, state, host) == (target is not None)
    if target is None:
        with pytest.raises(IllegalCallError, match=rf"'m-1'.*{call.value} is not legal from {state.label}"):
            check(call, "m-1", state, host)
    else:
        assert check(call, "m-1", state, host).via is target


@pytest.mark.parametrize(("source", "target"), list(itertools.product(S, S)))
def test_an_edge_is_legal_exactly_where_the_contract_says(source: MachineState, target: MachineState) -> None:
    assert ((source, target) in EDGES) == ((source, target) in LEGAL_EDGES)


def test_every_transitional_state_can_fail_and_every_ask_leads_through_one() -> None:
    assert {S.CREATING, S.CONFIGURING, S.DRAINING, S.DELETING} == TRANSITIONAL
    assert all((state, S.FAILED) in EDGES for state in TRANSITIONAL)
    assert all(ask.end not in TRANSITIONAL for ask in ASKS)


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize(("host", "cluster", "error"), list(itertools.product([True, False], repeat=3)))
def test_a_record_is_well_formed_exactly_as_its_state_demands(
    state: MachineState, host: bool, cluster: bool, error: bool
) -> None:
    subject = machine(state, host=host, cluster=cluster, error=error)
    if state in (S.SPECULATIVE, S.CREATING):
        broken = [name for name, bad in (("host", host), ("cluster", cluster)) if bad]
    elif state in (S.IDLE, S.DELETING):
        broken = [name for name, bad in (("host", not host), ("cluster", cluster)) if bad]
    elif state is S.FAILED:
        broken = [] if error else ["last_error"]
    else:
        broken = [name for name, bad in (("host", not host), ("cluster", not cluster)) if bad]
    if not broken:
        check_invariants(subject)
        return
    with pytest.raises(InvariantError) as caught:
        check_invariants(subject)
    assert caught.value.field == broken[0]
    assert caught.value.machine_id == "m-1"
    assert state.label in str(caught.value)


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: f"{ask.call.value}-{ask.source.label}-{ask.host.value}")
@pytest.mark.parametrize(("host", "cluster"), [(True, True), (True, False), (False, True), (False, False)])
def test_every_legal_ask_is_acknowledged_with_a_record_that_is_well_formed(
    ask: LegalCall, host: bool, cluster: bool
) -> None:
    before = INVARIANTS[ask.source]
    if not (ask.host.admits(host) and before.host.admits(host) and before.cluster.admits(cluster)):
        return
    state = acknowledged(ask, host, cluster)
    assert state in (ask.via, ask.end)
    assert (ask.source, state) in EDGES
    bound = ask.call is Call.CONFIGURE or (cluster and ask.call is Call.DRAIN and state is ask.via)
    # What ends in Speculative has no host any more; what ends in Idle has the host it had.
    check_invariants(machine(state, host=host and state is not S.SPECULATIVE, cluster=bound))


def test_a_failed_machine_with_nothing_to_drain_or_delete_is_done_at_once() -> None:
    asks = {(ask.call, ask.source): ask for ask in ASKS}
    assert acknowledged(asks[Call.DRAIN, S.FAILED], host=True, cluster=False) is S.IDLE
    assert acknowledged(asks[Call.DELETE, S.FAILED], host=False, cluster=True) is S.SPECULATIVE
    assert acknowledged(asks[Call.DELETE, S.FAILED], host=True, cluster=True) is S.DELETING


def test_the_invariants_cover_every_state() -> None:
    assert set(INVARIANTS) == set(S)


def test_labels_are_those_of_the_metrics() -> None:
    assert [state.label for state in S] == [
        "Speculative",
        "Creating",
        "Idle",
        "Configuring",
        "Configured",
        "Draining",
        "Deleting",
        "Failed",
    ]
    assert [t.label for t in CapacityType][1:] == ["BareMetal", "Reserved", "OnDemand", "Spot"]


def test_what_pods_may_use_is_allocatable_or_else_everything() -> None:
    whole = machine(S.IDLE, host=True, cluster=False)
    whole = msgspec.structs.replace(whole, resources=(("cpu", 8000),))
    assert whole.usable == (("cpu", 8000),)
    assert msgspec.structs.replace(whole, allocatable=(("cpu", 7500),)).usable == (("cpu", 7500),)
    assert msgspec.structs.replace(whole, allocatable=()).usable == ()


def test_a_host_is_named_as_the_node_names_it() -> None:
    assert Host("aws", "i-0abc").provider_id == "aws://i-0abc"
