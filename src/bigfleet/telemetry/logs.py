"""One pipeline for all that a program logs: JSON lines, or coloured text on a terminal.

An event is a name in snake_case under `event`, with ids and figures as fields. Bootstrap blobs, tokens, keys and
shard_metadata are never passed to a logger. Bytes are shown as their length only, and tracebacks carry no local
variables.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger


class Level(StrEnum):
    """The least severe event that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _PipelineHandler(logging.StreamHandler[TextIO]):
    """The handler of this pipeline; its class lets `configure` find and replace it."""


def configure(level: Level, stream: TextIO | None = None) -> None:
    """Send structlog and `logging` alike to the stream, stderr by default; calling it again replaces the first."""
    stream = sys.stderr if stream is None else stream
    number = getattr(logging, level.upper())
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_bytes,
    ]
    structlog.configure(
        processors=[*common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        # A cached logger would keep the level and the stream of an earlier configuration.
        cache_logger_on_first_use=False,
    )
    handler = _PipelineHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(stream.isatty())],
        )
    )
    root = logging.getLogger()
    for former in [handler for handler in root.handlers if isinstance(handler, _PipelineHandler)]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(number)


@contextmanager
def bound_ids(
    *, shard: str | None = None, cluster: str | None = None, machine: str | None = None, operation: str | None = None
) -> Iterator[None]:
    """Put these ids on every event that is logged in the body, and in tasks that are started there."""
    ids = {"shard": shard, "cluster": cluster, "machine": machine, "operation": operation}
    with structlog.contextvars.bound_contextvars(**{name: value for name, value in ids.items() if value is not None}):
        yield


def _rendering(human: bool) -> list[Processor]:
    if human:
        # The default formatter prints local variables, secrets among them.
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _without_bytes(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, bytes | bytearray | memoryview):
            event[key] = f"<{len(value)} bytes>"
    return event
