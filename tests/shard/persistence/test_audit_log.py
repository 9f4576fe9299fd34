"""The audit log: a line for each record whatever is in it, files of bounded size, and no half record in the midst."""

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.shard.persistence.audit_log import AuditError, AuditLog, Record
from tests.shared.program import child

RECORD = Record(
    at="2026-01-01T00:00:00.250Z",
    cycle=17,
    shard="eu-1",
    epoch=1767225601,
    event="decided",
    kind="Preempt",
    machine="m-1",
    provider="sim",
    cluster="prod",
    leaves="batch",
    priority=1000,
    fingerprint="5f0c",
    group="gang-7",
    reason="3 units short",
    verdict="satisfied",
    price_per_hour=2.5,
    cost_before=100.25,
    cost_after=100.25,
    grace_seconds=600,
    id="s1-9",
)
LINE = len(msgspec.json.encode(RECORD)) + 1
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def numbered(*cycles: int) -> list[Record]:
    """Records of one length, told apart by their cycle."""
    return [msgspec.structs.replace(RECORD, cycle=10 + cycle) for cycle in cycles]


def cycles(path: Path) -> list[int]:
    return [msgspec.json.decode(line, type=Record).cycle - 10 for line in path.read_bytes().splitlines()]


def files(path: Path) -> dict[str, list[int]]:
    return {each.name: cycles(each) for each in sorted(path.parent.iterdir())}


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A disk on which no file grows beyond this."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class TestLines:
    def test_a_record_is_one_line_of_json_with_all_its_fields_in_order(self, path: Path) -> None:
        AuditLog.open(path, 10_000, 3).append([RECORD])
        assert path.read_text() == (
            '{"at":"2026-01-01T00:00:00.250Z","cycle":17,"shard":"eu-1","epoch":1767225601,"event":"decided",'
            '"kind":"Preempt","machine":"m-1","provider":"sim","cluster":"prod","leaves":"batch","priority":1000,'
            '"fingerprint":"5f0c","group":"gang-7","reason":"3 units short","verdict":"satisfied",'
            '"price_per_hour":2.5,"cost_before":100.25,"cost_after":100.25,"grace_seconds":600,"outcome":"",'
            '"detail":"","id":"s1-9"}\n'
        )

    @settings(max_examples=50)
    @given(st.lists(st.tuples(TEXT, TEXT, TEXT, st.floats(allow_nan=False, allow_infinity=False)), max_size=5))
    def test_whatever_is_in_the_records_each_is_read_back(self, parts: list[tuple[str, str, str, float]]) -> None:
        records = [
            msgspec.structs.replace(RECORD, machine=machine, group=group, detail=detail, price_per_hour=price)
            for machine, group, detail, price in parts
        ]
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "audit.jsonl")
            AuditLog.open(path, 10**6, 1).append(records)
            lines = path.read_bytes().split(b"\n")
        assert [msgspec.json.decode(line, type=Record) for line in lines[:-1]] == records
        assert [json.loads(line)["detail"] for line in lines[:-1]] == [record.detail for record in records]

    def test_a_text_without_end_is_cut(self, path: Path) -> None:
        AuditLog.open(path, 10**6, 1).append(
            [msgspec.structs.replace(RECORD, detail="\x00" * 10**6, group="g" * 10**6)]
        )
        record = msgspec.json.decode(path.read_bytes(), type=Record)
        assert (record.detail, record.group) == ("\x00" * 1000 + "…", "g" * 1000 + "…")
        assert record.reason == RECORD.reason

    def test_only_its_owner_may_read_it(self, path: Path) -> None:
        log = AuditLog.open(path, LINE, 1)
        log.append(numbered(1, 2))
        assert [each.stat().st_mode & 0o777 for each in path.parent.iterdir()] == [0o600, 0o600]

    def test_its_directory_is_made(self, tmp_path: Path) -> None:
        path = tmp_path / "var" / "log" / "audit.jsonl"
        AuditLog.open(path, LINE, 1).append(numbered(1))
        assert cycles(path) == [1]

    def test_a_later_life_goes_on_where_the_earlier_ended(self, path: Path) -> None:
        AuditLog.open(path, 10_000, 3).append(numbered(1, 2))
        AuditLog.open(path, 10_000, 3).append(numbered(3))
        assert cycles(path) == [1, 2, 3]

    def test_a_file_that_somebody_removed_is_there_again(self, path: Path) -> None:
        log = AuditLog.open(path, 10_000, 3)
        log.append(numbered(1))
        path.unlink()
        log.append(numbered(2))
        assert cycles(path) == [2]


