"""Lists over a real connection: every machine once, bad records refused by name, and the event loop left free."""

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bigfleet.model.demand.profile import Operator, Requirement
from bigfleet.model.machine import MachineState
from bigfleet.provider import client as client_module
from bigfleet.provider.decode import PageReader, slices
from bigfleet.provider.errors import BrokenContractError
from bigfleet.provider.records import Gathering, MachinePage, Refusal
from bigfleet.wire.machines import machine_from_wire
from bigfleet.wire.needs import requirements_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

if TYPE_CHECKING:
    from tests.provider.scripted_provider import MakeRig, Rig

Record = Callable[..., pb.Machine]


def read(raw: bytes) -> MachinePage:
    reader = PageReader(raw)
    while reader.step():
        pass
    return reader.page()


def paged(rig: "Rig", records: list[pb.Machine]) -> None:
    """The provider keeps these, in this order, and its cursor is a place among them."""

    async def behave(asked: pb.ListFilter) -> pb.MachineList:
        start = int(asked.since_revision or b"0")
        end = min(start + asked.max_results, len(records)) if asked.max_results else len(records)
        return pb.MachineList(machines=records[start:end], revision=b"%d" % end)

    rig.script.behave = behave


async def test_a_full_list_is_all_pages_together(make_rig: "MakeRig", record: Record) -> None:
    async with make_rig(page_rows=3) as rig:
        records = [record(f"m-{i}", state=1 + i % 7) for i in range(8)]
        paged(rig, records)
        listing = await rig.client.list()
    assert listing.machines == {r.id: machine_from_wire(r) for r in records}
    assert (listing.refused, listing.cursor, listing.full, listing.began) == ((), b"8", True, 1000.0)
    assert [(asked.since_revision, asked.max_results) for _, asked in rig.script.asked] == [
        (b"", 3),
        (b"3", 3),
        (b"6", 3),
        (b"8", 3),
    ]


async def test_a_delta_goes_on_from_its_cursor_and_is_not_full(make_rig: "MakeRig", record: Record) -> None:
    async with make_rig(page_rows=3) as rig:
        paged(rig, [record(f"m-{i}") for i in range(8)])
        listing = await rig.client.list(since=b"6")
        assert (list(listing.machines), listing.cursor, listing.full) == (["m-6", "m-7"], b"8", False)
        again = await rig.client.list(since=listing.cursor)
        assert (again.machines, again.cursor) == ({}, b"8")


async def test_a_page_that_fails_is_asked_for_again_alone(make_rig: "MakeRig", record: Record) -> None:
    async with make_rig(page_rows=1) as rig:
        rig.script.replies += [
            pb.MachineList(machines=[record("a")], revision=b"1"),
            grpc.StatusCode.UNAVAILABLE,
            pb.MachineList(machines=[record("b")], revision=b"2"),
            pb.MachineList(revision=b"2"),
        ]
        listing = await rig.client.list()
        assert sorted(listing.machines) == ["a", "b"]
        assert [asked.since_revision for _, asked in rig.script.asked] == [b"", b"1", b"1", b"2"]
        # Lagging rows are judged by when the whole list began, however long it took.
        assert listing.began == 1000.0 < rig.time.now


async def test_a_list_asked_for_by_labels_says_so_on_every_page(make_rig: "MakeRig", record: Record) -> None:
    selector = (Requirement("rack", Operator.IN, ("r1", "r2")),)
    async with make_rig(page_rows=1) as rig:
        paged(rig, [record("a"), record("b")])
        await rig.client.list(selector=selector)
        assert len(rig.script.asked) == 3
        for _, asked in rig.script.asked:
            assert list(asked.label_selector) == requirements_to_wire(selector)


async def test_rows_that_change_during_the_walk_are_as_they_were_last(make_rig: "MakeRig", record: Record) -> None:
    async with make_rig(page_rows=2) as rig:
        rig.script.replies += [
            pb.MachineList(machines=[record("a"), record("b")], revision=b"1"),
            pb.MachineList(machines=[record("c"), record("a", pb.MACHINE_STATE_DELETING)], revision=b"2"),
            pb.MachineList(machines=[record("a", pb.MACHINE_STATE_SPECULATIVE)], revision=b"3"),
        ]
        listing = await rig.client.list()
    assert {i: m.state.label for i, m in listing.machines.items()} == {"a": "Speculative", "b": "Idle", "c": "Idle"}


