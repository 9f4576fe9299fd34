from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.model.demand.need import Daemon, Need, Rollup, UnrequestedNode
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Profile, Requirement, Spread, WhenUnsatisfiable
from bigfleet.model.resources import MAX_TOTAL, MAX_UNITS
from bigfleet.wire.errors import WireError
from bigfleet.wire.needs import need_from_wire, need_to_wire, rollup_from_wire, rollup_to_wire
from bigfleet.wire.v1alpha1 import capacity_pb2 as pb

names = st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"])
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def vectors(most: int, least: int = 0) -> st.SearchStrategy[Any]:
    amounts = st.dictionaries(names, st.integers(1, most), min_size=least, max_size=3)
    return amounts.map(lambda d: tuple(sorted(d.items())))


requirements = st.lists(
    st.builds(Requirement, text, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST, Operator.SAME]))
    | st.builds(Requirement, text, st.sampled_from([Operator.IN, Operator.NOT_IN]), st.tuples(text, text)),
    max_size=3,
).map(tuple)
profiles = st.builds(
    Profile,
    requirements=requirements,
    spread=st.lists(st.builds(Spread, text, st.integers(1, 2**31 - 1), st.sampled_from(WhenUnsatisfiable))).map(tuple),
    priority=st.integers(-(2**31), 2**31 - 1),
    interruption=st.sampled_from(PenaltyBucket),
    reclamation=st.sampled_from(PenaltyBucket),
    max_per_machine=st.integers(0, 2**31 - 1),
)
needs = st.builds(Need, profiles, vectors(MAX_TOTAL), vectors(MAX_UNITS, least=1), st.text(max_size=5))
rollups = st.builds(
    Rollup,
    cluster_id=text,
    timestamp_unix_nanos=st.integers(0, 2**63 - 1),
    needs=st.lists(needs, max_size=3).map(tuple),
    daemons=st.lists(st.builds(Daemon, requirements, vectors(MAX_UNITS)), max_size=2).map(tuple),
    empty_nodes=st.lists(text, max_size=2).map(tuple),
    partial_demand=st.booleans(),
    unrequested_nodes=st.lists(
        st.builds(
            UnrequestedNode,
            text,
            st.integers(-(2**31), 2**31 - 1),
            st.sampled_from(PenaltyBucket),
            st.sampled_from(PenaltyBucket),
        ),
        max_size=2,
    ).map(tuple),
    owners=st.lists(st.lists(text, max_size=3).map(tuple), max_size=3).map(tuple),
)


def test_owners_that_are_too_many_or_too_long_are_cut_and_refuse_no_demand() -> None:
    message = good()
    message.need_owners.add(owners=["", "a" * 1000, "b", "c", "d"])
    assert rollup_from_wire(message).owners == (("a" * 100, "b"),)


@given(rollups)
def test_a_rollup_survives_the_wire(rollup: Rollup) -> None:
    sent = rollup_to_wire(rollup).SerializeToString()
    assert rollup_from_wire(pb.ClusterCapacityNeeds.FromString(sent)) == rollup


def good() -> pb.ClusterCapacityNeeds:
    return pb.ClusterCapacityNeeds(
        cluster_id="prod",
        timestamp_unix_nanos=7,
        needs=[
            pb.CapacityNeed(aggregate_resources={"cpu": "1"}, min_unit={"cpu": "1"}),
            pb.CapacityNeed(
                requirements=[
                    pb.NodeSelectorRequirement(
                        key="zone", operator=pb.NodeSelectorRequirement.OPERATOR_IN, values=["b", "a"]
                    ),
                    pb.NodeSelectorRequirement(key="rack", operator=pb.NodeSelectorRequirement.OPERATOR_SAME),
                ],
                aggregate_resources={"cpu": "20", "memory": "64Gi"},
                priority=100,
                spread=[
                    pb.TopologySpread(
                        topology_key="zone",
                        max_skew=1,
                        when_unsatisfiable=pb.TopologySpread.WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE,
                    )
                ],
                interruption_penalty_bucket=pb.PENALTY_BUCKET_PINNED,
                reclamation_penalty_bucket=pb.PENALTY_BUCKET_HALF_DOLLAR,
                min_unit={"cpu": "5", "memory": "16Gi"},
                group="g",
                max_per_machine=1,
            ),
        ],
        daemons=[pb.DaemonDemand(resources={"cpu": "100m"})],
        empty_nodes=["n1"],
        unrequested_nodes=[pb.UnrequestedNode(node="n2")],
    )


def test_what_arrives_is_what_was_asked_for() -> None:
    rollup = rollup_from_wire(good())
    need = rollup.needs[1]
    assert need.aggregate == (("cpu", 20_000), ("memory", 64 * 2**20))
    assert need.unit == (("cpu", 5_000), ("memory", 16 * 2**20))
    assert need.profile.requirements == (
        Requirement("rack", Operator.SAME),
        Requirement("zone", Operator.IN, ("a", "b")),
    )
    assert need.profile.interruption is PenaltyBucket.PINNED
    assert need.profile.reclamation is PenaltyBucket.HALF_DOLLAR
    assert (need.group, need.profile.max_per_machine, need.profile.priority) == ("g", 1, 100)
    assert rollup.daemons == (Daemon((), (("cpu", 100),)),)


def test_a_bucket_left_out_states_no_penalty() -> None:
    assert rollup_from_wire(good()).needs[0].profile.interruption is PenaltyBucket.ZERO


