"""Logs: JSON lines for machines, readable lines for people, and one pipeline for both kinds of logger."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

from bigfleet.telemetry.logs import Level, bound_ids, configure


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def configuration_ends_with_the_test() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def stream() -> io.StringIO:
    stream = io.StringIO()
    configure(Level.INFO, stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_level_name_and_utc_time(stream: io.StringIO) -> None:
    before = datetime.now(UTC)
    structlog.get_logger("bigfleet.shard").info("machine_bound", machine="m-1", count=3)
    (line,) = lines(stream)
    written = datetime.fromisoformat(line.pop("timestamp"))
    assert before <= written <= datetime.now(UTC)
    assert line == {"event": "machine_bound", "level": "info", "logger": "bigfleet.shard", "machine": "m-1", "count": 3}


def test_a_value_with_line_breaks_stays_on_its_line(stream: io.StringIO) -> None:
    structlog.get_logger().warning("odd", text='a\nb\r\n{"event": "forged"}')
    (line,) = lines(stream)
    assert line["text"] == 'a\nb\r\n{"event": "forged"}'


def test_bound_ids_are_on_every_event_inside_and_on_none_after(stream: io.StringIO) -> None:
    log = structlog.get_logger()
    with bound_ids(shard="s1", cluster="c1"):
        with bound_ids(machine="m-1", operation="op-9"):
            log.info("inner")
        log.info("outer")
    log.info("after")
    ids = [
        {key: line[key] for key in ("shard", "cluster", "machine", "operation") if key in line}
        for line in lines(stream)
    ]
    assert ids == [
        {"shard": "s1", "cluster": "c1", "machine": "m-1", "operation": "op-9"},
        {"shard": "s1", "cluster": "c1"},
        {},
    ]


def test_records_of_the_standard_library_take_the_same_way(stream: io.StringIO) -> None:
    with bound_ids(shard="s1"):
        logging.getLogger("grpc._cython").warning("lost %d of %s", 3, "x")
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "lost 3 of x", "level": "warning", "logger": "grpc._cython", "shard": "s1"}


@pytest.mark.parametrize("level", Level)
def test_events_below_the_level_are_left_out(level: Level) -> None:
    stream = io.StringIO()
    configure(level, stream)
    for name in Level:
        getattr(structlog.get_logger(), name)("ours")
        getattr(logging.getLogger("theirs"), name)("theirs")
    written = [*Level][[*Level].index(level) :]
    assert [(line["level"], line["event"]) for line in lines(stream)] == [
        (name, event) for name in written for event in ("ours", "theirs")
    ]


def test_an_exception_is_told_in_one_field_without_the_values_of_variables(stream: io.StringIO) -> None:
    token = "".join(["abc", "123"])
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("theirs").exception("failed too")
    for line in lines(stream):
        assert line["exception"].startswith("Traceback (most recent call last)")
        assert line["exception"].endswith("ValueError: broken")
        assert "exc_info" not in line
    assert token not in stream.getvalue()


@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
def test_bytes_are_shown_by_their_length_only(stream_type: type[io.StringIO]) -> None:
    stream = stream_type()
    configure(Level.INFO, stream)
    structlog.get_logger().info("blob", blob=b"secret!", other=bytearray(b"secret"))
    assert "secret" not in stream.getvalue()
    assert "<7 bytes>" in stream.getvalue()


def test_a_value_that_json_does_not_know_is_shown_by_its_repr(stream: io.StringIO) -> None:
    structlog.get_logger().info("odd", value={1})
    assert lines(stream)[0]["value"] == "{1}"


class TestOnATerminal:
    def test_a_line_is_for_people(self) -> None:
        stream = Terminal()
        configure(Level.INFO, stream)
        structlog.get_logger().info("machine_bound", machine="m-1")
        (line,) = stream.getvalue().splitlines()
        assert "machine_bound" in line
        assert "m-1" in line
        with pytest.raises(json.JSONDecodeError):
            json.loads(line)

    def test_a_traceback_shows_no_variables(self) -> None:
        stream = Terminal()
        configure(Level.INFO, stream)
        token = "".join(["abc", "123"])
        try:
            raise ValueError("broken")
        except ValueError:
            structlog.get_logger().exception("failed")
        assert "ValueError: broken" in stream.getvalue()
        assert token not in stream.getvalue()


def test_configuring_again_replaces_level_and_stream_for_loggers_made_before() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(Level.ERROR, first)
    log = structlog.get_logger()
    log.error("one")
    configure(Level.INFO, second)
    configure(Level.INFO, second)
    log.info("two")
    logging.getLogger("theirs").info("three")
    assert [line["event"] for line in lines(first)] == ["one"]
    assert [line["event"] for line in lines(second)] == ["two", "three"]


def test_without_a_stream_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure(Level.INFO)
    structlog.get_logger().info("hello")
    captured = capsys.readouterr()
    assert json.loads(captured.err)["event"] == "hello"
    assert captured.out == ""
