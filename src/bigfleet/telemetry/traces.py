"""Spans to an OpenTelemetry collector, which show where the time of a cycle or a call went. Off by default.

OpenTelemetry is an optional dependency, imported only where an endpoint is named; without one a span costs a method
call. Its own environment variables (OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER and so on) hold.
"""

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider

Attribute = str | bool | int | float

_EXPORT_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
_NOTHING: AbstractContextManager[object] = nullcontext()


class TracingError(Exception):
    """Traces that cannot be sent: why, and what to do."""


class Tracing(Protocol):
    """Where a program's spans go. Never give a span a bootstrap blob, a token, a key or shard_metadata."""

    def span(self, name: str, /, **attributes: Attribute) -> AbstractContextManager[object]:
        """A span for as long as the body runs, a child of the one around it; an exception marks it as failed."""

    def close(self, within: float = _CLOSE_SECONDS) -> None:
        """Send the spans that are left, for at most so many seconds, and end. It blocks: call it from a thread."""


def tracer(endpoint: str, service: str) -> Tracing:
    """Spans of the service, sent over OTLP/gRPC to `http://HOST:PORT` (or https), or nowhere if that is empty."""
    if not endpoint:
        return _Off()
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise TracingError(
            f"traces to {endpoint}: {error.name} is not installed; "
            "add it with pip install 'bigfleet[tracing]', or name no endpoint"
        ) from error
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)
    # The program itself closes it; a handler at exit would wait for the collector a second time.
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return _On(exporter, provider)


class _Off:
    def span(self, _name: str, /, **_attributes: Attribute) -> AbstractContextManager[object]:
        return _NOTHING

    def close(self, within: float = _CLOSE_SECONDS) -> None:
        pass


class _On:
    def __init__(self, exporter: "OTLPSpanExporter", provider: "TracerProvider") -> None:
        self._exporter, self._provider = exporter, provider
        self._tracer = provider.get_tracer("bigfleet")

    def span(self, name: str, /, **attributes: Attribute) -> AbstractContextManager[object]:
        return self._tracer.start_as_current_span(name, attributes=attributes)

    def close(self, within: float = _CLOSE_SECONDS) -> None:
        # The provider may wait for thirty seconds. Once the exporter is shut down, what is left fails at once.
        alarm = threading.Timer(within, self._exporter.shutdown)
        alarm.start()
        try:
            self._provider.shutdown()
        finally:
            alarm.cancel()