def test_a_row_of_a_stranger_without_a_unit_is_divisible() -> None:
    need = need_from_wire(pb.CapacityNeed(aggregate_resources={"cpu": "3"}))
    assert (need.unit, need.aggregate) == ((), (("cpu", 3000),))
    assert not need_to_wire(need).min_unit


def spoil(path: str, change: Callable[[pb.ClusterCapacityNeeds], object]) -> Any:
    return pytest.param(path, change, id=path)


def assign(message: Any, field: str, value: object) -> None:
    setattr(message, field, value)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        spoil("cluster_id", lambda m: assign(m, "cluster_id", "")),
        spoil("needs[1].requirements[0].key", lambda m: assign(m.needs[1].requirements[0], "key", "")),
        spoil("needs[1].requirements[0].operator", lambda m: assign(m.needs[1].requirements[0], "operator", 0)),
        spoil("needs[1].requirements[1].operator", lambda m: assign(m.needs[1].requirements[1], "operator", 99)),
        spoil("needs[1].requirements[0].values", lambda m: m.needs[1].requirements[0].values.clear()),
        spoil("needs[1].spread[0].topology_key", lambda m: assign(m.needs[1].spread[0], "topology_key", "")),
        spoil("needs[1].spread[0].max_skew", lambda m: assign(m.needs[1].spread[0], "max_skew", 0)),
        spoil("needs[1].spread[0].when_unsatisfiable", lambda m: assign(m.needs[1].spread[0], "when_unsatisfiable", 0)),
        spoil("needs[1].interruption_penalty_bucket", lambda m: assign(m.needs[1], "interruption_penalty_bucket", 28)),
        spoil("needs[1].reclamation_penalty_bucket", lambda m: assign(m.needs[1], "reclamation_penalty_bucket", -1)),
        spoil("needs[0].aggregate_resources['cpu']", lambda m: m.needs[0].aggregate_resources.update({"cpu": "-1"})),
        spoil("needs[0].aggregate_resources['gpu']", lambda m: m.needs[0].aggregate_resources.update({"gpu": "two"})),
        spoil("needs[0].aggregate_resources['']", lambda m: m.needs[0].aggregate_resources.update({"": "1"})),
        spoil("needs[1].min_unit['memory']", lambda m: m.needs[1].min_unit.update({"memory": "1e99"})),
        spoil("needs[1].min_unit", lambda m: m.needs[1].min_unit.clear()),
        spoil("needs[0].min_unit", lambda m: m.needs[0].min_unit.update({"cpu": "0"})),
        spoil("needs[1].max_per_machine", lambda m: assign(m.needs[1], "max_per_machine", -1)),
        spoil("daemons[0].resources['cpu']", lambda m: m.daemons[0].resources.update({"cpu": ""})),
        spoil("daemons[0].requirements[0].key", lambda m: m.daemons[0].requirements.add(operator=3)),
        spoil("empty_nodes[0]", lambda m: m.empty_nodes.__setitem__(0, "")),
        spoil("unrequested_nodes[0].node", lambda m: assign(m.unrequested_nodes[0], "node", "")),
        spoil(
            "unrequested_nodes[0].reclamation_penalty_bucket",
            lambda m: assign(m.unrequested_nodes[0], "reclamation_penalty_bucket", 1000),
        ),
    ],
)
def test_a_malformed_rollup_is_refused_with_the_path_to_the_fault(
    path: str, change: Callable[[pb.ClusterCapacityNeeds], object]
) -> None:
    message = good()
    rollup_from_wire(message)
    change(message)
    with pytest.raises(WireError) as caught:
        rollup_from_wire(message)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


@settings(max_examples=500)
@given(st.binary(max_size=60), st.integers(0, 10**6), st.integers(0, 7))
def test_bytes_gone_wrong_are_refused_and_never_crash_the_converter(noise: bytes, where: int, bit: int) -> None:
    sent = bytearray(good().SerializeToString())
    sent[where % len(sent)] ^= 1 << bit
    for candidate in (bytes(sent), bytes(sent[: where % len(sent)]) + noise, noise):
        try:
            message = pb.ClusterCapacityNeeds.FromString(candidate)
        except DecodeError:
            continue
        try:
            rollup_from_wire(message)
        except WireError as error:
            assert error.path


wild = st.builds(
    pb.CapacityNeed,
    requirements=st.lists(
        st.builds(
            pb.NodeSelectorRequirement,
            key=st.text(max_size=2),
            operator=st.integers(-1, 7),
            values=st.lists(st.text(max_size=2), max_size=2),
        ),
        max_size=2,
    ),
    aggregate_resources=st.dictionaries(st.text(max_size=3), st.text("0123456789.-eEKimn", max_size=6), max_size=2),
    min_unit=st.dictionaries(st.text(max_size=3), st.text("0123456789.-eEKimn", max_size=6), max_size=2),
    spread=st.lists(st.builds(pb.TopologySpread, max_skew=st.integers(-1, 2), when_unsatisfiable=st.integers(0, 3))),
    interruption_penalty_bucket=st.integers(-(2**31), 2**31 - 1),
    max_per_machine=st.integers(-2, 2),
)


@settings(max_examples=500)
@given(wild)
def test_a_wild_row_is_read_or_refused_and_nothing_else(message: pb.CapacityNeed) -> None:
    try:
        need = need_from_wire(message)
    except WireError as error:
        assert error.path.startswith("need")
        assert len(str(error)) < 400
    else:
        assert need_from_wire(need_to_wire(need)) == need
