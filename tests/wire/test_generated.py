"""The checked-in stubs: fresh, self-contained, typed, and able to carry a call."""

import importlib.util
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from types import ModuleType
from typing import assert_type

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

import bigfleet
from bigfleet.wire import v1alpha1
from bigfleet.wire.v1alpha1 import provider_pb2, provider_pb2_grpc, shard_pb2, shard_pb2_grpc
from bigfleet.wire.v1alpha1.capacity_pb2 import ClusterCapacityNeeds

ROOT = Path(__file__).resolve().parents[2]
PROTO_ROOT = ROOT / "api" / "proto"
STUBS = ROOT / "src" / "bigfleet" / "wire" / "v1alpha1"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hack_generate", ROOT / "hack" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def protos(tmp_path: Path) -> Path:
    """A copy of api/proto to plant changes in."""
    return Path(shutil.copytree(PROTO_ROOT, tmp_path / "proto"))


def stubs_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def plant(file: Path, before: str, after: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    file.write_text(text.replace(before, after), encoding="utf-8")


def test_the_checked_in_stubs_are_what_the_protos_generate(generator: ModuleType, tmp_path: Path) -> None:
    generator.generate(tmp_path)
    fresh, checked_in = stubs_in(tmp_path), stubs_in(STUBS)
    stale = sorted(name for name in fresh.keys() | checked_in.keys() if fresh.get(name) != checked_in.get(name))
    assert stale == [], "stale stubs: run `make generate`"


def test_every_proto_has_its_four_stubs() -> None:
    protos = sorted(path.stem for path in (PROTO_ROOT / "bigfleet" / "v1alpha1").glob("*.proto"))
    kinds = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")
    assert sorted(stubs_in(STUBS)) == sorted(["__init__.py", *(proto + kind for proto in protos for kind in kinds)])


def test_a_stub_whose_proto_is_gone_is_removed(generator: ModuleType, tmp_path: Path) -> None:
    orphan = tmp_path / "retired_pb2.py"
    orphan.touch()
    generator.generate(tmp_path)
    assert not orphan.exists()


def test_a_proto_that_does_not_compile_is_an_error_that_names_the_line(
    generator: ModuleType, protos: Path, tmp_path: Path
) -> None:
    plant(protos / "bigfleet/v1alpha1/capacity.proto", "int32 priority = 3;", "Priority priority = 3;")
    with pytest.raises(generator.GenerateError, match=r'capacity\.proto:\d+:\d+: "Priority" is not defined'):
        generator.generate(tmp_path / "out", protos)
    assert not (tmp_path / "out").exists()


def test_the_command_writes_the_stubs_where_it_is_told_to(tmp_path: Path) -> None:
    out = tmp_path / "stubs"
    command = [sys.executable, str(ROOT / "hack" / "generate.py"), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{len(stubs_in(out))} files written" in done.stdout


def test_generating_leaves_the_stored_contract_alone(generator: ModuleType, protos: Path, tmp_path: Path) -> None:
    plant(protos / "bigfleet/v1alpha1/capacity.proto", "int32 max_per_machine = 100;", "int32 max_per_machine = 101;")
    before = (protos / "contract.binpb").read_bytes()
    generator.generate(tmp_path / "out", protos)
    assert (protos / "contract.binpb").read_bytes() == before


def test_the_stored_contract_knows_all_that_the_protos_declare(generator: ModuleType) -> None:
    stored = FileDescriptorSet.FromString((PROTO_ROOT / "contract.binpb").read_bytes())
    declared = FileDescriptorSet.FromString(generator.declared())
    assert stored == declared, "unguarded additions: run `python hack/generate.py --accept-contract`"


def test_accepting_records_an_addition(generator: ModuleType, protos: Path) -> None:
    before = (protos / "contract.binpb").read_bytes()
    plant(
        protos / "bigfleet/v1alpha1/shard.proto",
        "  repeated string features = 100;\n",
        "  repeated string features = 100;\n  // Planted.\n  string build = 101;\n",
    )
    generator.accept_contract(protos)
    assert (protos / "contract.binpb").read_bytes() != before
    assert (protos / "contract.binpb").read_bytes() == generator.declared(protos)


def test_accepting_refuses_a_breaking_change_and_keeps_the_old_contract(generator: ModuleType, protos: Path) -> None:
    before = (protos / "contract.binpb").read_bytes()
    plant(protos / "bigfleet/v1alpha1/capacity.proto", "int32 priority = 3;", "int32 priority = 10;")
    with pytest.raises(generator.GenerateError, match=r'field "3" with name "priority"(.|\n)*delete contract\.binpb'):
        generator.accept_contract(protos)
    assert (protos / "contract.binpb").read_bytes() == before


def test_a_contract_that_was_deleted_on_purpose_starts_anew(generator: ModuleType, protos: Path) -> None:
    (protos / "contract.binpb").unlink()
    plant(protos / "bigfleet/v1alpha1/capacity.proto", "int32 priority = 3;", "int32 priority = 10;")
    generator.accept_contract(protos)
    assert (protos / "contract.binpb").read_bytes() == generator.declared(protos)


def test_the_stubs_bring_no_second_package_with_them() -> None:
    assert "v1alpha1" not in {module.name for module in pkgutil.iter_modules(bigfleet.__path__)}
    assert b"import bigfleet.v1alpha1" not in b"".join(stubs_in(STUBS).values())
    assert b"from bigfleet.v1alpha1" not in b"".join(stubs_in(STUBS).values())
    assert provider_pb2.Machine.__module__ == f"{v1alpha1.__name__}.provider_pb2"


@pytest.fixture
async def server() -> AsyncIterator[tuple[grpc.aio.Server, str]]:
    """A gRPC server that is not yet started, and its address."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    yield server, f"127.0.0.1:{port}"
    await server.stop(None)


class Echoing(shard_pb2_grpc.ShardServicer):
    """A shard that acknowledges every roll-up and says nothing else."""

    async def Session(  # noqa: N802  the contract's name
        self,
        request_iterator: AsyncIterator[shard_pb2.OperatorMessage],
        context: grpc.aio.ServicerContext[
            AsyncIterator[shard_pb2.OperatorMessage], AsyncIterator[shard_pb2.ShardMessage]
        ],
    ) -> AsyncIterator[shard_pb2.ShardMessage]:
        async for frame in request_iterator:
            if frame.WhichOneof("payload") == "rollup":
                echo = str(frame.rollup.timestamp_unix_nanos)
                yield shard_pb2.ShardMessage(ack=shard_pb2.Acknowledgement(echo=echo))


async def test_a_session_runs_over_the_typed_stub(server: tuple[grpc.aio.Server, str]) -> None:
    runner, address = server
    shard_pb2_grpc.add_ShardServicer_to_server(Echoing(), runner)
    await runner.start()
    async with grpc.aio.insecure_channel(address) as channel:
        call = shard_pb2_grpc.ShardStub(channel).Session()
        await call.write(shard_pb2.OperatorMessage(hello=shard_pb2.Hello(cluster_id="blue")))
        await call.write(shard_pb2.OperatorMessage(rollup=ClusterCapacityNeeds(timestamp_unix_nanos=7)))
        await call.done_writing()
        replies = [reply async for reply in call]
    # assert_type is for mypy, which fails `make lint` here if the stubs ever lose their types.
    assert_type(replies, list[shard_pb2.ShardMessage])
    assert replies == [shard_pb2.ShardMessage(ack=shard_pb2.Acknowledgement(echo="7"))]


async def test_a_stranger_s_provider_is_reached_at_the_contract_s_path(server: tuple[grpc.aio.Server, str]) -> None:
    machine = provider_pb2.Machine(id="m-1", state=provider_pb2.MACHINE_STATE_IDLE)

    async def list_idle(request: bytes, context: grpc.aio.ServicerContext[bytes, Awaitable[bytes]]) -> bytes:
        # Field 1, length-delimited, holding enum number 3: the bytes that any peer sends for `states: [IDLE]`.
        assert request == b"\x0a\x01\x03"
        return provider_pb2.MachineList(machines=[machine], revision=b"r1").SerializeToString()

    runner, address = server
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {"List": grpc.unary_unary_rpc_method_handler(list_idle)}
    runner.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bigfleet.v1alpha1.CapacityProvider", handlers),)
    )
    await runner.start()
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await provider_pb2_grpc.CapacityProviderStub(channel).List(
            provider_pb2.ListFilter(states=[provider_pb2.MACHINE_STATE_IDLE])
        )
    assert_type(answer, provider_pb2.MachineList)
    assert list(answer.machines) == [machine]
    assert answer.revision == b"r1"
