"""Noticing that manifests on disk have changed."""

import os
from pathlib import Path

from bigfleet.cli.requests.changes import Changes


def test_a_change_counts_once_the_file_has_stayed_the_same_for_one_look(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text("a")
    changes = Changes([file])
    assert not changes.settled()
    file.write_text("ab")
    assert not changes.settled()
    file.write_text("abc")
    assert not changes.settled()
    assert changes.settled()
    assert not changes.settled()


def test_a_file_that_is_written_anew_under_its_name_has_changed(tmp_path: Path) -> None:
    file, other = tmp_path / "web.yaml", tmp_path / "web.yaml.swp"
    file.write_text("a")
    changes = Changes([file])
    other.write_text("b")
    other.rename(file)
    assert [changes.settled(), changes.settled()] == [False, True]


def test_files_that_come_into_a_folder_and_go_are_changes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a")
    changes = Changes([tmp_path])
    (tmp_path / "b.yaml").write_text("b")
    assert [changes.settled(), changes.settled()] == [False, True]
    (tmp_path / "a.yaml").unlink()
    (tmp_path / "b.yaml").unlink()
    assert [changes.settled(), changes.settled()] == [False, True]


def test_nothing_has_changed_where_only_the_time_of_the_last_reading_has(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text("a")
    changes = Changes([file])
    os.utime(file, ns=(0, file.stat().st_mtime_ns))
    assert [changes.settled(), changes.settled()] == [False, False]
