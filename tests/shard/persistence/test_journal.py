"""The local file: the next life reads what this one wrote, of a batch all or nothing, and a spoiled file is named."""

import enum
import itertools
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.engine.records import Action, Kind, Stamp
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.shard.decision.holdouts import KeptHold, KeptHoldOuts, KeptShape
from bigfleet.shard.demand.table import KeptCluster
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.execution.effects import Effect, Keep, ProviderCall
from bigfleet.shard.execution.steps import Step
from bigfleet.shard.persistence.journal import RESTORE, Journal, JournalError
from bigfleet.shard.persistence.kept import Batch, Kept, Values
from tests.shard.execution.alone import LifecycleAlone
from tests.shared.program import child

KEY = NeedKey("5f0c" * 8, "gang-7", (("cpu", 4000), ("memory", 2**24)))
STAMP = Stamp(KEY, 100, PenaltyBucket.ZERO, PenaltyBucket.PINNED, 8812)
COMMITMENT = Commitment(machine="m-1", provider="sim", kind=Kind.PREEMPT, step=Step.DOUBT, began=3.5, stamp=STAMP)
MACHINE = Machine(
    id="m-1",
    state=MachineState.DRAINING,
    instance_type="c8",
    capacity_type=CapacityType.SPOT,
    host=Host("sim", "i-1"),
    resources=(("cpu", 8000),),
    labels={"zone": "z1"},
    cluster="prod",
    shard_metadata={"bigfleet.lucy.sh/stamp": "1"},
)
CLUSTER = KeptCluster("prod", 12.5, True, False, ((KEY, 3),))
VALUES = Values(
    next_arrival=4,
    next_binding=8813,
    pause_reason="maintenance",
    holdouts=KeptHoldOuts(
        {"m-1": KeptHold(60.0, 5.0)},
        {"prod": {"f1": KeptHold(120.0, 0.0)}},
        (KeptShape("c8", "z1", CapacityType.SPOT, None, 7.0),),
    ),
    drains={"c8": (31.0, 44.0)},
    reclaim_holds={"m-2": 1800.0},
    excess_since={"prod": 900.0},
)
FULL = Batch({"m-1": COMMITMENT}, {"m-1": ("sim", MACHINE)}, {"m-2": 77.5}, {"m-1": 8812}, {"prod": CLUSTER}, VALUES)

# The first byte of a page of SQLite that holds rows without a number of their own.
_LEAF = 0x0A

# What protobuf can carry: any text without lone surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ORIGINS = {
    str: TEXT,
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    types.NoneType: st.none(),
}


def inside(hint: Any) -> Iterator[Any]:
    """What a type consists of, one level down."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield from (field.type for field in msgspec.structs.fields(hint))
    elif typing.get_origin(hint) is typing.Annotated:
        yield typing.get_args(hint)[0]
    else:
        yield from (part for part in typing.get_args(hint) if part is not ...)


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Every value of a type that may be kept."""
    origin, parts = typing.get_origin(hint), [*map(anything, inside(hint))]
    if hint in ORIGINS:
        return ORIGINS[hint]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        names = [field.name for field in msgspec.structs.fields(hint)]
        return st.builds(hint, **dict(zip(names, parts, strict=True)))
    if origin is typing.Annotated:
        bounds = next(each for each in typing.get_args(hint) if isinstance(each, msgspec.Meta))
        assert parts == [ORIGINS[float]], hint
        return st.floats(bounds.ge, bounds.le)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(parts)
    if origin is tuple and ... in typing.get_args(hint):
        return st.lists(parts[0], max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*parts)
    if origin in (dict, Mapping):
        return st.dictionaries(*parts, max_size=3)
    raise TypeError(f"{hint} has no place in the local file")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shard.db"


@contextmanager
def opened(path: Path, shard_id: str = "s1") -> Iterator[Journal]:
    journal = Journal.open(path, shard_id)
    try:
        yield journal
    finally:
        journal.close()


def loaded(path: Path) -> Kept:
    with opened(path) as journal:
        return journal.load()


def written(path: Path, *batches: Batch) -> None:
    with opened(path) as journal:
        for batch in batches:
            journal.write(batch, 100.0, 200.0)


def refusal(path: Path, shard_id: str = "s1") -> str:
    """What is said of a file that cannot be opened or read."""
    with pytest.raises(JournalError) as refused, opened(path, shard_id) as journal:
        journal.load()
    error = refused.value
    assert str(error) == f"shard file {path}: {error.problem}; {error.advice}"
    assert "\n" not in str(error)
    return str(error)


