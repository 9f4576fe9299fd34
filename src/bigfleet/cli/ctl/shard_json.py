"""Status and clusters of a shard as JSON for programs. Names are those of the protos, and are only ever added to."""

import json
from typing import Any

from google.protobuf.message import Message


def json_of(message: Message, **more: str) -> str:
    """A message and some more fields as one line in ASCII, so that no character in it can control a terminal."""
    return json.dumps({**more, **_fields(message)}, separators=(",", ":"))


def _fields(message: Message) -> dict[str, Any]:
    """Every field by its name, those that are not set with what their absence means."""
    return {field.name: _value(getattr(message, field.name)) for field in message.DESCRIPTOR.fields}


def _value(value: Any) -> Any:
    if isinstance(value, Message):
        return _fields(value)
    if isinstance(value, str | int | float):
        return value
    if hasattr(value, "items"):
        return dict(sorted(value.items()))
    return [_value(each) for each in value]
