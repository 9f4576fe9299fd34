"""Compiled walks for a running shard: it decides interpreted until they are there.

A process of low priority compiles them where they are not kept, and they are swapped in between two decisions. A fleet
so large that an interpreted decision would take longer than a cycle waits for them.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable

import structlog

from bigfleet.engine.compiled import ensure, kept

_log = structlog.get_logger("bigfleet.shard")

INTERPRETED_SECONDS = 0.001
"""How long an interpreted decision takes for each machine and each row, at worst, on fleets of the catalogue."""


class Walks(enum.Enum):
    """How the engine's walks run."""

    LOADING = "interpreted until the compiled engine is loaded"
    COMPILING = "interpreted while the engine is compiled, which takes a minute or two"
    FAILED = "interpreted: the engine could not be compiled, see the shard's log"
    SWITCHED_OFF = "interpreted: NUMBA_DISABLE_JIT is set"
    COMPILED = "compiled"


class EngineCompiler:
    """Has the walks compiled, and says how they run meanwhile."""

    def __init__(self, cycle_interval: float) -> None:
        self._most = int(cycle_interval / INTERPRETED_SECONDS)
        self.walks = Walks.COMPILED if kept.is_loaded() else Walks.LOADING

    def must_wait(self, size: Callable[[], int]) -> str:
        """Why the shard waits for the compiled engine; empty where it decides. `size` counts its machines and rows."""
        if self.walks not in (Walks.LOADING, Walks.COMPILING) or (found := size()) <= self._most:
            return ""
        return f"{found} machines and rows are too many for the engine, {self.walks.value}"

    async def run(self, swap: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """Compile what is not kept. `swap` calls what it is given between two decisions."""
        if self.walks is Walks.COMPILED:
            return
        if not kept.is_allowed():
            self.walks = Walks.SWITCHED_OFF
            return
        try:
            place = await asyncio.to_thread(ensure.place)
        except OSError as error:
            self.walks = Walks.FAILED
            _log.error("engine_not_compiled", error=str(error), advice="decisions go on, slower; mend it and restart")
            return
        if place.problem:
            _log.warning("engine_cache_unwritable", error=place.problem, advice="it is compiled anew at every start")
        if not await asyncio.to_thread(place.is_there):
            self.walks = Walks.COMPILING
            _log.info("engine_compiling", advice="bigfleet warm-up does it ahead")
            began = asyncio.get_running_loop().time()
            if problem := await _build(place):
                self.walks = Walks.FAILED
                _log.error("engine_not_compiled", error=problem, advice="decisions go on, slower; restart to try again")
                return
            _log.info("engine_compiled", seconds=round(asyncio.get_running_loop().time() - began, 1))
        try:
            install = await asyncio.to_thread(place.load)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with kept code, the shard decides without it
            self.walks = Walks.FAILED
            advice = f"decisions go on, slower; remove {place.folder} and restart"
            _log.error("engine_not_loaded", error=repr(error)[:500], advice=advice)
            return
        await swap(install)
        self.walks = Walks.COMPILED


async def _build(place: ensure.Place) -> str:
    """Build the walks in a process that ends with this task. Returns what went wrong, or nothing."""
    process = await asyncio.create_subprocess_exec(
        *place.command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        said = (await process.communicate())[1].decode(errors="replace")
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    return "" if process.returncode == 0 else place.problem_of(said)
