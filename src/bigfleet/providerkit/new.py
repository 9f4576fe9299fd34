"""`bigfleet providerkit new`: a whole small provider project from the files in `template`."""

import keyword
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from string import Template

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MAX_NAME = 40
_SUFFIX = ".in"


class NewProjectError(Exception):
    """The project cannot be written. The text says why and what to do."""


def write_project(name: str, folder: Path) -> list[Path]:
    """Write the project into a folder that is new or empty. Returns the files, relative to the folder."""
    package = name.replace("-", "_")
    if _NAME.fullmatch(name) is None or len(name) > _MAX_NAME:
        problem = f"needs 1 to {_MAX_NAME} lower-case letters, digits and single hyphens, beginning with a letter"
        raise NewProjectError(f"name {name!r}: {problem}")
    if keyword.iskeyword(package) or package == "tests" or find_spec(package) is not None:
        raise NewProjectError(f"name {name!r}: a Python module has this name; choose another")
    words = {"name": name, "package": package}
    written = []
    try:
        if folder.exists() and any(folder.iterdir()):
            raise NewProjectError(f"{folder}: the folder is not empty; choose another")
        for parts, source in _sources(files("bigfleet.providerkit") / "template", ()):
            target = Path(*(package if part == "package" else part for part in parts))
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            (folder / target).write_text(Template(source.read_text("utf-8")).substitute(words), "utf-8")
            written.append(target)
    except OSError as error:
        raise NewProjectError(f"{error.filename or folder}: {error.strerror}") from error
    return sorted(written)


def _sources(at: Traversable, parts: tuple[str, ...]) -> list[tuple[tuple[str, ...], Traversable]]:
    found = []
    for child in at.iterdir():
        if child.is_dir():
            found += _sources(child, (*parts, child.name))
        elif child.name.endswith(_SUFFIX):
            found.append(((*parts, child.name.removesuffix(_SUFFIX)), child))
    return found
