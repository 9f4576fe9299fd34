"""Traces: to a real collector over OTLP/gRPC, or nowhere at all."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from bigfleet.telemetry.traces import TracingError, tracer


class Collector(TraceServiceServicer):
    """Takes spans; while `open` is not set, it takes them and never answers."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()
        self.endpoint = ""

    def Export(  # noqa: N802 - the name in the proto
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        self.requests.append(request)
        self.asked.set()
        self.open.wait()
        return ExportTraceServiceResponse()

    def spans(self) -> dict[str, Span]:
        scopes = [scope for each in self.requests for spans in each.resource_spans for scope in spans.scope_spans]
        return {span.name: span for scope in scopes for span in scope.spans}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield collector
    collector.open.set()
    server.stop(None).wait()


def test_spans_arrive_with_name_attributes_and_the_service_they_are_of(collector: Collector) -> None:
    tracing = tracer(collector.endpoint, "bigfleet-shard")
    with tracing.span("cycle", shard="eu-1", machines=3, full=True, share=0.5):
        pass
    tracing.close()
    (resource,) = [spans.resource for each in collector.requests for spans in each.resource_spans]
    assert ("service.name", "bigfleet-shard") in [(each.key, each.value.string_value) for each in resource.attributes]
    attributes = {each.key: each.value for each in collector.spans()["cycle"].attributes}
    assert attributes["shard"].string_value == "eu-1"
    assert attributes["machines"].int_value == 3
    assert attributes["full"].bool_value is True
    assert attributes["share"].double_value == 0.5


def test_a_span_inside_another_is_its_child(collector: Collector) -> None:
    tracing = tracer(collector.endpoint, "bigfleet-shard")
    with tracing.span("cycle"), tracing.span("decide"):
        pass
    tracing.close()
    spans = collector.spans()
    assert spans["decide"].parent_span_id == spans["cycle"].span_id
    assert spans["decide"].trace_id == spans["cycle"].trace_id
    assert not spans["cycle"].parent_span_id


async def test_spans_of_tasks_side_by_side_do_not_become_children_of_each_other(collector: Collector) -> None:
    tracing = tracer(collector.endpoint, "bigfleet-shard")
    meet = asyncio.Barrier(2)

    async def call(name: str) -> None:
        with tracing.span(name):
            await meet.wait()
            with tracing.span(f"{name}-inner"):
                await meet.wait()

    await asyncio.gather(call("a"), call("b"))
    await asyncio.to_thread(tracing.close)
    spans = collector.spans()
    for name in ("a", "b"):
        assert not spans[name].parent_span_id
        assert spans[f"{name}-inner"].parent_span_id == spans[name].span_id


def test_an_exception_goes_through_and_marks_the_span(collector: Collector) -> None:
    tracing = tracer(collector.endpoint, "bigfleet-shard")
    with pytest.raises(KeyError), tracing.span("call"):
        raise KeyError("m-1")
    tracing.close()
    assert collector.spans()["call"].status.code == Status.STATUS_CODE_ERROR


def test_closing_does_not_wait_for_a_collector_that_never_answers(collector: Collector) -> None:
    collector.open.clear()
    tracing = tracer(collector.endpoint, "bigfleet-shard")
    for number in range(1500):
        with tracing.span("call", number=number):
            pass
    collector.asked.wait()
    tracing.close(within=0.2)
    # Left to itself the exporter would go on to the next batch when the first has run into its time-out.
    assert len(collector.requests) == 1


def test_closing_twice_is_closing_once(collector: Collector) -> None:
    tracing = tracer(collector.endpoint, "bigfleet-shard")
    with tracing.span("cycle"):
        pass
    tracing.close()
    tracing.close()
    assert list(collector.spans()) == ["cycle"]


def test_without_an_endpoint_a_span_is_nothing_and_opentelemetry_is_not_imported() -> None:
    program = """
import sys
from bigfleet.telemetry.traces import tracer
tracing = tracer("", "bigfleet-shard")
with tracing.span("cycle", shard="eu-1"), tracing.span("decide"):
    pass
assert tracing.span("a") is tracing.span("b", c=1)
tracing.close()
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_where_the_package_is_missing_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(TracingError, match=r"opentelemetry\S* is not installed; .*pip install 'bigfleet\[tracing\]'"):
        tracer("http://127.0.0.1:4317", "bigfleet-shard")
