"""Compiling with less work: only entries are optimised and turned into machine code.

Numba treats every function that it compiles as one that Python may call. It optimises the functions that an entry calls
and turns them into machine code each by itself, with everything that they call in turn, and then once more inside the
entry. Nobody calls them from Python here, so a third of the time went into code that was thrown away.
"""

from collections.abc import Collection
from typing import Any

import numba
from numba.core import codegen, cpu

_LIBRARY: Any = codegen.CPUCodeLibrary
_CONTEXT: Any = cpu.CPUContext
_make_function: Any = numba._dynfunc.make_function  # type: ignore[attr-defined] # it is written in C


def compile_only(entries: Collection[str]) -> None:
    """From now on, make machine code only of the functions of these names."""
    optimise, finish = _LIBRARY._optimize_final_module, _LIBRARY._finalize_final_module
    executable = _CONTEXT.get_executable

    def is_inner(library: Any) -> bool:
        return library.name.split("$")[0] not in entries

    def optimise_entries(self: Any) -> None:
        if not is_inner(self):
            optimise(self)

    def finish_entries(self: Any) -> None:
        if is_inner(self):
            self._finalize_dynamic_globals()
            self._finalized = True
        else:
            finish(self)

    def executable_of_entries(self: Any, library: Any, fndesc: Any, env: Any) -> Any:
        if is_inner(library):
            # Numba wants something to keep; nobody calls it.
            return _make_function(fndesc.lookup_module(), fndesc.qualname, "", 0, env, (library,))
        return executable(self, library, fndesc, env)

    _LIBRARY._optimize_final_module = optimise_entries
    _LIBRARY._finalize_final_module = finish_entries
    _CONTEXT.get_executable = executable_of_entries