def content(kept: Kept | Batch) -> tuple[dict[str, Any], ...]:
    return kept.commitments, kept.machines, kept.idle, kept.ready, kept.clusters


def last_words(batches: list[Batch]) -> Batch:
    """What stands after all of them, erasures included."""
    return Batch(
        {key: value for batch in batches for key, value in batch.commitments.items()},
        {key: value for batch in batches for key, value in batch.machines.items()},
        {key: value for batch in batches for key, value in batch.idle.items()},
        {key: value for batch in batches for key, value in batch.ready.items()},
        {key: value for batch in batches for key, value in batch.clusters.items()},
        next((batch.values for batch in reversed(batches) if batch.values is not None), None),
    )


class TestWhatIsKept:
    def test_everything_comes_back_with_the_times_of_the_last_write(self, path: Path) -> None:
        with opened(path) as journal:
            journal.write(FULL, 1.0, 2.0)
            journal.write(Batch(), 1234.5, 1767225600.25)
        assert loaded(path) == Kept(
            found=True,
            written=1234.5,
            wall=1767225600.25,
            commitments={"m-1": COMMITMENT},
            machines={"m-1": ("sim", MACHINE)},
            idle={"m-2": 77.5},
            ready={"m-1": 8812},
            clusters={"prod": CLUSTER},
            values=VALUES,
        )

    def test_without_a_file_nothing_is_found(self, path: Path) -> None:
        times = {"written": 0.0, "wall": 0.0}
        nothing = Kept(
            found=False, **times, commitments={}, machines={}, idle={}, ready={}, clusters={}, values=Values()
        )
        assert loaded(path) == nothing
        # Nor in one that an earlier life made and never wrote to.
        assert loaded(path) == nothing

    def test_an_empty_file_is_none(self, path: Path) -> None:
        path.touch()
        assert not loaded(path).found

    def test_a_write_of_nothing_is_a_write(self, path: Path) -> None:
        written(path, Batch())
        assert loaded(path).found

    @settings(max_examples=30, deadline=None)
    @given(st.lists(anything(Batch), max_size=3))
    def test_any_batches_leave_the_last_word_on_each_thing(self, batches: list[Batch]) -> None:
        last = last_words(batches)
        with tempfile.TemporaryDirectory() as directory, opened(Path(directory, "shard.db")) as journal:
            for batch in batches:
                journal.write(batch, 100.0, 200.0)
            kept = journal.load()
        for part, words in zip(content(kept), content(last), strict=True):
            assert part == {key: value for key, value in words.items() if value is not None}
        assert (kept.values, kept.found) == (last.values or Values(), bool(batches))

    @settings(max_examples=40)
    @given(st.lists(anything(Batch), max_size=3))
    def test_merged_batches_have_the_last_word_on_each_thing(self, batches: list[Batch]) -> None:
        merged = Batch()
        for batch in batches:
            merged.merge(batch)
        assert merged == last_words(batches)
        assert bool(merged) == (merged != Batch())

    def test_more_rows_than_a_statement_takes_are_written_replaced_and_erased(self, path: Path) -> None:
        ids = [f"m-{i}" for i in range(12_000)]
        random.Random(7).shuffle(ids)
        replaced, erased = ids[:6_000], ids[3_000:9_000]
        written(
            path,
            Batch(idle=dict.fromkeys(ids, 1.0)),
            Batch(idle=dict.fromkeys(replaced, 2.0)),
            Batch(idle=dict.fromkeys(erased)),
        )
        assert loaded(path).idle == dict.fromkeys(ids[9_000:], 1.0) | dict.fromkeys(ids[:3_000], 2.0)

    def test_what_machines_have_in_common_is_one_object_once_loaded(self, path: Path) -> None:
        machines = {f"m-{i}": msgspec.structs.replace(MACHINE, id=f"m-{i}") for i in range(2)}
        written(path, Batch(machines={i: ("sim", machine) for i, machine in machines.items()}))
        (_, one), (_, other) = loaded(path).machines.values()
        assert one.labels is other.labels
        assert one.resources is other.resources
        assert one.cluster is other.cluster
        assert one.id != other.id

    def test_what_they_differ_in_stays_their_own(self, path: Path) -> None:
        kept = {
            "m-1": ("sim", MACHINE),
            "m-2": ("sim", msgspec.structs.replace(MACHINE, id="m-2", labels={"zone": "z2"}, resources=(("cpu", 1),))),
            "m-3": ("other", msgspec.structs.replace(MACHINE, id="m-3", labels={}, resources=(), allocatable=())),
        }
        written(path, Batch(machines=dict(kept)))
        assert loaded(path).machines == kept


