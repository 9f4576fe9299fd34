"""A binding's stamp survives the trip through a provider, and what does not is never taken for one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.engine.records import Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.model.resources import MAX_UNITS
from bigfleet.shard.supply.stamps import (
    MAX_BYTES,
    NOT_OURS,
    PREFIX,
    Binding,
    Garbled,
    StampTooLongError,
    from_metadata,
    number_of,
    to_metadata,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
# What protobuf can carry: any text without lone surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
UNITS = st.dictionaries(TEXT.filter(bool), st.integers(1, MAX_UNITS), max_size=4).map(
    lambda d: tuple(sorted(d.items()))
)
BUCKETS = st.sampled_from(PenaltyBucket)
STAMPS = st.builds(Stamp, st.builds(NeedKey, TEXT, TEXT, UNITS), INT32, BUCKETS, BUCKETS, st.integers(0, 2**62 - 1))
SHARDS = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,30}[A-Za-z0-9])?", fullmatch=True)
BINDINGS = st.builds(Binding, STAMPS, SHARDS, st.integers(0, 2**63 - 1), st.integers(0, 2**40))

STAMP = Stamp(
    NeedKey("5f0c" * 8, "gang-7", (("cpu", 4000), ("memory", 2**24))), 100, PenaltyBucket.ZERO, PenaltyBucket.P_1, 8812
)
BINDING = Binding(STAMP, "eu-1", 1767225601, 1767225744)


def machine(metadata: dict[str, str]) -> Machine:
    return Machine(
        id="m-1",
        state=MachineState.CONFIGURED,
        instance_type="c8",
        capacity_type=CapacityType.ON_DEMAND,
        host=Host("sim", "i-1"),
        cluster="prod",
        shard_metadata=metadata,
    )


@given(BINDINGS)
def test_any_stamp_comes_back_as_it_was_written(binding: Binding) -> None:
    assert from_metadata(to_metadata(binding)) == binding


def test_a_stamp_is_four_texts_that_a_person_can_read_and_its_form_never_changes() -> None:
    assert to_metadata(BINDING) == {
        "bigfleet.lucy.sh/stamp": "1",
        "bigfleet.lucy.sh/shard": "eu-1 1767225601",
        "bigfleet.lucy.sh/need": f'["{"5f0c" * 8}","gang-7",[["cpu",4000],["memory",16777216]],100,1,3]',
        "bigfleet.lucy.sh/binding": "8812 1767225744 7a347746",
    }


@given(BINDINGS, st.data())
def test_a_changed_value_is_the_same_stamp_or_refused(binding: Binding, data: st.DataObject) -> None:
    metadata = to_metadata(binding)
    key = data.draw(st.sampled_from(sorted(metadata)))
    text = metadata[key]
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, min(len(text), at + 3)))
    digits = st.text("0123456789 .-+eE_abcdef", max_size=3)
    metadata[key] = text[:at] + data.draw(st.one_of(digits, TEXT)) + text[until:]
    verdict = from_metadata(metadata)
    assert isinstance(verdict, Garbled) or verdict == binding


@given(BINDINGS, st.data())
def test_a_lost_or_added_key_is_refused(binding: Binding, data: st.DataObject) -> None:
    metadata = to_metadata(binding)
    assert isinstance(from_metadata(metadata | {data.draw(TEXT): ""}), Garbled)
    del metadata[data.draw(st.sampled_from(sorted(metadata)))]
    assert isinstance(from_metadata(metadata), Garbled)


@given(BINDINGS, BINDINGS, st.sampled_from(sorted(to_metadata(BINDING))))
def test_parts_of_two_stamps_are_no_stamp(one: Binding, other: Binding, key: str) -> None:
    mixed = to_metadata(one) | {key: to_metadata(other)[key]}
    verdict = from_metadata(mixed)
    assert isinstance(verdict, Garbled) or mixed in (to_metadata(one), to_metadata(other))


@given(st.dictionaries(st.one_of(TEXT, st.sampled_from(sorted(to_metadata(BINDING)))), TEXT))
def test_nothing_a_provider_says_raises(metadata: dict[str, str]) -> None:
    verdict = from_metadata(metadata)
    ours = any(key.startswith(PREFIX) for key in metadata)
    assert isinstance(verdict, Garbled) if ours else verdict is NOT_OURS


@pytest.mark.parametrize(
    "need", ["[" * 5000, '["a"', "9" * 5000, '["","",[["cpu",-1]],0,1,1]', '["","",[],0,0,1]', "null"]
)
def test_a_garbled_need_is_refused_by_name(need: str) -> None:
    assert from_metadata(to_metadata(BINDING) | {f"{PREFIX}need": need}) == Garbled(f"{PREFIX}need is no need")


@pytest.mark.parametrize(
    "binding",
    [
        Binding(STAMP, "eu-1", 2**63, 1),
        Binding(STAMP, "eu-1", -1, 1),
        Binding(STAMP, "eu-1", 1, 2**62),
        Binding(msgspec.structs.replace(STAMP, number=2**62), "eu-1", 1, 1),
        Binding(msgspec.structs.replace(STAMP, priority=2**31), "eu-1", 1, 1),
        Binding(STAMP, "eu 1", 1, 1),
    ],
)
def test_a_stamp_that_the_wire_or_the_engine_could_not_hold_is_refused_though_its_checksum_fits(
    binding: Binding,
) -> None:
    assert isinstance(from_metadata(to_metadata(binding)), Garbled)


def test_metadata_longer_than_any_stamp_is_not_read() -> None:
    verdict = from_metadata(to_metadata(BINDING) | {f"{PREFIX}need": "9" * MAX_BYTES})
    assert isinstance(verdict, Garbled)
    assert "65,536 bytes" in verdict.reason


def test_metadata_of_a_later_form_is_refused_and_says_why() -> None:
    verdict = from_metadata(to_metadata(BINDING) | {f"{PREFIX}stamp": "2"})
    assert isinstance(verdict, Garbled)
    assert "newer release" in verdict.reason


def test_a_stamp_too_long_to_be_read_back_is_not_written() -> None:
    key = NeedKey("f", "g" * MAX_BYTES, ())
    with pytest.raises(StampTooLongError, match=r"'eu-1'.*group 'ggg"):
        to_metadata(Binding(Stamp(key, 0, PenaltyBucket.ZERO, PenaltyBucket.ZERO, 1), "eu-1", 1, 1))


@pytest.mark.parametrize("length", [500, 2000, MAX_BYTES - 300])
def test_stamps_too_long_to_be_shared_are_read_all_the_same(length: int) -> None:
    stamp = Stamp(NeedKey("f", "g" * length, ()), 0, PenaltyBucket.ZERO, PenaltyBucket.PINNED, 1)
    assert from_metadata(to_metadata(Binding(stamp, "eu-1", 1, 1))) == Binding(stamp, "eu-1", 1, 1)


def test_machines_of_one_need_share_its_key() -> None:
    one, other = (from_metadata(to_metadata(Binding(STAMP, "eu-1", 1, at))) for at in (1, 2))
    assert isinstance(one, Binding)
    assert isinstance(other, Binding)
    assert one.stamp.key is other.stamp.key


def test_rule_25_another_shards_stamp_is_known_for_what_it_is() -> None:
    verdict = from_metadata(to_metadata(Binding(STAMP, "us-2", 9, 5)))
    assert isinstance(verdict, Binding)
    assert verdict.shard_id == "us-2"


@pytest.mark.parametrize(("text", "number"), [("12 5 00ff", 12), ("", 0), ("x 5 00ff", 0), ("9" * 20, 0)])
def test_a_bindings_number_is_read_without_checking(text: str, number: int) -> None:
    assert number_of({f"{PREFIX}binding": text}) == number