async def test_pages_come_one_at_a_time(make_rig: "MakeRig", record: Record) -> None:
    async with make_rig(page_rows=2) as rig:
        paged(rig, [record(f"m-{i}") for i in range(3)])
        assert [list(page.machines) async for page in rig.client.pages()] == [["m-0", "m-1"], ["m-2"], []]


async def test_bad_records_are_refused_by_id_and_rule_and_the_others_taken(rig: "Rig", record: Record) -> None:
    records = [
        record("good"),
        record("priceless", price_per_hour=math.inf),
        record("unlikely", interruption_probability=2),
        record("both", price_per_hour=-1, interruption_probability=math.nan),
        record("torn", cluster="prod"),
        pb.Machine(state=pb.MACHINE_STATE_IDLE),
        record("twin"),
        record("twin", pb.MACHINE_STATE_CREATING),
        record("bad-twin", price_per_hour=-1),
        record("bad-twin"),
    ]
    paged(rig, records)
    with capture_logs() as logs:
        listing = await rig.client.list()
    assert list(listing.machines) == ["good"]
    assert [(r.machine_id, r.reason, r.field) for r in listing.refused] == [
        ("priceless", "price", "price_per_hour"),
        ("unlikely", "interruption_probability", "interruption_probability"),
        ("both", "price", "price_per_hour"),
        ("torn", "structural", "cluster"),
        ("", "structural", "id"),
        ("bad-twin", "structural", "id"),
        ("twin", "structural", "id"),
    ]
    assert [r.machine_id for r in listing.refused if r.rest is not None] == ["priceless", "unlikely", "both"]
    for reason, count in (("price", 2), ("interruption_probability", 1), ("structural", 4)):
        assert rig.count("bigfleet_shard_machines_rejected_total", reason=reason) == count
    assert [(line["event"], line["machine"]) for line in logs] == [
        ("provider_broke_contract", r.machine_id) for r in listing.refused
    ]


async def test_a_flood_of_bad_records_is_counted_whole_and_logged_in_part(rig: "Rig", record: Record) -> None:
    paged(rig, [record(f"m-{i}", price_per_hour=-1) for i in range(50)])
    with capture_logs() as logs:
        await rig.client.list()
    assert len(logs) == 11
    assert (logs[-1]["event"], logs[-1]["count"]) == ("provider_refusals_not_shown", 40)
    assert rig.count("bigfleet_shard_machines_rejected_total", reason="price") == 50


def test_what_is_spoiled_is_taken_from_the_last_good_record(record: Record) -> None:
    bad = record("m", pb.MACHINE_STATE_DRAINING, price_per_hour=-1, interruption_probability=7, zone="new")
    (refusal,) = read(pb.MachineList(machines=[bad]).SerializeToString()).refused
    good = machine_from_wire(record("m", price_per_hour=9, interruption_probability=0.5, zone="old"))
    mended = refusal.mended(good)
    assert (mended.price_per_hour, mended.interruption_probability) == (9, 0.5)
    assert (mended.state, mended.zone) == (MachineState.DRAINING, "new")
    torn = Refusal("m", "structural", "cluster", "must be empty")
    assert torn.mended(good) is good


@pytest.mark.parametrize("bad_first", [False, True])
def test_of_a_bad_and_a_good_row_about_a_machine_the_later_one_tells_its_state(record: Record, bad_first: bool) -> None:
    bad = record("m", pb.MACHINE_STATE_DRAINING, price_per_hour=-1)
    good = record("m", pb.MACHINE_STATE_CONFIGURED, price_per_hour=2.5)
    gathering = Gathering()
    for row in (bad, good) if bad_first else (good, bad):
        gathering.add(read(pb.MachineList(machines=[row]).SerializeToString()))
    listing = gathering.listing(b"", full=True, began=0.0)
    state = MachineState.CONFIGURED if bad_first else MachineState.DRAINING
    assert (listing.machines["m"].state, listing.machines["m"].price_per_hour) == (state, 2.5)
    # It is told of, but must not be mended once more by something older.
    assert [(r.machine_id, r.rest) for r in listing.refused] == [("m", None)]


