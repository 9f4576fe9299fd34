"""The epoch file: it only grows, is durable before use, and what is wrong with it stops the start in one sentence."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bigfleet.provider.epoch import MAX_EPOCH, RESTORE, EpochError, EpochFile
from bigfleet.transport.identity import IdentityError
from tests.shared.program import child

NOON = 1_767_225_600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "epoch"


def started(path: Path, *floors: int, shard_id: str = "s1", clock: float = NOON) -> int:
    file = EpochFile.start(path, shard_id, *floors, clock=lambda: clock)
    file.close()
    return file.epoch


def refusal(path: Path, *floors: int, shard_id: str = "s1") -> str:
    with pytest.raises(EpochError) as refused:
        started(path, *floors, shard_id=shard_id)
    text = str(refused.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_without_a_file_the_clock_is_the_floor(path: Path) -> None:
    assert started(path, clock=NOON + 0.9) == NOON + 1


def test_every_start_is_one_above_the_last_whatever_the_clock_says(path: Path) -> None:
    first = started(path)
    assert [started(path, clock=clock) for clock in (0, NOON * 2, -5)] == [first + 1, first + 2, first + 3]


def test_a_clock_before_its_own_beginning_still_gives_an_epoch(path: Path) -> None:
    assert started(path, clock=-100) == 1


def test_floors_lift_the_epoch_with_or_without_a_file(path: Path) -> None:
    assert started(path, NOON + 50, 3) == NOON + 51
    assert started(path, NOON + 50) == NOON + 52
    assert started(path, NOON + 100, NOON + 90) == NOON + 101


def test_a_floor_learned_later_lifts_it_and_is_durable(path: Path) -> None:
    file = EpochFile.start(path, "s1", clock=lambda: NOON)
    assert file.raise_above(NOON + 500) == file.epoch == NOON + 501
    assert file.raise_above(3) == NOON + 502
    file.close()
    assert started(path) == NOON + 503


def test_the_epoch_is_on_disk_before_it_is_given_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        steps.append("sync directory" if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir() else "sync file")
        fsync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        assert "epoch 1767225601\n" in self.read_text()
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    started(path)
    assert steps == ["sync file", "rename", "sync directory"]


def test_a_write_that_fails_gives_out_no_epoch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = EpochFile.start(path, "s1", clock=lambda: NOON)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(EpochError, match="cannot be written: No space left"):
            file.raise_above(NOON * 2)
    assert file.epoch == NOON + 1
    file.close()
    assert started(path) == NOON + 2


def test_the_file_is_four_lines_for_people(path: Path) -> None:
    started(path)
    assert path.read_text().splitlines()[:3] == ["bigfleet epoch 1", "shard s1", f"epoch {NOON + 1}"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left", [b"", b"bigfleet epoch 1\nshard s1\nepo", b"\xff" * 4096])
def test_a_process_killed_before_the_rename_leaves_the_old_epoch(path: Path, left: bytes) -> None:
    first = started(path)
    Path(f"{path}.new").write_bytes(left)
    assert started(path) == first + 1
    assert not Path(f"{path}.new").exists()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda good: b"",
        lambda good: good[:-1],
        lambda good: good[: len(good) // 2],
        lambda good: good + b"\n",
        lambda good: good * 2,
        lambda good: b"\0" * len(good),
        lambda good: b"\xff\xfe" + good,
        lambda good: good.replace(b"\n", b"\r\n"),
        lambda good: good.replace(b"epoch 1\n", b"epoch 2\n"),
        lambda good: good.replace(b"shard s1", b"shard s2"),
        lambda good: good.replace(b"epoch 17", b"epoch 27"),
        lambda good: good.replace(b"epoch 17", b"epoch -17"),
        lambda good: good.replace(b"epoch 17", b"epoch 017"),
        lambda good: b"x" * 10**6,
        lambda good: b'{"epoch": 3}',
    ],
)
def test_a_corrupt_file_stops_the_start_and_stays_as_it_is(path: Path, spoil: Callable[[bytes], bytes]) -> None:
    started(path)
    spoiled = spoil(path.read_bytes())
    path.write_bytes(spoiled)
    assert "is corrupt: " in refusal(path)
    assert refusal(path).endswith(RESTORE)
    assert path.read_bytes() == spoiled


def test_one_flipped_bit_anywhere_is_noticed(path: Path) -> None:
    started(path)
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        refusal(path)


def test_the_file_of_another_shard_is_not_taken_over(path: Path) -> None:
    started(path)
    assert "belongs to shard 's1', not 's2'" in refusal(path, shard_id="s2")
    assert started(path) == NOON + 2


@pytest.mark.parametrize("shard_id", ["", "a b", "s\n1", "ß", "x" * 254])
def test_an_id_that_no_certificate_could_name_is_refused(path: Path, shard_id: str) -> None:
    with pytest.raises(IdentityError):
        started(path, shard_id=shard_id)
    assert not path.exists()


def test_an_epoch_past_the_wire_is_refused_and_the_file_kept(path: Path) -> None:
    first = started(path)
    assert f"above {MAX_EPOCH} does not fit" in refusal(path, MAX_EPOCH)
    assert started(path) == first + 1
    assert started(path, MAX_EPOCH - 1) == MAX_EPOCH


def test_a_second_shard_in_this_process_is_refused_until_the_first_ends(path: Path) -> None:
    first = EpochFile.start(path, "s1", clock=lambda: NOON)
    assert "another process holds it; stop the other process of shard 's1'" in refusal(path)
    first.close()
    assert started(path) == first.epoch + 1


@pytest.fixture
def held(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that has started as this shard."""
    code = (
        "import pathlib, sys; from bigfleet.provider.epoch import EpochFile;"
        "file = EpochFile.start(pathlib.Path(sys.argv[1]), 's1'); print('holds', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with child([sys.executable, "-c", code, str(path)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        yield process


def test_a_second_process_of_the_same_shard_is_refused_by_name(path: Path, held: "subprocess.Popen[str]") -> None:
    before = path.read_bytes()
    assert "shard 's1'" in refusal(path)
    assert path.read_bytes() == before


def test_a_killed_process_holds_nothing(path: Path, held: "subprocess.Popen[str]") -> None:
    held.kill()
    held.wait()
    assert started(path) > NOON


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a read-only directory")
def test_a_directory_that_cannot_be_written_stops_the_start(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        assert "cannot be locked: Permission denied; make " in refusal(path)
    finally:
        path.parent.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any file")
def test_a_file_that_cannot_be_read_stops_the_start(path: Path) -> None:
    started(path)
    path.chmod(0)
    assert "cannot be read: Permission denied" in refusal(path)


def test_a_missing_directory_stops_the_start(tmp_path: Path) -> None:
    assert "cannot be locked: No such file or directory" in refusal(tmp_path / "nowhere" / "epoch")


def test_a_directory_in_the_file_s_place_stops_the_start(path: Path) -> None:
    path.mkdir()
    assert "cannot be read: Is a directory" in refusal(path)


def test_a_start_that_is_refused_lets_go_of_the_lock(path: Path) -> None:
    started(path)
    good = path.read_bytes()
    path.write_bytes(b"nonsense")
    refusal(path)
    path.write_bytes(good)
    assert started(path) == NOON + 2
