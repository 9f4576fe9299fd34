"""A shard decides interpreted until the compiled engine is there, and only a large fleet waits for it."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bigfleet.engine.compiled import ensure, kept
from bigfleet.shard.shell.engine_compiler import INTERPRETED_SECONDS, EngineCompiler, Walks


class Given(ensure.Place):
    """A place whose builder is any program, and whose walks load without a compiler."""

    program: tuple[str, ...] = ()
    loads = True

    @property
    def command(self) -> tuple[str, ...]:
        return self.program

    def load(self) -> Callable[[], None]:
        if not self.loads:
            raise EOFError("half a file")
        return lambda: None


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    monkeypatch.setattr(kept, "is_loaded", lambda: False)
    given = Given(tmp_path / "engine-1")
    monkeypatch.setattr(ensure, "place", lambda: given)
    return given


async def ran(compiler: EngineCompiler) -> list[str]:
    swapped = []

    async def swap(change: Callable[[], None]) -> None:
        change()
        swapped.append("swapped")

    await compiler.run(swap)
    return swapped


async def test_kept_walks_are_swapped_in_between_two_decisions(place: Given) -> None:
    place.folder.mkdir()
    compiler = EngineCompiler(10.0)
    assert compiler.must_wait(lambda: 1) == ""
    assert await ran(compiler) == ["swapped"]
    assert compiler.walks is Walks.COMPILED


async def test_walks_that_are_not_kept_are_built_first(place: Given) -> None:
    place.program = (sys.executable, "-c", f"import pathlib; pathlib.Path({str(place.folder)!r}).mkdir()")
    compiler = EngineCompiler(10.0)
    with capture_logs() as logs:
        assert await ran(compiler) == ["swapped"]
    assert [line["event"] for line in logs] == ["engine_compiling", "engine_compiled"]


async def test_a_compiler_that_fails_is_one_line_and_decisions_go_on(place: Given) -> None:
    place.program = (sys.executable, "-c", "import sys; sys.exit('no space left on device')")
    compiler = EngineCompiler(10.0)
    with capture_logs() as logs:
        assert await ran(compiler) == []
    assert [(line["event"], line.get("error")) for line in logs][1:] == [
        ("engine_not_compiled", "no space left on device")
    ]
    assert compiler.walks is Walks.FAILED
    assert compiler.must_wait(lambda: 10**9) == ""


async def test_kept_walks_that_cannot_be_read_are_one_line_and_decisions_go_on(place: Given) -> None:
    place.folder.mkdir()
    place.loads = False
    compiler = EngineCompiler(10.0)
    with capture_logs() as logs:
        assert await ran(compiler) == []
    assert [line["event"] for line in logs] == ["engine_not_loaded"]
    assert str(place.folder) in logs[0]["advice"]
    assert compiler.walks is Walks.FAILED


async def test_a_cache_that_cannot_be_written_is_one_warning(place: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given(place.folder, "the cache is read-only")
    place.folder.mkdir()
    monkeypatch.setattr(ensure, "place", lambda: given)
    with capture_logs() as logs:
        await ran(EngineCompiler(10.0))
    assert [(line["event"], line["error"]) for line in logs] == [("engine_cache_unwritable", "the cache is read-only")]


@pytest.mark.usefixtures("place")
async def test_a_switch_of_numbas_keeps_the_engine_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    compiler = EngineCompiler(10.0)
    assert await ran(compiler) == []
    assert compiler.walks is Walks.SWITCHED_OFF
    assert compiler.must_wait(lambda: 10**9) == ""


async def test_the_process_that_builds_ends_with_the_shard(place: Given, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import pathlib, time; pathlib.Path({str(mark)!r}).touch(); time.sleep(600)"
    place.program = (sys.executable, "-c", code)
    running = asyncio.create_task(ran(EngineCompiler(10.0)))
    while not mark.exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.usefixtures("place")
def test_only_a_fleet_whose_interpreted_decision_outlasts_a_cycle_waits() -> None:
    compiler, most = EngineCompiler(10.0), int(10.0 / INTERPRETED_SECONDS)
    assert compiler.must_wait(lambda: most) == ""
    assert compiler.must_wait(lambda: most + 1).startswith(f"{most + 1} machines and rows are too many")
