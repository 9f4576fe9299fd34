"""The six calls over a real connection: tokens, retries, acks that do not fit, and every way a provider says no."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from structlog.testing import capture_logs

from bigfleet.model.machine import Call, MachineState
from bigfleet.provider import client as client_module
from bigfleet.provider.acks import SHOWN
from bigfleet.provider.errors import (
    AckMismatchError,
    BrokenContractError,
    ExhaustedError,
    FencedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ProviderError,
    RefusedError,
    UnavailableError,
    UnsupportedError,
)
from bigfleet.provider.records import Ack
from bigfleet.wire.machines import machine_from_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

if TYPE_CHECKING:
    from tests.provider.scripted_provider import MakeRig, Rig
    from tests.shared.certificates import PKI

Record = Callable[..., pb.Machine]
STAMP = {"bigfleet.lucy.sh/binding": "7\x00", "": "ü"}
CODES = grpc.StatusCode


def ack(machine: pb.Machine | None, operation_id: str = "op-1") -> pb.TransitionAck:
    return pb.TransitionAck(operation_id=operation_id, machine=machine)


def bound(record: Record, **fields: Any) -> pb.Machine:
    return record("m-1", pb.MACHINE_STATE_CONFIGURING, shard_metadata=STAMP, **fields)


async def configure(rig: "Rig") -> Ack:
    return await rig.client.configure("m-1", "prod", b"secret blob", STAMP)


CALLS: dict[str, Callable[["Rig"], Awaitable[Any]]] = {
    "Create": lambda rig: rig.client.create("m-1"),
    "Configure": configure,
    "Drain": lambda rig: rig.client.drain("m-1", 90),
    "Delete": lambda rig: rig.client.delete("m-1"),
    "Get": lambda rig: rig.client.get("m-1"),
    "List": lambda rig: rig.client.list(),
}
each_call = pytest.mark.parametrize("method", CALLS)
MUTATING = [call.value for call in Call]


def fitting(record: Record, method: str) -> Any:
    """An answer that the call is content with."""
    if method == "List":
        return pb.MachineList()
    if method == "Get":
        return record("m-1")
    if method == "Configure":
        return ack(bound(record))
    return ack(record("m-1", min(SHOWN[Call(method)])))


async def test_each_call_says_what_was_asked_under_the_shard_s_token(rig: "Rig", record: Record) -> None:
    for method in MUTATING:
        rig.script.replies.append(fitting(record, method))
        await CALLS[method](rig)
    token: Any = {"shard_id": "s1", "shard_epoch": 7}
    assert rig.script.asked == [
        ("Create", pb.CreateRequest(machine_id="m-1", sequence_number=1, **token)),
        (
            "Configure",
            pb.ConfigureRequest(
                machine_id="m-1",
                cluster_id="prod",
                bootstrap_blob=b"secret blob",
                shard_metadata=STAMP,
                sequence_number=2,
                **token,
            ),
        ),
        ("Drain", pb.DrainRequest(machine_id="m-1", grace_period_seconds=90, sequence_number=3, **token)),
        ("Delete", pb.DeleteRequest(machine_id="m-1", sequence_number=4, **token)),
    ]


async def test_an_ack_is_the_operation_and_the_machine(rig: "Rig", record: Record) -> None:
    rig.script.replies.append(ack(bound(record), "op-9"))
    assert await configure(rig) == Ack("op-9", machine_from_wire(bound(record)))


async def test_get_tells_of_the_machine(rig: "Rig", record: Record) -> None:
    rig.script.replies.append(record("m-1"))
    assert (await rig.client.get("m-1")).machine == machine_from_wire(record("m-1"))
    assert rig.script.asked == [("Get", pb.MachineRef(id="m-1"))]


@each_call
@pytest.mark.parametrize("code", [CODES.UNAVAILABLE, CODES.DEADLINE_EXCEEDED])
async def test_what_may_heal_is_tried_again_with_longer_waits(
    rig: "Rig", record: Record, method: str, code: grpc.StatusCode
) -> None:
    rig.script.replies += [code, code, code, fitting(record, method)]
    await CALLS[method](rig)
    assert rig.time.slept == [0.25, 0.5, 1.0]
    labels = {"provider": "acme", "method": method}
    assert rig.count("bigfleet_shard_provider_rpc_errors_total", **labels, code=code.name) == 3
    assert rig.count("bigfleet_shard_provider_rpc_duration_seconds_count", **labels) == 4


@pytest.mark.parametrize("method", MUTATING)
async def test_every_attempt_carries_a_token_of_its_own(rig: "Rig", record: Record, method: str) -> None:
    rig.script.replies += [CODES.UNAVAILABLE, CODES.DEADLINE_EXCEEDED, fitting(record, method)]
    await CALLS[method](rig)
    assert rig.script.tokens() == [("s1", 7, 1), ("s1", 7, 2), ("s1", 7, 3)]


async def test_a_new_epoch_starts_its_sequence_over(rig: "Rig", record: Record) -> None:
    rig.script.replies += [fitting(record, "Create")] * 3
    await rig.client.create("m-1")
    await rig.client.create("m-1")
    rig.fencing.renew(9)
    await rig.client.create("m-1")
    assert rig.script.tokens() == [("s1", 7, 1), ("s1", 7, 2), ("s1", 9, 1)]


@each_call
async def test_attempts_are_bounded_and_the_error_counts_them(rig: "Rig", method: str) -> None:
    rig.script.replies += [CODES.UNAVAILABLE] * 4
    with pytest.raises(UnavailableError, match="UNAVAILABLE 'said so' after 4 attempts"):
        await CALLS[method](rig)
    assert len(rig.script.asked) == 4


async def test_no_attempt_begins_when_the_time_for_the_call_is_up(make_rig: "MakeRig") -> None:
    async with make_rig(attempts=1000) as rig:

        async def unavailable(_request: Any) -> grpc.StatusCode:
            return CODES.UNAVAILABLE

        rig.script.behave = unavailable
        began = rig.time.now
        with pytest.raises(UnavailableError):
            await rig.client.get("m-1")
        assert rig.time.now - began <= 60
        assert len(rig.script.asked) < 20


async def test_a_provider_that_does_not_answer_is_given_up_at_the_deadline(
    rig: "Rig", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CALL_SECONDS", 0.05)

    async def silent(_request: Any) -> Any:
        await asyncio.Event().wait()

    rig.script.behave = silent
    with pytest.raises(UnavailableError, match="DEADLINE_EXCEEDED"):
        await rig.client.get("m-1")


async def test_a_provider_that_is_not_there_is_unavailable(make_rig: "MakeRig") -> None:
    async with make_rig() as gone:
        pass
    with pytest.raises(UnavailableError, match="cannot use the server at ") as caught:
        await gone.client.get("m-1")
    assert caught.value.code == "UNAVAILABLE"
    assert (
        gone.count("bigfleet_shard_provider_rpc_errors_total", provider="acme", method="Get", code="UNAVAILABLE") == 4
    )


@each_call
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (CODES.NOT_FOUND, NotFoundError),
        (CODES.UNIMPLEMENTED, UnsupportedError),
        (CODES.INVALID_ARGUMENT, InvalidError),
        (CODES.ABORTED, RefusedError),
        (CODES.INTERNAL, RefusedError),
        (CODES.UNKNOWN, RefusedError),
        (CODES.CANCELLED, RefusedError),
        (CODES.PERMISSION_DENIED, ForbiddenError),
        (CODES.UNAUTHENTICATED, ForbiddenError),
        (CODES.RESOURCE_EXHAUSTED, ExhaustedError),
    ],
)
async def test_a_no_is_typed_and_never_tried_again(
    rig: "Rig", method: str, code: grpc.StatusCode, error: type[ProviderError]
) -> None:
    rig.script.replies.append((code, "because " + "x" * 5000))
    with pytest.raises(error) as caught:
        await CALLS[method](rig)
    assert type(caught.value) is error
    assert (caught.value.provider, caught.value.method, caught.value.code) == ("acme", method, code.name)
    assert caught.value.machine_id == ("" if method == "List" else "m-1")
    assert str(caught.value).startswith(f"provider acme: {method}")
    assert "'because xxx" in str(caught.value)
    assert len(str(caught.value)) < 400
    assert len(rig.script.asked) == 1
    assert rig.time.slept == []


@pytest.mark.parametrize("method", MUTATING)
async def test_a_fenced_call_is_never_tried_again(rig: "Rig", method: str) -> None:
    rig.script.replies.append(CODES.FAILED_PRECONDITION)
    with pytest.raises(FencedError):
        await CALLS[method](rig)
    assert len(rig.script.asked) == 1


@pytest.mark.parametrize("method", ["Get", "List"])
async def test_a_fenced_read_breaks_the_contract(rig: "Rig", method: str) -> None:
    rig.script.replies.append(CODES.FAILED_PRECONDITION)
    with pytest.raises(BrokenContractError, match="reads are never fenced"):
        await CALLS[method](rig)


@pytest.mark.parametrize(
    ("call", "state"), [(call, state) for call in Call for state in MachineState], ids=lambda value: value.name
)
async def test_an_ack_in_a_state_that_the_call_cannot_show_is_a_mismatch(
    rig: "Rig", record: Record, call: Call, state: MachineState
) -> None:
    shown = record("m-1", state, shard_metadata=STAMP if state in (4, 5, 6) else {})
    rig.script.replies.append(ack(shown))
    allowed = {
        Call.CREATE: (MachineState.CREATING, MachineState.IDLE),
        Call.CONFIGURE: (MachineState.CONFIGURING, MachineState.CONFIGURED),
        Call.DRAIN: (MachineState.DRAINING, MachineState.IDLE),
        Call.DELETE: (MachineState.DELETING, MachineState.SPECULATIVE),
    }
    if state in allowed[call]:
        assert (await CALLS[call.value](rig)).machine.state is state
    else:
        with pytest.raises(AckMismatchError, match=f"state {state.label}, expected") as caught:
            await CALLS[call.value](rig)
        assert caught.value.ack.machine == machine_from_wire(shown)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"cluster": "other", "shard_metadata": STAMP}, "cluster 'other', expected 'prod'"),
        ({"shard_metadata": {}}, "shard_metadata"),
        ({"shard_metadata": {**STAMP, "more": ""}}, "shard_metadata"),
        ({"shard_metadata": {**STAMP, "": "u"}}, "shard_metadata"),
    ],
)
async def test_rule_3_a_configure_ack_for_another_binding_is_a_mismatch_and_its_record_the_truth(
    rig: "Rig", record: Record, fields: dict[str, Any], problem: str
) -> None:
    shown = record("m-1", pb.MACHINE_STATE_CONFIGURED, **fields)
    rig.script.replies.append(ack(shown))
    with pytest.raises(AckMismatchError, match=problem) as caught:
        await configure(rig)
    assert caught.value.machine_id == "m-1"
    assert caught.value.ack == Ack("op-1", machine_from_wire(shown))


@pytest.mark.parametrize("method", [*MUTATING, "Get"])
async def test_an_answer_about_another_machine_breaks_the_contract(rig: "Rig", record: Record, method: str) -> None:
    answer = record("m-2") if method == "Get" else ack(record("m-2"))
    rig.script.replies.append(answer)
    with capture_logs() as logs, pytest.raises(BrokenContractError, match="the answer is about machine 'm-2'"):
        await CALLS[method](rig)
    (line,) = logs
    assert (line["event"], line["machine"], line["field"]) == ("provider_broke_contract", "m-1", "id")


@pytest.mark.parametrize("method", MUTATING)
async def test_an_ack_without_a_machine_breaks_the_contract(rig: "Rig", method: str) -> None:
    rig.script.replies.append(ack(None))
    with pytest.raises(BrokenContractError, match="machine: is missing"):
        await CALLS[method](rig)


@each_call
async def test_bytes_that_are_no_answer_break_the_contract(rig: "Rig", method: str) -> None:
    rig.script.replies.append(b"\x0a\xff\xff")
    with pytest.raises(BrokenContractError, match="answer: is no "):
        await CALLS[method](rig)
    assert len(rig.script.asked) == 1


@pytest.mark.parametrize("method", ["Create", "Get"])
async def test_a_malformed_record_is_refused_by_machine_and_rule(rig: "Rig", record: Record, method: str) -> None:
    bad = record("m-1", cluster="prod")
    rig.script.replies.append(bad if method == "Get" else ack(bad))
    with capture_logs() as logs, pytest.raises(BrokenContractError, match="cluster: must be empty in state Idle"):
        await CALLS[method](rig)
    (line,) = logs
    assert (line["provider"], line["machine"], line["field"]) == ("acme", "m-1", "cluster")
    assert rig.count("bigfleet_shard_machines_rejected_total", reason="structural") == 1


@pytest.mark.parametrize("method", ["Create", "Get"])
async def test_a_bad_price_leaves_the_rest_of_an_answer(rig: "Rig", record: Record, method: str) -> None:
    bad = record("m-1", price_per_hour=math.nan)
    rig.script.replies.append(bad if method == "Get" else ack(bad))
    answer = await CALLS[method](rig)
    assert answer.refused.reason == "price"
    good = machine_from_wire(record("m-1", zone="old"))
    assert answer.refused.mended(good) == machine_from_wire(record("m-1"))
    assert rig.count("bigfleet_shard_machines_rejected_total", reason="price") == 1


async def test_an_ack_without_an_operation_is_taken_and_told_of(rig: "Rig", record: Record) -> None:
    rig.script.replies.append(ack(record("m-1"), operation_id=""))
    with capture_logs() as logs:
        assert (await rig.client.create("m-1")).machine.state is MachineState.IDLE
    assert [line["field"] for line in logs] == ["operation_id"]


async def test_cancelling_a_call_ends_it_at_once(rig: "Rig") -> None:
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def silent(_request: Any) -> Any:
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    rig.script.behave = silent
    calling = asyncio.create_task(rig.client.get("m-1"))
    await arrived.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await ended.wait()
    assert len(rig.script.asked) == 1


async def test_cancelling_between_attempts_ends_the_call(make_rig: "MakeRig") -> None:
    waiting = asyncio.Event()

    async def for_ever(_seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with make_rig(sleep=for_ever) as rig:
        rig.script.replies.append(CODES.UNAVAILABLE)
        calling = asyncio.create_task(rig.client.get("m-1"))
        await waiting.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_a_connection_closed_under_a_call_is_dialled_anew(rig: "Rig", record: Record) -> None:
    arrived = asyncio.Event()

    async def silent(_request: Any) -> Any:
        arrived.set()
        await asyncio.Event().wait()

    rig.script.behave = silent
    calling = asyncio.create_task(rig.client.create("m-1"))
    await arrived.wait()
    rig.script.replies.append(fitting(record, "Create"))
    await rig.client.close()
    assert (await calling).operation_id == "op-1"
    assert rig.script.tokens() == [("s1", 7, 1), ("s1", 7, 2)]


async def test_hanging_up_while_a_call_dials_does_not_pass_for_its_cancellation(
    rig: "Rig", record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialling = asyncio.Event()

    async def stuck(*_: object) -> None:
        dialling.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr("bigfleet.transport.dial.check_server", stuck)
        calling = asyncio.create_task(rig.client.get("m-1"))
        await dialling.wait()
    rig.script.replies.append(record("m-1"))
    await rig.client.close()
    assert (await calling).machine.id == "m-1"


async def test_over_tls_only_the_provider_of_that_name_is_called(
    make_rig: "MakeRig", pki: "PKI", record: Record
) -> None:
    shard = pki.live("bigfleet://shard/s1", "shard")
    async with make_rig(server_tls=pki.live("bigfleet://provider/acme", "right"), client_tls=shard) as rig:
        rig.script.replies.append(record("m-1"))
        assert (await rig.client.get("m-1")).machine.id == "m-1"
    async with make_rig(server_tls=pki.live("bigfleet://provider/other", "wrong"), client_tls=shard) as rig:
        with pytest.raises(UnavailableError, match="expected bigfleet://provider/acme"):
            await rig.client.get("m-1")
        assert rig.script.asked == []
