"""Running steps at once, and steps that a cancellation does not interrupt."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def together(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all steps at once. The first that fails cancels the others, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def to_the_end(step: Coroutine[Any, Any, _T]) -> _T:
    """Run a step that a cancellation must not interrupt. The step ends first, and then the caller is cancelled."""
    task = asyncio.create_task(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The caller is gone, so only the end of the step matters and not its result.
        await asyncio.gather(task, return_exceptions=True)
        raise