async def test_a_cursor_out_of_all_measure_breaks_the_contract(rig: "Rig") -> None:
    rig.script.replies.append(pb.MachineList(revision=b"x" * 100_000))
    with pytest.raises(BrokenContractError, match="revision: has 100,000 bytes"):
        await rig.client.list()


async def test_a_list_without_end_breaks_the_contract(
    make_rig: "MakeRig", record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MOST_MACHINES", 20)
    async with make_rig(page_rows=5) as rig:

        async def endless(asked: pb.ListFilter) -> pb.MachineList:
            start = int(asked.since_revision or b"0")
            records = [record(f"m{start + i}") for i in range(5)]
            return pb.MachineList(machines=records, revision=b"%d" % (start + 5))

        rig.script.behave = endless
        with pytest.raises(BrokenContractError, match="more than 20 machines"):
            await rig.client.list()


async def test_cancelling_a_list_ends_it_in_the_middle(make_rig: "MakeRig", record: Record) -> None:
    async with make_rig(page_rows=1) as rig:
        second = asyncio.Event()

        async def behave(asked: pb.ListFilter) -> pb.MachineList:
            if asked.since_revision:
                second.set()
                await asyncio.Event().wait()
            return pb.MachineList(machines=[record("a")], revision=b"1")

        rig.script.behave = behave
        listing = asyncio.create_task(rig.client.list())
        await second.wait()
        listing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listing


async def test_other_work_has_its_turn_while_a_list_is_read(rig: "Rig", record: Record) -> None:
    records = [record(f"m-{i}", labels={"rack": f"r{i}", "filling": "x" * 500}) for i in range(4000)]
    rig.script.replies.append(pb.MachineList(machines=records).SerializeToString())
    turns, reading = 0, True

    async def work() -> None:
        nonlocal turns
        while reading:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(work())
    listing = await rig.client.list()
    before, reading = turns, False
    await working
    assert len(listing.machines) == 4000
    # One turn for each of the slices at the least: nothing is read on the event loop itself.
    assert before > len(list(slices(pb.MachineList(machines=records).SerializeToString()))) > 5


lists = st.lists(st.integers(0, 300), max_size=12).map(
    lambda sizes: pb.MachineList(
        machines=[pb.Machine(id=f"m{i}", last_error="e" * size) for i, size in enumerate(sizes)], revision=b"end"
    )
)


@given(lists, st.integers(1, 500))
def test_slices_hold_what_the_whole_holds(message: pb.MachineList, size: int) -> None:
    raw = message.SerializeToString()
    parts = list(slices(raw, size))
    assert b"".join(parts) == raw
    assert [m for part in parts for m in pb.MachineList.FromString(part).machines] == list(message.machines)


@given(st.binary(max_size=80), st.integers(1, 40))
def test_slices_of_any_bytes_are_those_bytes(raw: bytes, size: int) -> None:
    assert b"".join(slices(raw, size)) == raw


def test_a_field_of_a_later_contract_is_passed_over(record: Record) -> None:
    unknown = b"\x9a\x06\x03abc"
    raw = unknown + pb.MachineList(machines=[record("a")], revision=b"r").SerializeToString() + unknown
    page = read(raw)
    assert (list(page.machines), page.revision, page.rows) == (["a"], b"r", 1)


def test_a_cursor_that_comes_before_the_machines_is_found(record: Record) -> None:
    records = [record(f"m-{i}", last_error="e" * 200_000) for i in range(5)]
    raw = pb.MachineList(revision=b"r").SerializeToString() + pb.MachineList(machines=records).SerializeToString()
    assert len(list(slices(raw))) > 1
    page = read(raw)
    assert (page.revision, page.rows) == (b"r", 5)
