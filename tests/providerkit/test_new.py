"""Beginning a project with the kit. The test of the author guide runs the project's own tests."""

from pathlib import Path

import pytest

from bigfleet.providerkit.new import NewProjectError, write_project


def test_every_word_of_the_template_is_filled_in(tmp_path: Path) -> None:
    files = write_project("acme-cloud", tmp_path)
    assert Path("acme_cloud/backend.py") in files
    assert not [file for file in files if "$" in (tmp_path / file).read_text()]


@pytest.mark.parametrize(
    "name", ["", "Acme", "9lives", "a_b", "-a", "a-", "a--b", "x" * 41, "../up", "json", "yaml", "class"]
)
def test_a_name_that_cannot_be_a_package_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NewProjectError, match=r"name "):
        write_project(name, tmp_path / "project")
    assert not (tmp_path / "project").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("dear to me")
    with pytest.raises(NewProjectError, match="not empty"):
        write_project("acme", tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NewProjectError, match="file"):
        write_project("acme", tmp_path / "file" / "below")
