"""Planted changes to a copy of the protos: one that would break a peer fails `buf breaking`, a bad name `buf lint`."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

PROTO_ROOT = Path(__file__).resolve().parents[2] / "api" / "proto"
BUF = Path(sys.executable).parent / "buf"
FINDINGS = 100
"""buf's exit code when it ran and found something, as against not having run."""


class Planted(NamedTuple):
    """An edit of one proto file and a part of what buf must say about it."""

    file: str
    before: str
    after: str
    complaint: str


BREAKING = {
    "a field is renumbered": Planted(
        "capacity",
        "int32 priority = 3;",
        "int32 priority = 10;",
        'field "3" with name "priority" on message "CapacityNeed"',
    ),
    "a field of ours is renumbered": Planted(
        "capacity", "max_per_machine = 100;", "max_per_machine = 101;", 'field "100" with name "max_per_machine"'
    ),
    "two fields swap numbers": Planted(
        "provider",
        "string provider = 1;\n  // The host in that scheme, the part after ://. Stable while the host exists.\n"
        "  string ref = 2;",
        "string provider = 2;\n  // The host in that scheme, the part after ://. Stable while the host exists.\n"
        "  string ref = 1;",
        'Field "1" on message "HostRef" changed name from "provider" to "ref"',
    ),
    "a field changes its type": Planted(
        "provider", "double price_per_hour = 7;", "float price_per_hour = 7;", 'changed type from "double" to "float"'
    ),
    "a field changes to a type of the same wire form": Planted(
        "capacity", "int64 timestamp_unix_nanos = 2;", "uint64 timestamp_unix_nanos = 2;", 'from "int64" to "uint64"'
    ),
    "a single field becomes repeated": Planted(
        "capacity",
        "string group = 9;",
        "repeated string group = 9;",
        '"group" on message "CapacityNeed" changed cardinality',
    ),
    "a field is renamed": Planted(
        "shard", "bytes user_data = 2;", "bytes blob = 2;", 'changed name from "user_data" to "blob"'
    ),
    "a field is deleted": Planted(
        "shard", "  bytes user_data = 2;\n", "", 'field "2" with name "user_data" on message "BootstrapBlobResponse"'
    ),
    "a field leaves its oneof": Planted(
        "shardread",
        "    NeedView need = 2;\n  }",
        "  }\n  // One need.\n  NeedView need = 2;",
        'Field "2" with name "need" on message "InspectNeedsResponse" moved from inside to outside a oneof',
    ),
    "an enum value is deleted": Planted(
        "provider", "  CAPACITY_TYPE_SPOT = 4;\n", "", 'enum value "4" on enum "CapacityType"'
    ),
    "an enum value is renumbered": Planted(
        "provider", "MACHINE_STATE_FAILED = 8;", "MACHINE_STATE_FAILED = 9;", 'enum value "8" on enum "MachineState"'
    ),
    "an enum value is renamed": Planted(
        "capacity",
        "PENALTY_BUCKET_PINNED = 27;",
        "PENALTY_BUCKET_NEVER = 27;",
        '"PENALTY_BUCKET_PINNED" to "PENALTY_BUCKET_NEVER"',
    ),
    "a reserved number is used": Planted(
        "shard",
        "string protocol_version = 3;",
        "string protocol_version = 3;\n  // Planted.\n  string name = 2;",
        "reserved",
    ),
    "a reserved number is freed and used": Planted(
        "shard",
        "  reserved 2;\n",
        "  // Planted.\n  string name = 2;\n",
        'reserved range "[2]" on message "Hello"',
    ),
    "an RPC is removed": Planted(
        "provider",
        "  rpc Get(MachineRef) returns (Machine);\n",
        "",
        'RPC "Get" on service "CapacityProvider" was deleted',
    ),
    "an RPC answers with another message": Planted(
        "provider", "rpc Get(MachineRef) returns (Machine);", "rpc Get(MachineRef) returns (MachineList);", 'RPC "Get"'
    ),
    "an RPC stops streaming": Planted(
        "shardread", "returns (stream InspectNeedsResponse)", "returns (InspectNeedsResponse)", 'RPC "InspectNeeds"'
    ),
}