class TestRotation:
    def test_a_full_file_is_put_aside_and_the_oldest_goes(self, path: Path) -> None:
        log = AuditLog.open(path, 2 * LINE, 3)
        for cycle in range(1, 10):
            log.append(numbered(cycle))
        assert files(path) == {
            "audit.jsonl": [9],
            "audit.jsonl.1": [7, 8],
            "audit.jsonl.2": [5, 6],
            "audit.jsonl.3": [3, 4],
        }

    def test_many_records_at_once_fill_as_many_files_as_it_takes(self, path: Path) -> None:
        log = AuditLog.open(path, 3 * LINE + 1, 2)
        log.append(numbered(0))
        log.append(numbered(*range(1, 20)))
        assert files(path) == {
            "audit.jsonl": [18, 19],
            "audit.jsonl.1": [15, 16, 17],
            "audit.jsonl.2": [12, 13, 14],
        }

    def test_more_than_a_block_stays_in_order(self, path: Path) -> None:
        log = AuditLog.open(path, 10 * 2**20, 2)
        wanted = list(range(5000))
        log.append([msgspec.structs.replace(RECORD, cycle=10 + cycle, detail="x" * 500) for cycle in wanted])
        assert path.stat().st_size > 3 * 2**20
        assert files(path) == {"audit.jsonl": wanted}

    def test_a_record_larger_than_a_file_has_one_to_itself(self, path: Path) -> None:
        log = AuditLog.open(path, LINE - 1, 2)
        log.append(numbered(1, 2, 3))
        assert files(path) == {"audit.jsonl": [3], "audit.jsonl.1": [2], "audit.jsonl.2": [1]}

    @pytest.mark.parametrize("renames", range(4))
    def test_a_crash_in_the_midst_of_it_loses_nothing_that_was_to_be_kept(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
    ) -> None:
        log = AuditLog.open(path, LINE, 4)
        log.append(numbered(1, 2, 3, 4))
        left, replace = [renames], Path.replace

        def crashing(self: Path, target: Path) -> Path:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return replace(self, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", crashing)
            with pytest.raises(KeyboardInterrupt):
                log.append(numbered(5))
        AuditLog.open(path, LINE, 4).append(numbered(5))
        assert [cycles(path.with_name(f"audit.jsonl.{n}")) for n in (4, 3, 2, 1)] == [[1], [2], [3], [4]]
        assert cycles(path) == [5]


class TestWhatGoesWrong:
    def test_a_record_that_an_earlier_life_was_killed_in_keeps_its_line_to_itself(self, path: Path) -> None:
        log = AuditLog.open(path, 10_000, 3)
        log.append(numbered(1))
        with path.open("ab") as file:
            file.write(b'{"at":"2026-01-0')
        AuditLog.open(path, 10_000, 3).append(numbered(2, 3))
        lines = path.read_bytes().splitlines()
        assert lines.pop(1) == b'{"at":"2026-01-0'
        assert [json.loads(line)["cycle"] for line in lines] == [11, 12, 13]

    @pytest.mark.parametrize("room", [0, 1, LINE, 2 * LINE - 1])
    def test_a_full_disk_takes_no_part_of_a_record_and_later_ones_are_written(self, path: Path, room: int) -> None:
        log = AuditLog.open(path, 10_000, 3)
        log.append(numbered(1))
        with (
            largest_file(LINE + room),
            pytest.raises(AuditError, match="lacks 2 records: File too large; make") as full,
        ):
            log.append(numbered(2, 3))
        assert full.value.lost == 2
        assert cycles(path) == [1]
        log.append(numbered(4))
        assert cycles(path) == [1, 4]

    def test_what_a_full_disk_took_and_would_not_give_back_is_a_line_of_its_own(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuses(file: int, size: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        log = AuditLog.open(path, 10_000, 3)
        log.append(numbered(1))
        monkeypatch.setattr(os, "ftruncate", refuses)
        with largest_file(LINE + 20), pytest.raises(AuditError):
            log.append(numbered(2))
        log.append(numbered(3))
        lines = path.read_bytes().splitlines()
        assert len(lines.pop(1)) == 20
        assert [json.loads(line)["cycle"] for line in lines] == [11, 13]

    def test_of_many_records_those_before_it_went_wrong_are_there(self, path: Path) -> None:
        log = AuditLog.open(path, 3 * LINE, 1)
        log.append(numbered(1, 2))
        path.with_name("audit.jsonl.1").mkdir()
        with pytest.raises(AuditError, match="lacks 3 records: ") as error:
            log.append(numbered(3, 4, 5, 6))
        assert error.value.lost == 3
        assert cycles(path) == [1, 2, 3]

    @pytest.mark.parametrize("where", ["file/audit.jsonl", "directory"])
    def test_a_log_that_cannot_be_is_named(self, tmp_path: Path, where: str) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "directory").mkdir()
        with pytest.raises(AuditError, match=r"cannot be opened: .* a directory; make room on its disk") as error:
            AuditLog.open(tmp_path / where, 10_000, 3)
        assert str(tmp_path / where) in str(error.value)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any file")
    def test_a_log_that_may_not_be_written_is_named_and_works_once_it_may(self, path: Path) -> None:
        log = AuditLog.open(path, 10_000, 3)
        path.chmod(0o400)
        with pytest.raises(AuditError, match="lacks 1 records: Permission denied"):
            log.append(numbered(1))
        path.chmod(0o600)
        log.append(numbered(2))
        assert cycles(path) == [2]

    def test_what_was_appended_survives_kill_9(self, path: Path) -> None:
        program = textwrap.dedent(
            """
            import itertools, sys
            from pathlib import Path
            import msgspec
            from bigfleet.shard.persistence.audit_log import AuditLog, Record

            log = AuditLog.open(Path(sys.argv[1]), 100_000, 1000)
            record = msgspec.json.decode(sys.argv[2], type=Record)
            for i in itertools.count():
                log.append([msgspec.structs.replace(record, cycle=i, group=str(j)) for j in range(7)])
                print(i, flush=True)
            """
        )
        command = [sys.executable, "-c", program, str(path), msgspec.json.encode(RECORD).decode()]
        with child(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(200)]
            os.kill(process.pid, signal.SIGKILL)
            said += process.stdout.readlines()
        acknowledged = max(int(line) for line in said if line.endswith("\n"))
        AuditLog.open(path, 100_000, 1000).append([msgspec.structs.replace(RECORD, cycle=-1)])
        found: dict[int, list[str]] = {}
        for file in path.parent.iterdir():
            for line in file.read_bytes().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    found.setdefault(json.loads(line)["cycle"], []).append(json.loads(line)["group"])
        assert all(sorted(found[cycle]) == list("0123456") for cycle in range(acknowledged + 1))
        assert found[-1] == [RECORD.group]
