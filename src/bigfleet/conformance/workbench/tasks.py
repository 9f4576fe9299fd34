"""Steps taken together, and steps that are not broken off."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def together(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Take all steps at once; the first that fails ends the others and is what is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def to_the_end(step: Coroutine[Any, Any, _T]) -> _T:
    """Take a step that a cancellation must not break off: it ends first, and the cancellation goes on after it."""
    task = asyncio.create_task(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # Whether it succeeds no longer matters to anybody; that it is over does.
        await asyncio.gather(task, return_exceptions=True)
        raise
