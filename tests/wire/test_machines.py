import math
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bigfleet.model.machine import CapacityType, Host, InvariantError, Machine, MachineState, check_invariants
from bigfleet.model.resources import MAX_UNITS
from bigfleet.wire.errors import MachineRefusedError
from bigfleet.wire.machines import machine_from_wire, machine_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
filled = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
vectors = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(1, MAX_UNITS), max_size=3).map(
    lambda d: tuple(sorted(d.items()))
)
machines = st.builds(
    Machine,
    id=filled,
    state=st.sampled_from(MachineState),
    instance_type=filled,
    capacity_type=st.sampled_from(CapacityType),
    host=st.none() | st.builds(Host, filled, filled),
    zone=text,
    price_per_hour=st.floats(0, 1e9),
    interruption_probability=st.floats(0, 1, exclude_min=True),
    resources=vectors,
    allocatable=st.none() | vectors,
    labels=st.dictionaries(text, text, max_size=3),
    last_error=text,
    cluster=text,
    shard_metadata=st.dictionaries(text, text, max_size=3),
)


@given(machines)
def test_a_well_formed_machine_survives_the_wire(machine: Machine) -> None:
    try:
        check_invariants(machine)
    except InvariantError:
        assume(False)
    sent = machine_to_wire(machine).SerializeToString()
    assert machine_from_wire(pb.Machine.FromString(sent)) == machine


@given(machines)
def test_a_machine_that_contradicts_itself_is_refused_with_the_field(machine: Machine) -> None:
    try:
        check_invariants(machine)
    except InvariantError as error:
        with pytest.raises(MachineRefusedError) as caught:
            machine_from_wire(machine_to_wire(machine))
        assert (caught.value.machine_id, caught.value.reason) == (machine.id, "structural")
        assert error.field in caught.value.path


def good() -> pb.Machine:
    return pb.Machine(
        id="m-7",
        state=pb.MACHINE_STATE_CONFIGURED,
        host=pb.HostRef(provider="aws", ref="i-7"),
        instance_type="c8",
        zone="eu-1a",
        capacity_type=pb.CAPACITY_TYPE_SPOT,
        price_per_hour=0.4,
        interruption_probability=0.05,
        resources=pb.Resources(resources={"cpu": "8", "memory": "16Gi"}),
        allocatable=pb.Resources(resources={"cpu": "7910m", "memory": "15000000001"}),
        labels={"rack": "r1"},
        cluster="prod",
        shard_metadata={"k": "\x00v"},
    )


