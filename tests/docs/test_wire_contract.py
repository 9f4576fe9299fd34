"""The tables of `docs/internals/wire-contract.md` against the compiled protos and the declared metrics."""

import re
from collections.abc import Iterator
from typing import cast

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from bigfleet.wire.v1alpha1 import (
    capacity_pb2,
    coordinator_pb2,
    provider_pb2,
    shard_pb2,
    shardadmin_pb2,
    shardread_pb2,
)
from hack.citations import INTERNALS, ROOT

FILES = [
    module.DESCRIPTOR
    for module in (capacity_pb2, provider_pb2, shard_pb2, shardread_pb2, coordinator_pb2, shardadmin_pb2)
]
PAGE = (ROOT / INTERNALS / "wire-contract.md").read_text(encoding="utf-8")


def section(file: FileDescriptor) -> str:
    """What the page says of one file."""
    name = file.name.rpartition("/")[2]
    return re.split(r"^## ", PAGE.split(f"\n## {name}\n")[1], flags=re.MULTILINE)[0]


def kind(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return f"map<{kind(entry['key'])},{kind(entry['value'])}>"
    named = field.message_type or field.enum_type
    number = cast("FieldDescriptorProto.Type.ValueType", field.type)
    word = named.name if named is not None else FieldDescriptorProto.Type.Name(number)[len("TYPE_") :].lower()
    return f"repeated {word}" if field.is_repeated else word


def fields(message: Descriptor) -> str:
    declared = DescriptorProto()
    message.CopyToProto(declared)
    parts = {field.number: f"{field.name} {kind(field)}" for field in message.fields}
    for gap in declared.reserved_range:
        parts |= dict.fromkeys(range(gap.start, gap.end), "reserved")
    return " · ".join(f"{number} {parts[number]}" for number in sorted(parts)) or "no fields"


def messages(file: FileDescriptor) -> Iterator[str]:
    for message in file.message_types_by_name.values():
        yield f"| {message.name} | {fields(message)} |"


def enums(file: FileDescriptor) -> Iterator[str]:
    found = [*file.enum_types_by_name.values()]
    for message in file.message_types_by_name.values():
        found.extend(message.enum_types)
    for enum in found:
        name = enum.name if enum.containing_type is None else f"{enum.containing_type.name}.{enum.name}"
        yield f"| {name} | " + " · ".join(f"{value.name} {value.number}" for value in enum.values) + " |"


def rpcs(file: FileDescriptor) -> Iterator[str]:
    for service in file.services_by_name.values():
        for method in service.methods:
            asks, answers = method.input_type.name, method.output_type.name
            yield (
                f"| {method.name} | {'stream ' * method.client_streaming}{asks} "
                f"| {'stream ' * method.server_streaming}{answers} |"
            )


def rows(text: str, header: str) -> list[str]:
    """The rows of the table with this header, or none where there is no such table."""
    lines = text.split("\n")
    if header not in lines:
        return []
    rest = lines[lines.index(header) + 2 :]
    return rest[: rest.index("")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.rpartition("/")[2])
def test_the_page_has_every_message_enum_and_rpc_of_a_file_and_no_other(file: FileDescriptor) -> None:
    said = section(file)
    assert rows(said, "| message | fields |") == [*messages(file)]
    assert rows(said, "| enum | values |") == [*enums(file)]
    assert rows(said, "| RPC | request | response |") == [*rpcs(file)]


def test_the_page_names_only_metrics_that_are_declared() -> None:
    declared = (ROOT / "src" / "bigfleet" / "telemetry" / "metrics.py").read_text(encoding="utf-8")
    named = re.findall(r"^\| (bigfleet_\w+) \|", PAGE, re.MULTILINE)
    assert len(named) == 41
    assert [name for name in named if f'"{name}"' not in declared] == []


def test_a_table_that_differs_is_seen() -> None:
    text = "| enum | values |\n|---|---|\n| A | B 1 |\n\nAnd so on.\n"
    assert rows(text, "| enum | values |") == ["| A | B 1 |"]
    assert rows(text, "| message | fields |") == []
