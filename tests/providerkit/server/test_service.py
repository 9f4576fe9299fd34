"""The kit over gRPC: every malformed or refused request has the code that the contract names, and who may call what."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bigfleet.providerkit import Backend
from bigfleet.providerkit.server.serve import Endpoint, serving
from bigfleet.providerkit.server.service import MAX_BLOB_BYTES, MAX_METADATA_BYTES
from bigfleet.providerkit.store import MemoryStore
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import PROVIDER_CHANNEL_OPTIONS
from bigfleet.transport.identity import Role
from bigfleet.transport.tls import TLSConfigError
from bigfleet.wire.v1alpha1 import capacity_pb2 as capacity
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from tests.providerkit.toy import Hardware, Toy

if TYPE_CHECKING:
    from tests.shared.certificates import PKI

Code = grpc.StatusCode
LOOPBACK = TCPAddress("127.0.0.1", 0)


@asynccontextmanager
async def stub(backend: Backend | None = None) -> AsyncIterator[CapacityProviderStub]:
    async with (
        serving(backend or Toy(), MemoryStore(), Endpoint(LOOPBACK)) as served,
        grpc.aio.insecure_channel(str(served.address)) as channel,
    ):
        yield CapacityProviderStub(channel)


async def code_of(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        assert error.details()
        return error.code()
    return Code.OK


def token(sequence: int = 1, epoch: int = 1, shard: str = "s") -> dict[str, Any]:
    return {"shard_id": shard, "shard_epoch": epoch, "sequence_number": sequence}


async def idle(stub: CapacityProviderStub, machine: str) -> None:
    await stub.Create(pb.CreateRequest(machine_id=machine))
    while (await stub.Get(pb.MachineRef(id=machine))).state != pb.MACHINE_STATE_IDLE:
        pass


MALFORMED = {
    "an empty id": pb.CreateRequest(),
    "an oversized id": pb.CreateRequest(machine_id="m" * 254),
    "a negative epoch": pb.CreateRequest(machine_id="m-0", **token(epoch=-1)),
    "a negative sequence": pb.DeleteRequest(machine_id="m-0", **token(sequence=-1)),
    "a token of nobody": pb.CreateRequest(machine_id="m-0", **token(shard="")),
    "an oversized shard": pb.CreateRequest(machine_id="m-0", **token(shard="s" * 254)),
    "a negative grace": pb.DrainRequest(machine_id="m-0", grace_period_seconds=-1),
    "no cluster": pb.ConfigureRequest(machine_id="m-0"),
    "an oversized blob": pb.ConfigureRequest(
        machine_id="m-0", cluster_id="c", bootstrap_blob=b"x" * (MAX_BLOB_BYTES + 1)
    ),
    "oversized metadata": pb.ConfigureRequest(
        machine_id="m-0", cluster_id="c", shard_metadata={"k": "v" * MAX_METADATA_BYTES}
    ),
    "an empty reference": pb.MachineRef(),
    "a negative page": pb.ListFilter(max_results=-1),
    "a selector with SAME": pb.ListFilter(
        label_selector=[
            capacity.NodeSelectorRequirement(key="k", operator=capacity.NodeSelectorRequirement.OPERATOR_SAME)
        ]
    ),
    "a selector without key": pb.ListFilter(
        label_selector=[capacity.NodeSelectorRequirement(operator=capacity.NodeSelectorRequirement.OPERATOR_EXISTS)]
    ),
}
_METHODS = {
    pb.CreateRequest: "Create",
    pb.ConfigureRequest: "Configure",
    pb.DrainRequest: "Drain",
    pb.DeleteRequest: "Delete",
    pb.MachineRef: "Get",
    pb.ListFilter: "List",
}


async def test_malformed_requests_are_invalid_and_change_nothing() -> None:
    async with stub() as provider:
        before = await provider.List(pb.ListFilter())
        for what, request in MALFORMED.items():
            call = getattr(provider, _METHODS[type(request)])(request)
            assert await code_of(call) is Code.INVALID_ARGUMENT, what
        assert not (await provider.List(pb.ListFilter(since_revision=before.revision))).machines


async def test_refusals_have_the_codes_of_the_contract() -> None:
    async with stub() as provider:
        assert await code_of(provider.Get(pb.MachineRef(id="ghost"))) is Code.NOT_FOUND
        assert await code_of(provider.Create(pb.CreateRequest(machine_id="ghost"))) is Code.NOT_FOUND
        assert await code_of(provider.Drain(pb.DrainRequest(machine_id="m-0"))) is Code.ABORTED
        request = pb.CreateRequest(machine_id="m-0", **token())
        assert await code_of(provider.Create(request)) is Code.OK
        assert await code_of(provider.Create(request)) is Code.FAILED_PRECONDITION
    async with stub(Hardware()) as provider:
        assert await code_of(provider.Delete(pb.DeleteRequest(machine_id="b-0"))) is Code.UNIMPLEMENTED


async def test_the_largest_legal_token_is_taken() -> None:
    largest = 2**63 - 1
    async with stub() as provider:
        request = pb.CreateRequest(machine_id="m-0", **token(largest, largest))
        assert await code_of(provider.Create(request)) is Code.OK
        assert await code_of(provider.Create(request)) is Code.FAILED_PRECONDITION


async def test_metadata_comes_back_byte_for_byte() -> None:
    metadata = {f"k{i}\0\x01é": "\x7f…" * i for i in range(55)} | {"": "empty key", "empty": ""}
    async with stub() as provider:
        await idle(provider, "m-0")
        request = pb.ConfigureRequest(machine_id="m-0", cluster_id="c", shard_metadata=metadata)
        ack = await provider.Configure(request)
        got = await provider.Get(pb.MachineRef(id="m-0"))
        [listed] = (await provider.List(pb.ListFilter(states=[got.state]))).machines
    assert dict(ack.machine.shard_metadata) == dict(got.shard_metadata) == dict(listed.shard_metadata) == metadata


async def test_lists_select_by_state_and_label_and_page_through_everything() -> None:
    def labelled(key: str, *values: str) -> pb.ListFilter:
        operator = capacity.NodeSelectorRequirement.OPERATOR_IN
        return pb.ListFilter(
            label_selector=[capacity.NodeSelectorRequirement(key=key, operator=operator, values=values)]
        )

    async with stub(Toy(25)) as provider:
        await idle(provider, "m-7")
        found = await provider.List(pb.ListFilter(states=[pb.MACHINE_STATE_IDLE]))
        assert [machine.id for machine in found.machines] == ["m-7"]
        assert not (await provider.List(pb.ListFilter(states=[pb.MACHINE_STATE_UNSPECIFIED]))).machines
        assert len((await provider.List(labelled("topology.kubernetes.io/zone", "z1", "z2"))).machines) == 25
        assert len((await provider.List(labelled("example.com/rack", "r1"))).machines) == 25
        assert not (await provider.List(labelled("example.com/rack", "r2"))).machines
        seen, cursor = list[str](), b""
        while page := await provider.List(pb.ListFilter(max_results=4, since_revision=cursor)):
            if not page.machines:
                break
            assert len(page.machines) <= 4
            seen += [machine.id for machine in page.machines]
            cursor = page.revision
        assert sorted(seen) == sorted(f"m-{i}" for i in range(25))


async def test_a_long_list_is_whole() -> None:
    async with stub(Toy(5_000)) as provider:
        assert len((await provider.List(pb.ListFilter())).machines) == 5_000


class TestIdentity:
    async def test_who_may_call_what(self, pki: "PKI") -> None:
        tls = pki.live("bigfleet://provider/toy", "provider")
        async with serving(Toy(), MemoryStore(), Endpoint(LOOPBACK, tls=tls)) as served:

            async def calls(uri: str) -> list[grpc.StatusCode]:
                dialer = Dialer(
                    served.address, Role.PROVIDER, pki.live(uri, uri.rpartition("/")[2]), PROVIDER_CHANNEL_OPTIONS
                )
                provider = CapacityProviderStub(await dialer.channel())
                own = pb.CreateRequest(machine_id="m-0", **token(time.time_ns(), shard="alpha"))
                codes = [
                    await code_of(provider.Create(own)),
                    await code_of(provider.Create(pb.CreateRequest(machine_id="m-0"))),
                    await code_of(provider.Get(pb.MachineRef(id="m-0"))),
                    await code_of(provider.List(pb.ListFilter())),
                ]
                await dialer.hang_up()
                return codes

            denied, fine = Code.PERMISSION_DENIED, Code.OK
            assert await calls("bigfleet://shard/alpha") == [fine, denied, fine, fine]
            assert await calls("bigfleet://shard/beta") == [denied, denied, fine, fine]
            assert await calls("bigfleet://admin") == [denied, fine, fine, fine]
            assert await calls("bigfleet://readonly") == [denied, denied, fine, fine]
            assert await calls("bigfleet://cluster/alpha") == [denied, denied, denied, denied]

    async def test_a_certificate_of_another_kind_does_not_start(self, pki: "PKI") -> None:
        endpoint = Endpoint(LOOPBACK, tls=pki.live("bigfleet://shard/alpha"))
        with pytest.raises(TLSConfigError, match="a provider's is bigfleet://provider/<name>"):
            async with serving(Toy(), MemoryStore(), endpoint):
                pass


async def test_metrics_and_readiness_are_served() -> None:
    endpoint = Endpoint(LOOPBACK, metrics=LOOPBACK)
    async with (
        serving(Toy(), MemoryStore(), endpoint) as served,
        grpc.aio.insecure_channel(str(served.address)) as channel,
    ):
        await code_of(CapacityProviderStub(channel).Create(pb.CreateRequest(machine_id="ghost")))
        metrics, ready = await _http(served.metrics_port, "/metrics"), await _http(served.metrics_port, "/readyz")
    assert 'bigfleet_provider_machines{state="Speculative"} 3.0' in metrics
    assert 'bigfleet_provider_calls_total{code="NOT_FOUND",method="Create"} 1.0' in metrics
    assert "200 OK" in ready


async def _http(port: int, path: str) -> str:
    import asyncio

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode()
