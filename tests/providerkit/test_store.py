"""The state file: what is acknowledged survives kill -9, and a file that cannot be used is named with what to do."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bigfleet.model.machine import Call, MachineState
from bigfleet.providerkit.ledger.entry import Entry, Operation
from bigfleet.providerkit.ledger.fence import Mark, Token
from bigfleet.providerkit.store import RESTORE, SQLiteStore, StateError, Write
from tests.providerkit.toy import SHAPE
from tests.shared.program import child

ENTRY = Entry(
    id="m-0",
    shape=SHAPE,
    state=MachineState.DRAINING,
    host="h",
    cluster="c",
    metadata={"nul\0key": "ünïcode", "empty": ""},
    made=Operation("create-1", Call.CREATE),
    bound=Operation("drain-1", Call.DRAIN, grace_seconds=7),
    token="create-1",
    doubts=("create-0",),
)
MARK = Mark("m-0", "s", Token(2**63 - 1, 2**63 - 1))


async def test_what_was_written_is_read_back_byte_for_byte(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state", "toy")
    await store.write(Write(ENTRY, MARK))
    await store.write(Write(mark=Mark("ghost", "s", Token(1, 1))))
    await store.write(Write(forgotten="ghost"))
    store.close()
    again = SQLiteStore(tmp_path / "state", "toy")
    kept = again.load()
    again.close()
    assert kept.entries == [ENTRY]
    assert kept.marks == [MARK]


async def test_many_writes_at_once_all_arrive(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state", "toy")
    marks = [Mark(f"m-{i}", "s", Token(1, i)) for i in range(3_000)]
    await asyncio.gather(*(store.write(Write(mark=mark)) for mark in marks))
    kept = store.load()
    store.close()
    assert sorted(kept.marks, key=lambda mark: mark.token.sequence) == marks


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    writer = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from bigfleet.providerkit.ledger.fence import Mark, Token
        from bigfleet.providerkit.store import SQLiteStore, Write

        async def main():
            store = SQLiteStore(Path(sys.argv[1]), "toy")
            for i in range(10**9):
                await store.write(Write(mark=Mark("m", "s", Token(1, i))))
                print(i, flush=True)

        asyncio.run(main())
        """
    )
    command = [sys.executable, "-c", writer, str(tmp_path / "state")]
    with child(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(20)]
        os.kill(process.pid, signal.SIGKILL)
        said += process.stdout.readlines()
    acknowledged = max(int(line) for line in said if line.endswith("\n"))
    store = SQLiteStore(tmp_path / "state", "toy")
    [mark] = store.load().marks
    store.close()
    assert mark.token.sequence >= acknowledged


async def test_a_full_disk_refuses_the_write_and_the_next_one_may_work(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state", "toy")
    await store.write(Write(mark=MARK))
    pages = store._file.execute("PRAGMA page_count").fetchone()[0]
    store._file.execute(f"PRAGMA max_page_count = {pages}")
    large = Entry(id="m-1", shape=SHAPE, state=MachineState.IDLE, host="h" * 100_000)
    with pytest.raises(StateError, match=r"state: the disk is full; make room"):
        await store.write(Write(large))
    store._file.execute(f"PRAGMA max_page_count = {pages + 1000}")
    await store.write(Write(large))
    assert [entry.id for entry in store.load().entries] == ["m-1"]
    store.close()


class TestFilesThatCannotBeUsed:
    def test_one_that_another_process_has(self, tmp_path: Path) -> None:
        store = SQLiteStore(tmp_path / "state", "toy")
        with pytest.raises(StateError, match="another process has it"):
            SQLiteStore(tmp_path / "state", "toy")
        store.close()

    def test_one_of_another_provider(self, tmp_path: Path) -> None:
        SQLiteStore(tmp_path / "state", "toy").close()
        with pytest.raises(StateError, match="belongs to provider 'toy', not 'other'"):
            SQLiteStore(tmp_path / "state", "other")

    def test_one_of_another_program(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "state") as file:
            file.execute("CREATE TABLE t (x)")
        file.close()
        with pytest.raises(StateError, match="another program"):
            SQLiteStore(tmp_path / "state", "toy")

    def test_one_of_a_later_kit(self, tmp_path: Path) -> None:
        SQLiteStore(tmp_path / "state", "toy").close()
        with sqlite3.connect(tmp_path / "state") as file:
            file.execute("PRAGMA user_version = 9")
        file.close()
        with pytest.raises(StateError, match="version 9"):
            SQLiteStore(tmp_path / "state", "toy")

    @pytest.mark.parametrize("content", [b"not a database, but long enough to be read as a header" * 100])
    def test_one_that_is_garbage(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "state").write_bytes(content)
        with pytest.raises(StateError, match="not a database"):
            SQLiteStore(tmp_path / "state", "toy")

    async def test_one_with_a_garbled_record(self, tmp_path: Path) -> None:
        store = SQLiteStore(tmp_path / "state", "toy")
        await store.write(Write(ENTRY))
        store._file.execute("UPDATE machines SET record = x'00'")
        with pytest.raises(StateError, match="restore the file from a copy"):
            store.load()
        store.close()

    def test_one_in_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StateError, match="cannot be opened"):
            SQLiteStore(tmp_path / "file" / "state", "toy")

    def test_one_in_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(StateError, match=f"its folder {tmp_path}/var is not there; create it, or name another"):
            SQLiteStore(tmp_path / "var" / "state", "toy")
        assert not (tmp_path / "var").exists()

    def test_one_that_is_empty(self, tmp_path: Path) -> None:
        (tmp_path / "state").touch()
        with pytest.raises(StateError, match="is corrupt: it is empty; restore the file from a copy") as refused:
            SQLiteStore(tmp_path / "state", "toy")
        assert str(refused.value).endswith(RESTORE)
        assert not (tmp_path / "state").stat().st_size


def test_a_file_holds_something_from_the_moment_on_that_its_store_is_open(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state", "toy")
    assert (tmp_path / "state").stat().st_size
    store.close()