def test_supply_is_rounded_down() -> None:
    assert machine_from_wire(good()).allocatable == (("cpu", 7910), ("memory", 15000000001 // 1024))


def test_metadata_is_echoed_untouched() -> None:
    assert machine_from_wire(good()).shard_metadata == {"k": "\x00v"}
    assert dict(machine_to_wire(machine_from_wire(good())).shard_metadata) == {"k": "\x00v"}


def test_nothing_allocatable_is_not_everything() -> None:
    message = good()
    message.allocatable.resources.clear()
    message.allocatable.resources["cpu"] = "0"
    assert machine_from_wire(message).usable == ()
    message.ClearField("allocatable")
    assert machine_from_wire(message).usable == machine_from_wire(message).resources


def test_what_machines_have_in_common_is_kept_once() -> None:
    first, second = machine_from_wire(good()), machine_from_wire(pb.Machine.FromString(good().SerializeToString()))
    assert first.host is not None
    assert second.host is not None
    assert first.host.provider is second.host.provider
    for field in ("instance_type", "zone", "cluster", "price_per_hour", "resources", "allocatable", "labels"):
        assert getattr(first, field) is getattr(second, field), field
    assert first.shard_metadata["k"] is second.shard_metadata["k"]


def test_the_order_in_which_labels_were_written_makes_no_difference() -> None:
    names = [f"label-{i}" for i in range(20)]
    found = []
    for order in (names, names[::-1]):
        message = good()
        message.labels.clear()
        for name in order:
            message.labels[name] = "x"
        found.append(machine_from_wire(message).labels)
    assert found[0] is found[1]
    assert found[0] == dict.fromkeys(names, "x")


@pytest.mark.parametrize("field", ["labels", "shard_metadata"])
def test_endless_texts_are_taken_but_not_kept_for_others(field: str) -> None:
    message = good()
    getattr(message, field)["long"] = "x" * 2**20
    first, second = getattr(machine_from_wire(message), field), getattr(machine_from_wire(message), field)
    assert first == second == dict(getattr(message, field))
    assert first is not second


def test_a_record_with_a_bad_price_and_a_bad_probability_names_both_as_spoiled() -> None:
    message = good()
    message.price_per_hour, message.interruption_probability = -1, 7
    with pytest.raises(MachineRefusedError) as caught:
        machine_from_wire(message)
    assert (caught.value.reason, caught.value.field) == ("price", "price_per_hour")
    assert caught.value.spoiled == ("price_per_hour", "interruption_probability")


def test_a_bad_price_costs_the_price_and_nothing_else() -> None:
    message = good()
    message.price_per_hour = math.nan
    message.state = pb.MACHINE_STATE_DRAINING
    with pytest.raises(MachineRefusedError) as caught:
        machine_from_wire(message)
    rest = caught.value.rest
    assert rest is not None
    assert (rest.state, rest.price_per_hour, rest.interruption_probability) == (MachineState.DRAINING, 0.0, 0.05)


def test_an_error_about_an_endless_name_is_short() -> None:
    message = good()
    message.id, message.instance_type = "m" * 10_000_000, ""
    with pytest.raises(MachineRefusedError) as caught:
        machine_from_wire(message)
    assert len(str(caught.value)) < 600


def spoil(field: str, reason: str, change: Callable[[pb.Machine], object]) -> Any:
    return pytest.param(field, reason, change, id=f"{field}-{reason}")


def assign(message: Any, field: str, value: object) -> None:
    setattr(message, field, value)


@pytest.mark.parametrize(
    ("field", "reason", "change"),
    [
        spoil("id", "structural", lambda m: assign(m, "id", "")),
        spoil("state", "structural", lambda m: assign(m, "state", 0)),
        spoil("state", "structural", lambda m: assign(m, "state", 9)),
        spoil("capacity_type", "structural", lambda m: assign(m, "capacity_type", 5)),
        spoil("instance_type", "structural", lambda m: assign(m, "instance_type", "")),
        spoil("host", "structural", lambda m: m.ClearField("host")),
        spoil("host.ref", "structural", lambda m: assign(m.host, "ref", "")),
        spoil("host.provider", "structural", lambda m: assign(m.host, "provider", "")),
        spoil("cluster", "structural", lambda m: assign(m, "cluster", "")),
        spoil("last_error", "structural", lambda m: assign(m, "state", pb.MACHINE_STATE_FAILED)),
        spoil("resources['cpu']", "structural", lambda m: m.resources.resources.update({"cpu": "-8"})),
        spoil("allocatable['gpu']", "structural", lambda m: m.allocatable.resources.update({"gpu": "x"})),
        spoil("price_per_hour", "price", lambda m: assign(m, "price_per_hour", -0.01)),
        spoil("price_per_hour", "price", lambda m: assign(m, "price_per_hour", math.nan)),
        spoil("price_per_hour", "price", lambda m: assign(m, "price_per_hour", math.inf)),
        spoil(
            "interruption_probability",
            "interruption_probability",
            lambda m: assign(m, "interruption_probability", 1.01),
        ),
        spoil(
            "interruption_probability",
            "interruption_probability",
            lambda m: assign(m, "interruption_probability", math.nan),
        ),
        spoil(
            "interruption_probability", "interruption_probability", lambda m: assign(m, "interruption_probability", 0)
        ),
    ],
)
def test_a_malformed_record_is_refused_with_machine_field_and_reason(
    field: str, reason: str, change: Callable[[pb.Machine], object]
) -> None:
    message = good()
    machine_from_wire(message)
    change(message)
    with pytest.raises(MachineRefusedError) as caught:
        machine_from_wire(message)
    assert caught.value.reason == reason
    assert caught.value.machine_id == message.id
    assert str(caught.value).startswith(f"machine {message.id!r}: {field}: ")


@settings(max_examples=500)
@given(st.binary(max_size=60), st.integers(0, 10**6), st.integers(0, 7))
def test_bytes_gone_wrong_are_refused_and_never_crash_the_converter(noise: bytes, where: int, bit: int) -> None:
    sent = bytearray(good().SerializeToString())
    sent[where % len(sent)] ^= 1 << bit
    for candidate in (bytes(sent), bytes(sent[: where % len(sent)]) + noise, noise):
        try:
            message = pb.Machine.FromString(candidate)
        except DecodeError:
            continue
        try:
            machine = machine_from_wire(message)
        except MachineRefusedError as error:
            assert error.reason in ("structural", "price", "interruption_probability")
        else:
            check_invariants(machine)


wild = st.builds(
    pb.Machine,
    id=st.text(max_size=3),
    state=st.integers(-1, 10),
    host=st.builds(pb.HostRef, provider=st.text(max_size=1), ref=st.text(max_size=1)),
    instance_type=st.text(max_size=1),
    capacity_type=st.integers(-1, 6),
    price_per_hour=st.floats(),
    interruption_probability=st.floats(-1, 2),
    resources=st.builds(
        pb.Resources, resources=st.dictionaries(st.text(max_size=3), st.text("0123456789.-eEKimn", max_size=6))
    ),
    last_error=st.text(max_size=1),
    cluster=st.text(max_size=1),
)


@settings(max_examples=500)
@given(wild)
def test_a_wild_record_is_read_or_refused_and_nothing_else(message: pb.Machine) -> None:
    try:
        machine = machine_from_wire(message)
    except MachineRefusedError as error:
        assert error.reason in ("structural", "price", "interruption_probability")
        assert len(str(error)) < 600
    else:
        assert machine_from_wire(machine_to_wire(machine)) == machine
