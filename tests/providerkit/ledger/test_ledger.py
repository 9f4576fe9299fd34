"""The kit's ledger against plain oracles of the contract: fencing, repeats, the life cycle, revisions and cursors."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.model.machine import EDGES, Call, MachineState, check_invariants
from bigfleet.providerkit import Change, Notice, Offer, OfferError
from bigfleet.providerkit.ledger.entry import Entry, ended, failed, noticed
from bigfleet.providerkit.ledger.fence import Mark, Token
from bigfleet.providerkit.ledger.ledger import (
    FencedError,
    IllegalError,
    Ledger,
    RefusedError,
    Request,
    UnknownMachineError,
    UnsupportedError,
)
from bigfleet.providerkit.ledger.render import Renderer
from bigfleet.providerkit.ledger.revisions import Revisions
from bigfleet.wire.machines import machine_from_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.providerkit.toy import SHAPE

S = MachineState


def ledger(*machines: str, deletes: bool = True, host: str = "") -> Ledger:
    return Ledger([Offer(machine, SHAPE, host) for machine in machines], (), (), deletes=deletes)


def ask(subject: Ledger, call: Call, machine: str = "m", **fields: object) -> tuple[str, Entry]:
    """Judge a call and settle it; the operation's id and the machine right after, or the refusal raised."""
    judgement = subject.judge(Request(call=call, machine=machine, **fields))  # type: ignore[arg-type]
    subject.settle(judgement)
    if isinstance(judgement.answer, RefusedError):
        raise judgement.answer
    return judgement.answer[0].id, judgement.answer[1]


def finish(subject: Ledger, machine: str = "m", host: str = "h") -> None:
    entry = subject.get(machine)
    assert entry.running is not None
    subject.install(ended(entry, entry.running, host))


def mark(shard: str, epoch: int, sequence: int, machine: str = "m") -> Mark:
    return Mark(machine, shard, Token(epoch, sequence))


class TestFencing:
    @given(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from(["m", "n", "ghost"]), st.integers(0, 3), st.integers(0, 3))
        )
    )
    def test_a_token_passes_exactly_when_it_is_newer_than_all_of_its_shard_on_that_machine(
        self, tokens: list[tuple[str, str, int, int]]
    ) -> None:
        subject, seen = ledger("m", "n"), dict[tuple[str, str], tuple[int, int]]()
        for shard, machine, epoch, sequence in tokens:
            fenced = (epoch, sequence) <= seen.get((shard, machine), (-1, -1))
            try:
                ask(subject, Call.DRAIN, machine, mark=mark(shard, epoch, sequence, machine))
            except FencedError:
                assert fenced
            except (IllegalError, UnknownMachineError):
                # Refused for another reason, and the mark moves all the same.
                assert not fenced
                seen[shard, machine] = (epoch, sequence)

    def test_it_comes_before_everything_else(self) -> None:
        subject = ledger("m", deletes=False, host="h")
        for machine in ("m", "ghost"):
            with pytest.raises(RefusedError):
                ask(subject, Call.DELETE, machine, mark=mark("s", 5, 5, machine))
            with pytest.raises(FencedError, match="epoch 5, sequence 5"):
                ask(subject, Call.DELETE, machine, mark=mark("s", 5, 5, machine))

    def test_no_token_is_never_fenced(self) -> None:
        subject = ledger("m")
        ask(subject, Call.CREATE, mark=mark("s", 9, 9))
        assert ask(subject, Call.CREATE)[1].state is S.CREATING

    def test_what_is_remembered_of_unknown_machines_is_bounded(self) -> None:
        subject = ledger("m")
        forgotten = []
        for i in range(65_537):
            judgement = subject.judge(Request(call=Call.CREATE, machine=f"g{i}", mark=mark("s", 1, 1, f"g{i}")))
            forgotten.append(subject.settle(judgement))
        assert [name for name in forgotten if name] == ["g0"]
        with pytest.raises(UnknownMachineError):
            ask(subject, Call.CREATE, "g0", mark=mark("s", 1, 1, "g0"))

    def test_a_machine_that_was_unknown_once_keeps_its_marks_however_many_unknown_ones_come(self) -> None:
        subject = ledger("m")
        with pytest.raises(UnknownMachineError):
            ask(subject, Call.CREATE, "late", mark=mark("s", 9, 9, "late"))
        subject.offer([Offer("m", SHAPE), Offer("late", SHAPE)])
        ask(subject, Call.CREATE, "late", mark=mark("s", 9, 10, "late"))
        for i in range(65_540):
            subject.settle(subject.judge(Request(call=Call.CREATE, machine=f"g{i}", mark=mark("s", 1, 1, f"g{i}"))))
        with pytest.raises(FencedError):
            ask(subject, Call.CREATE, "late", mark=mark("s", 9, 10, "late"))