class TestDurability:
    def test_a_commit_waits_for_the_disk(self, path: Path) -> None:
        with opened(path) as journal:
            pragmas = [
                journal._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
            ]
        assert pragmas == ["wal", 2]

    def test_new_files_and_directories_are_synced_and_nobody_elses(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[Path] = []
        fsync = os.fsync

        def noted(descriptor: int) -> None:
            synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", noted)
        path = tmp_path / "var" / "s1" / "shard.db"
        with opened(path) as journal:
            journal.write(FULL, 1.0, 2.0)
            modes = {each.name: each.stat().st_mode & 0o777 for each in (path.parent, *path.parent.iterdir())}
        assert synced == [tmp_path, tmp_path / "var", tmp_path / "var" / "s1"]
        assert modes == {"s1": 0o700, "shard.db": 0o600, "shard.db-wal": 0o600}

    def test_once_closed_it_is_one_file(self, path: Path) -> None:
        written(path, FULL)
        assert list(path.parent.iterdir()) == [path]


class TestWritesThatFail:
    """Nothing of the batch is kept, nothing from before is lost, and the next write works once the disk does."""

    @pytest.fixture
    def journal(self, path: Path) -> Iterator[Journal]:
        with opened(path) as journal:
            journal.write(FULL, 1.0, 2.0)
            yield journal

    def fails(self, journal: Journal, batch: Batch, match: str) -> None:
        before = journal.load()
        with pytest.raises(JournalError, match=match):
            journal.write(batch, 3.0, 4.0)
        assert journal.load() == before

    @staticmethod
    def large(size: int) -> Batch:
        """Large enough to be written in part before it is committed."""
        ids = [f"m-{i}" for i in range(size)]
        return Batch({"m-1": None}, {i: ("sim", msgspec.structs.replace(MACHINE, id=i)) for i in ids}, {"m-2": None})

    @pytest.mark.parametrize("size", [100, 20_000])
    def test_a_full_disk(self, journal: Journal, path: Path, size: int) -> None:
        pages = journal._file.execute("PRAGMA page_count").fetchone()[0]
        journal._file.execute(f"PRAGMA max_page_count = {pages + size // 100}")
        self.fails(journal, self.large(size), "the disk is full; make room")
        journal._file.execute(f"PRAGMA max_page_count = {2**30}")
        journal.write(self.large(size), 5.0, 6.0)
        assert (len(journal.load().machines), journal.load().written) == (size, 5.0)

    @pytest.mark.parametrize("size", [100, 20_000])
    def test_a_disk_that_takes_no_more_bytes(self, journal: Journal, path: Path, size: int) -> None:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        log = Path(f"{path}-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (log + 10_000, limits[1]))
        try:
            self.fails(journal, self.large(size), "the disk cannot read or write it")
            # Not in a file that the next life reads, either.
            copy = path.parent / "copy"
            for suffix in ("", "-wal"):
                shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert loaded(copy) == journal.load()
        journal.write(self.large(size), 5.0, 6.0)
        journal.close()
        assert (len(loaded(path).machines), loaded(path).commitments) == (size, {})

    def test_something_that_cannot_be_written_down(self, journal: Journal) -> None:
        batch = Batch({"m-1": None, "m-9": COMMITMENT}, idle={"m-3": typing.cast("float", object())})
        self.fails(journal, batch, "cannot hold this: .*fault of the program")
        journal.write(Batch(idle={"m-3": 3.0}), 5.0, 6.0)
        assert journal.load().idle == {"m-2": 77.5, "m-3": 3.0}

    def test_a_file_that_is_closed(self, journal: Journal) -> None:
        journal.close()
        with pytest.raises(JournalError):
            journal.write(Batch(), 3.0, 4.0)


class TestFilesThatCannotBeUsed:
    def test_one_that_this_process_has(self, path: Path) -> None:
        with opened(path) as journal:
            assert "another process has it; stop that one" in refusal(path)
            journal.write(FULL, 1.0, 2.0)
        assert loaded(path).found

    def test_one_that_another_process_has(self, path: Path) -> None:
        program = (
            "import sys; from pathlib import Path; from bigfleet.shard.persistence.journal import Journal;"
            "journal = Journal.open(Path(sys.argv[1]), 's1'); print(flush=True); sys.stdin.read(); journal.close()"
        )
        command = [sys.executable, "-c", program, str(path)]
        with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "\n"
            assert "another process has it; stop that one" in refusal(path)
            process.communicate()
        assert not loaded(path).found

    @pytest.mark.parametrize("content", [b"", None])
    def test_one_that_is_empty_or_gone_though_the_shard_has_run_here(self, path: Path, content: bytes | None) -> None:
        written(path, FULL)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        epoch_file = path.with_name("epoch")
        with pytest.raises(JournalError) as refused:
            Journal.open(path, "s1", epoch_file)
        assert f"by the epoch file {epoch_file} this shard has run here" in str(refused.value)
        assert refused.value.advice == RESTORE
        assert path.exists() is (content is not None)
        assert not path.exists() or not path.stat().st_size

    def test_one_without_tables_though_the_shard_has_run_here(self, path: Path) -> None:
        with sqlite3.connect(path) as file:
            file.execute("PRAGMA journal_mode = WAL")
        file.close()
        with pytest.raises(JournalError, match="is corrupt: it is empty, but by the epoch file"):
            Journal.open(path, "s1", path.with_name("epoch"))
        assert not loaded(path).found

    def test_one_of_another_shard(self, path: Path) -> None:
        written(path, FULL)
        assert "belongs to shard 's1', not 's2'; start that shard here" in refusal(path, "s2")

    def test_one_of_a_later_release(self, path: Path) -> None:
        written(path, FULL)
        with sqlite3.connect(path) as file:
            file.execute("PRAGMA user_version = 9")
        file.close()
        assert "has version 9, this release has 1; start the release that wrote it" in refusal(path)

    @pytest.mark.parametrize("statement", ["CREATE TABLE kept (x)", "PRAGMA application_id = 7"])
    def test_one_of_another_program_is_left_as_it_was(self, path: Path, statement: str) -> None:
        with sqlite3.connect(path) as file:
            file.execute(statement)
        file.close()
        before = path.read_bytes()
        assert "is the database of another program; name another data directory" in refusal(path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("spoiled", [b"not a database, but as long as a header would be" * 100, b"\0" * 4096])
    def test_one_that_is_no_database(self, path: Path, spoiled: bytes) -> None:
        path.write_bytes(spoiled)
        assert "is not a database" in refusal(path)

    def test_one_whose_row_is_of_another_type_is_named_by_kind_and_key(self, path: Path) -> None:
        with opened(path) as journal:
            journal.write(FULL, 1.0, 2.0)
            journal._put("cluster", {"prod": {"id": "prod", "silent_seconds": "long"}})
        assert "cluster 'prod' cannot be read: Expected `float`, got `str` - at `$.silent_seconds`" in refusal(path)

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE kept SET value = zeroblob(length(value)) WHERE kind = 'commitment'",
            "UPDATE kept SET crc = crc + 1 WHERE kind = 'commitment'",
            "UPDATE kept SET kind = 'commitments' WHERE kind = 'commitment'",
            "UPDATE kept SET key = CAST('m-1' AS BLOB) WHERE kind = 'commitment'",
        ],
    )
    def test_one_whose_row_is_not_as_it_was_written_is_named_by_kind_and_key(self, path: Path, change: str) -> None:
        with opened(path) as journal:
            journal.write(FULL, 1.0, 2.0)
            journal._file.execute(change)
        text = refusal(path)
        assert "is corrupt: commitment" in text
        assert "m-1" in text
        assert text.endswith(RESTORE)

    @pytest.mark.parametrize("column", ["kind", "key"])
    def test_one_with_a_key_that_is_no_text(self, path: Path, column: str) -> None:
        with opened(path) as journal:
            journal.write(FULL, 1.0, 2.0)
            journal._file.execute(f"UPDATE kept SET {column} = CAST(x'6dff0a' AS TEXT) WHERE kind = 'commitment'")
        assert f"is corrupt: Could not decode to UTF-8 column '{column}'" in refusal(path)

    def test_one_of_which_sqlite_says_something_that_is_no_text(self, path: Path) -> None:
        written(path, FULL)
        path.write_bytes(path.read_bytes().replace(b"(id TEXT NOT NULL", b"(id TEXT NOT \xd4ULL"))
        assert "is corrupt: 'utf-8' codec" in refusal(path)

    def test_one_cut_short_anywhere(self, path: Path) -> None:
        written(path, TestWritesThatFail.large(200))
        whole = path.read_bytes()
        pages = range(4096, len(whole), 4096)
        for length in itertools.chain([1, 99, 100, 4095, len(whole) - 1], pages, (page + 17 for page in pages)):
            path.write_bytes(whole[:length])
            assert "corrupt" in refusal(path) or "disk" in refusal(path), length
        path.write_bytes(whole)
        assert len(loaded(path).machines) == 200

    def test_one_with_a_bit_flipped_is_refused_or_reads_as_it_was_written(self, path: Path) -> None:
        written(path, self.numerous(), Batch(idle={"m-3": None}))
        whole, good = path.read_bytes(), loaded(path)
        flips, refused = random.Random(11), 0
        for _ in range(250):
            spoiled, at = bytearray(whole), flips.randrange(len(whole))
            spoiled[at] ^= 1 << flips.randrange(8)
            path.write_bytes(spoiled)
            try:
                assert loaded(path) == good, at
            except JournalError:
                refused += 1
            for left in path.parent.glob("*-wal"):
                left.unlink()
        assert refused > 120

    def test_one_that_has_lost_a_row_without_a_trace_in_the_others(self, path: Path) -> None:
        written(path, self.numerous())
        whole, spoiled_pages = path.read_bytes(), 0
        for page in range(4096, len(whole), 4096):
            cells = int.from_bytes(whole[page + 3 : page + 5], "big")
            if whole[page] == _LEAF and cells > 1:
                path.write_bytes(whole[: page + 3] + (cells - 1).to_bytes(2, "big") + whole[page + 5 :])
                assert "is corrupt: " in refusal(path)
                spoiled_pages += 1
        assert spoiled_pages > 5

    @staticmethod
    def numerous() -> Batch:
        machines = {f"m-{i}": ("sim", msgspec.structs.replace(MACHINE, id=f"m-{i}")) for i in range(100)}
        return Batch(FULL.commitments, dict(machines), {"m-2": 1.0, "m-3": 2.0}, FULL.ready, FULL.clusters, VALUES)

    def test_one_in_a_directory_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert "cannot be opened: Not a directory; make its directory one" in refusal(tmp_path / "file" / "shard.db")

    def test_one_that_is_a_directory(self, path: Path) -> None:
        path.mkdir()
        assert "cannot be opened: Is a directory" in refusal(path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any directory")
    def test_one_in_a_directory_that_may_only_be_read(self, path: Path) -> None:
        path.parent.chmod(0o500)
        try:
            assert "cannot be opened: Permission denied; make its directory one" in refusal(path)
            path.parent.chmod(0o700)
            written(path, FULL)
            path.parent.chmod(0o500)
            assert "make its directory one in which this program may create" in refusal(path)
        finally:
            path.parent.chmod(0o700)
        assert content(loaded(path)) == content(FULL)


class TestSecrets:
    """User data that bootstraps a node is a secret; the local file never has it."""

    def test_nothing_that_is_kept_has_room_for_bytes(self) -> None:
        seen: list[Any] = []
        waiting: list[Any] = [Batch]
        while waiting:
            hint = waiting.pop()
            if hint not in seen:
                seen.append(hint)
                waiting += inside(hint)
        leaves = {hint for hint in seen if not list(inside(hint))}
        assert Commitment in seen
        assert {leaf for leaf in leaves if not issubclass(leaf, enum.Enum)} == {str, int, float, bool, types.NoneType}

    def test_a_commitment_through_which_user_data_went_does_not_hold_it(self, path: Path) -> None:
        secret = "token-0123456789abcdef"
        idle = msgspec.structs.replace(MACHINE, state=MachineState.IDLE, cluster="", shard_metadata={})
        execute = LifecycleAlone(_Surroundings(idle), 60.0)
        effects: list[Effect] = execute.decided(Action(Kind.BOOTSTRAP, "m-1", "prod", "short", 0, STAMP), 1.0)
        effects += execute.begin(["m-1"], 2.0)
        effects += execute.blob_answered("id-1", secret.encode(), 0, 3.0)
        assert [effect.blob for effect in effects if isinstance(effect, ProviderCall)] == [secret.encode()]
        with opened(path) as journal:
            for effect in effects:
                if isinstance(effect, Keep):
                    journal.write(Batch({"m-1": effect.commitment}), 4.0, 5.0)
            assert journal.load().commitments["m-1"].step is Step.CONFIGURE
            for file in path.parent.iterdir():
                assert secret.encode() not in file.read_bytes()


class _Surroundings:
    """One Idle machine and an operator that is there."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._ids = machine, itertools.count(1)

    def machine(self, machine_id: str) -> Machine:
        return self._machine

    def provider(self, machine_id: str) -> str:
        return "sim"

    def holds(self, commitment: Commitment, machine: Machine) -> bool:
        return False

    def has_session(self, cluster_id: str) -> bool:
        return True

    def may_bypass(self, cluster_id: str, now: float) -> bool:
        return False

    def reports_drained(self, cluster_id: str) -> bool:
        return True

    def new_id(self) -> str:
        return f"id-{next(self._ids)}"