BADLY_NAMED = {
    "a field in camel case": Planted(
        "shard", "repeated string features = 100;", "repeated string hasFeatures = 100;", '"hasFeatures" should be'
    ),
    "an enum value without its prefix": Planted(
        "shard", "KIND_PREEMPT = 2;", "PREEMPT = 2;", 'should be prefixed with "KIND_"'
    ),
    "a zero value that means something": Planted("shard", "KIND_UNSPECIFIED = 0;", "KIND_ANY = 0;", '"_UNSPECIFIED"'),
    "a field without a comment": Planted(
        "provider",
        "  // Cursor for the next List. Opaque to the shard. Empty: this provider keeps no cursors.\n",
        "",
        '"revision"',
    ),
}


@pytest.fixture
def protos(tmp_path: Path) -> Path:
    """A copy of api/proto to plant changes in."""
    return Path(shutil.copytree(PROTO_ROOT, tmp_path / "proto"))


def plant(protos: Path, change: Planted) -> None:
    file = protos / "bigfleet" / "v1alpha1" / f"{change.file}.proto"
    text = file.read_text(encoding="utf-8")
    assert text.count(change.before) == 1
    file.write_text(text.replace(change.before, change.after), encoding="utf-8")


def buf(protos: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # A cache of its own and a proxy that leads nowhere: buf may not depend on a person's home or on a network.
    environment = {"BUF_CACHE_DIR": str(protos.parent / "cache"), "HTTPS_PROXY": "http://127.0.0.1:1"}
    return subprocess.run([BUF, *arguments], cwd=protos, env=environment, capture_output=True, text=True, check=False)


def breaking(protos: Path, *subject: str) -> subprocess.CompletedProcess[str]:
    return buf(protos, "breaking", *subject, "--against", "contract.binpb")


def test_the_protos_as_they_are_break_nothing(protos: Path) -> None:
    done = breaking(protos)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_protos_as_they_are_pass_the_lint(protos: Path) -> None:
    done = buf(protos, "lint")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("change", BREAKING.values(), ids=BREAKING.keys())
def test_a_change_that_breaks_a_peer_fails(protos: Path, change: Planted) -> None:
    plant(protos, change)
    done = breaking(protos)
    assert done.returncode == FINDINGS
    assert change.complaint in done.stdout + done.stderr


def test_a_field_of_ours_may_be_added(protos: Path) -> None:
    plant(
        protos,
        Planted("shard", "  bool atomic = 101;\n", "  bool atomic = 101;\n  // Planted.\n  string note = 102;\n", ""),
    )
    assert breaking(protos).returncode == 0


@pytest.mark.parametrize("change", BADLY_NAMED.values(), ids=BADLY_NAMED.keys())
def test_a_bad_name_or_a_missing_comment_fails_the_lint(protos: Path, change: Planted) -> None:
    plant(protos, change)
    done = buf(protos, "lint")
    assert done.returncode == FINDINGS
    assert change.complaint in done.stdout


def test_every_field_number_is_guarded(protos: Path) -> None:
    moved = FileDescriptorSet.FromString((protos / "contract.binpb").read_bytes())
    numbers = []
    for message in (message for file in moved.file for message in file.message_type):
        for field in message.field:
            numbers.append((str(field.number), field.name, message.name))
            field.number += 1000
    (protos / "moved.binpb").write_bytes(moved.SerializeToString())
    done = breaking(protos, "moved.binpb")
    assert len(numbers) > 250
    assert sorted(re.findall(r'field "(\d+)" with name "(\w+)" on message "(\w+)" was deleted', done.stdout)) == sorted(
        numbers
    )


def test_every_enum_value_is_guarded(protos: Path) -> None:
    emptied = FileDescriptorSet.FromString((protos / "contract.binpb").read_bytes())
    enums = [enum for file in emptied.file for enum in file.enum_type]
    enums += [enum for file in emptied.file for message in file.message_type for enum in message.enum_type]
    values = []
    for enum in enums:
        # proto3 needs its zero value.
        values += [(str(value.number), enum.name) for value in enum.value if value.number != 0]
        del enum.value[1:]
    (protos / "emptied.binpb").write_bytes(emptied.SerializeToString())
    done = breaking(protos, "emptied.binpb")
    assert len(values) > 60
    assert sorted(re.findall(r'enum value "(\d+)" on enum "(\w+)" was deleted', done.stdout)) == sorted(values)
