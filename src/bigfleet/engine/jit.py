"""How walks run: as plain Python, until compiled code is there to take their place.

`walk` and `step` mark functions that other walks call, `entry` marks functions that Python calls. In a process that
decides, all of them are plain Python at first, and `compiled.kept` swaps every entry for its compiled form, which holds
everything that the entry calls. Only the processes that `compiled.build` starts compile anything; they say so with
`compile_walks` before they import a walk.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound=Callable[..., Any])

# References are not counted (`_nrt`): the heap outlives every walk, and walks allocate nothing. Counting references to
# the heap at every call, with the bus locked, took a third of the time. No walk divides by zero, so none checks for it.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


class Entry:
    """A walk that Python calls: interpreted or compiled, whichever `run` is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = f"{function.__module__.removeprefix('bigfleet.engine.')}.{function.__name__}"
        self.interpreted = function
        self.run: Any = function
        """What a call runs. Changed only between two decisions."""

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        return self.run(*arguments)


ENTRIES: dict[str, Entry] = {}
"""Every entry whose module has been imported, by name."""

_decorate: Callable[..., Any] | None = None
_plain = 0
"""How many walks were imported as plain Python."""


def compile_walks(decorate: Callable[..., Any]) -> None:
    """Compile walks that are imported from now on with Numba's decorator. Only for a process that compiles."""
    global _decorate  # noqa: PLW0603 - a process compiles or decides, for its whole life
    if _plain:
        raise RuntimeError(f"{_plain} walks were imported as plain Python before compile_walks")
    _decorate = decorate


def _marked(function: _F, **more: Any) -> _F:
    global _plain  # noqa: PLW0603 - counts imports
    if _decorate is None:
        _plain += 1
        return function
    return cast("_F", _decorate(**more, **OPTIONS)(function))


def walk(function: _F) -> _F:
    """Mark a function that other walks call."""
    return _marked(function)


def step(function: _F) -> _F:
    """Mark a function that is called at every step of a walk.

    Its code is copied into the caller before types are found.
    """
    return _marked(function, inline="always")


def entry(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Mark a function that Python calls."""
    made = Entry(function)
    ENTRIES[made.name] = made
    compiled = _marked(function)
    if compiled is function:
        return cast("Callable[_P, _R]", made)
    made.run = compiled
    return compiled