class TestRepeats:
    def test_a_repeat_under_way_and_when_done_has_the_same_operation_and_starts_nothing(self) -> None:
        subject = ledger("m")
        for call, fields in (
            (Call.CREATE, {}),
            (Call.CONFIGURE, {"cluster": "c", "metadata": {"k": "v"}}),
            (Call.DRAIN, {"grace_seconds": 5}),
            (Call.DELETE, {}),
        ):
            first, shown = ask(subject, call, **fields)
            assert ask(subject, call, **fields) == (first, shown)
            finish(subject)
            again, shown = ask(subject, call, **fields)
            assert again == first
            assert shown == subject.get("m")
            assert not subject.judge(Request(call=call, machine="m", **fields)).starts

    def test_a_second_round_has_new_operations(self) -> None:
        subject = ledger("m")
        rounds = []
        for _ in range(2):
            ids = []
            for call in (Call.CREATE, Call.CONFIGURE, Call.DRAIN, Call.DELETE):
                ids.append(ask(subject, call, cluster="c" if call is Call.CONFIGURE else "")[0])
                finish(subject)
            rounds.append(ids)
        assert not set(rounds[0]) & set(rounds[1])

    @pytest.mark.parametrize("done", [False, True])
    def test_configure_for_another_cluster_is_no_repeat(self, done: bool) -> None:
        subject = ledger("m", host="h")
        ask(subject, Call.CONFIGURE, cluster="c")
        if done:
            finish(subject)
        with pytest.raises(IllegalError):
            ask(subject, Call.CONFIGURE, cluster="d")
        assert subject.get("m").cluster == "c"

    def test_a_drain_of_an_earlier_life_is_not_repeated_on_a_fresh_host(self) -> None:
        subject = ledger("m")
        for call in (Call.CREATE, Call.CONFIGURE, Call.DRAIN, Call.DELETE, Call.CREATE):
            ask(subject, call, cluster="c" if call is Call.CONFIGURE else "")
            finish(subject)
        with pytest.raises(IllegalError):
            ask(subject, Call.DRAIN)

    def test_hardware_cannot_be_deleted_even_as_a_repeat(self) -> None:
        with pytest.raises(UnsupportedError, match=r"'m'.*cannot be deleted"):
            ask(ledger("m", deletes=False, host="h"), Call.DELETE)


_STEPS = st.one_of(
    st.tuples(st.sampled_from(Call), st.sampled_from(["c", "d"])),
    st.sampled_from(["finish", "fail", *Change]),
)


@settings(max_examples=300)
@given(st.lists(_STEPS, max_size=30))
def test_whatever_happens_every_record_is_well_formed_and_every_step_legal(steps: list[object]) -> None:
    subject, render = ledger("m"), Renderer("toy")
    before = subject.get("m").state
    for step in steps:
        entry = subject.get("m")
        changed: Entry | None = None
        match step:
            case (Call() as call, str() as cluster):
                try:
                    ask(subject, call, cluster=cluster, metadata={"of": cluster})
                except IllegalError:
                    assert subject.get("m") is entry
            case Change() as change:
                changed = noticed(entry, Notice("m", change), deletes=True)
            case "finish" if entry.running is not None:
                changed = ended(entry, entry.running, "h")
            case "fail" if entry.running is not None:
                changed = failed(entry, "boom")
        if changed is not None:
            subject.install(changed)
        entry = subject.get("m")
        record = machine_from_wire(pb.Machine.FromString(render.machine(entry)))
        check_invariants(record)
        assert bool(record.cluster) == bool(record.shard_metadata)
        assert record.shard_metadata.get("of", "") == record.cluster
        assert entry.state is before or (before, entry.state) in EDGES
        before = entry.state
        assert subject.counts[entry.state] == 1 == subject.counts.total()


class TestOffers:
    def test_a_changed_offer_changes_the_machine_and_an_equal_one_does_not(self) -> None:
        subject = ledger("m", "n")
        cursor = subject.changed(b"", 0, _any)[1]
        subject.offer([Offer("m", SHAPE), Offer("n", SHAPE)])
        assert subject.changed(cursor, 0, _any)[0] == []

    def test_one_that_is_offered_no_more_stays_for_as_long_as_it_has_a_host(self) -> None:
        subject = ledger("m", "n")
        ask(subject, Call.CREATE, "m")
        subject.offer([])
        assert [entry.id for entry in subject] == ["m"]
        finish(subject)
        ask(subject, Call.DELETE)
        finish(subject)
        assert len(subject) == 0
        assert subject.counts.total() == 0
        assert subject.changed(b"", 0, _any)[0] == []

    def test_the_same_id_twice_is_refused_by_name(self) -> None:
        with pytest.raises(OfferError, match="'m': is offered twice"):
            ledger("m", "m")


_any: Callable[[Entry], bool] = lambda _entry: True  # noqa: E731


class TestRevisions:
    @given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), max_size=12), st.integers(1, 5))
    def test_a_delta_holds_exactly_what_changed_since_and_pages_lose_nothing(
        self, rounds: list[list[str]], page: int
    ) -> None:
        subject = Revisions()
        for changes in rounds:
            cursor = subject.cursor()
            for machine in changes:
                subject.bump(machine)
            delta = [machine for _, machine in subject.since(cursor)]
            assert len(delta) == len(set(delta))
            assert set(delta) == set(changes)
            paged, at = list[str](), cursor
            while chunk := list(subject.since(at))[:page]:
                paged += [machine for _, machine in chunk]
                at = subject.cursor(chunk[-1][0])
            assert paged == delta

    def test_many_changes_of_few_machines_take_little_room(self) -> None:
        subject = Revisions()
        for i in range(50_000):
            subject.bump(f"m{i % 10}")
        assert len(subject._ids) < 3_000
        assert len(list(subject.since(b""))) == 10

    @given(st.binary(max_size=40))
    def test_garbage_means_everything(self, cursor: bytes) -> None:
        subject = Revisions()
        subject.bump("m")
        assert [machine for _, machine in subject.since(cursor)] == ["m"]

    def test_a_cursor_of_another_life_or_of_the_future_means_everything(self) -> None:
        subject, other = Revisions(), Revisions()
        for each in (subject, other):
            each.bump("m")
        assert list(subject.since(other.cursor()))
        assert list(subject.since(subject.cursor(99)))
        assert not list(subject.since(subject.cursor()))
