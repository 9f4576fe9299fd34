"""Compiled walks: kept by what they depend on, whole or not at all, and the same answers as interpreted ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bigfleet.engine.compiled import ensure, kept
from bigfleet.engine.jit import ENTRIES
from bigfleet.engine.warmup import one_decision

needs_compiler = pytest.mark.skipif(not kept.is_allowed(), reason="NUMBA_DISABLE_JIT is set")


@needs_compiler
def test_every_entry_runs_compiled_once_the_engine_is_loaded() -> None:
    kept.import_walks()
    assert len(ENTRIES) >= 12
    assert kept.is_loaded()
    one_decision()


@needs_compiler
def test_a_loaded_entry_compiles_nothing_more() -> None:
    with pytest.raises(TypeError):
        ENTRIES["walks.phases.is_covered"](1, 2.5)


def test_entries_can_be_interpreted_for_a_while() -> None:
    before = kept.is_loaded()
    with kept.interpreted():
        assert not kept.is_loaded()
        one_decision()
    assert kept.is_loaded() == before


def test_the_folder_does_not_depend_on_where_the_checkout_is(tmp_path: Path) -> None:
    source = Path(kept.__file__).parents[2]
    shutil.copytree(source, tmp_path / "bigfleet", ignore=shutil.ignore_patterns("__pycache__"))
    asked = [sys.executable, "-c", "from bigfleet.engine.compiled import kept; print(kept.folder_name())"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    elsewhere = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert elsewhere == kept.folder_name()
    walk = tmp_path / "bigfleet/engine/walks/credit.py"
    walk.write_text(walk.read_text() + "\n# changed\n")
    changed = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert changed != kept.folder_name()


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    place = ensure.place()
    try:
        assert "file" in place.problem
        assert not place.folder.is_relative_to(tmp_path)
        assert place.folder.name == kept.folder_name()
    finally:
        place.folder.parent.rmdir()


def test_folders_of_other_versions_are_pruned_oldest_first(tmp_path: Path) -> None:
    for age in range(6):
        folder = tmp_path / f"engine-{age}"
        folder.mkdir()
        os.utime(folder, (1000 - age, 1000 - age))
    kept.prune(tmp_path / "engine-5")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["engine-0", "engine-1", "engine-2", "engine-5"]


def test_a_folder_without_all_entries_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        kept.load(tmp_path)


def test_a_compiler_that_fails_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("")
    place = ensure.Place(tmp_path / "in the way" / "engine-1")
    built = subprocess.run(place.command, capture_output=True, text=True, check=False)
    assert built.returncode == 1
    assert "in the way" in place.problem_of(built.stderr)
    assert "Traceback" not in built.stderr
