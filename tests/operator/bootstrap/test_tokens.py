"""Bootstrap tokens: one Secret a request, whatever happens to the operator, and none that stays."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bigfleet.kube.errors import ApiError, ForbiddenError, TooManyRequestsError, UnreachableError
from bigfleet.kube.objects.names import MACHINE
from bigfleet.kube.objects.resources import SECRETS
from bigfleet.operator.bootstrap import tokens as module
from bigfleet.operator.bootstrap.tokens import NAMESPACE, BootstrapToken, BootstrapTokens, TokenError
from tests.operator.fakes import FakeClock, FakeServer, settle


@asynccontextmanager
async def living(server: FakeServer) -> AsyncIterator[BootstrapTokens]:
    tokens = BootstrapTokens(server.client(), "prod", server.clock.wall, wait=server.clock.wait)
    await tokens.load()
    task = asyncio.create_task(tokens.run())
    try:
        await settle()
        yield tokens
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_token_is_a_secret_that_the_api_server_takes_for_an_hour(server: FakeServer) -> None:
    async with living(server) as tokens:
        token = await tokens.issue("r-1", "m-1")
    (name,) = server.names(SECRETS)
    secret = server.find(SECRETS, name, NAMESPACE)
    assert secret is not None
    token_id, _, rest = token.text.partition(".")
    assert name == f"bootstrap-token-{token_id}"
    assert (len(token_id), len(rest), token.seconds_left) == (6, 16, 3600)
    assert secret.type == "bootstrap.kubernetes.io/token"
    assert secret.data == {
        "token-id": token_id.encode(),
        "token-secret": rest.encode(),
        "expiration": b"2026-11-15T13:00:00Z",
        "usage-bootstrap-authentication": b"true",
        "auth-extra-groups": b"system:bootstrappers:bigfleet",
        "description": b"BigFleet: machine m-1 joins prod",
    }
    assert secret.metadata.labels[MACHINE] == "m-1"
    assert rest not in repr(token)


async def test_a_request_asked_again_gets_the_same_token_in_the_next_life_too(
    server: FakeServer, clock: FakeClock
) -> None:
    async with living(server) as tokens:
        first = await tokens.issue("r-1", "m-1")
        assert await tokens.issue("r-1", "m-1") == first
    await clock.advance(600)
    async with living(server) as tokens:
        again = await tokens.issue("r-1", "m-1")
        assert (again.text, again.seconds_left) == (first.text, 3000)
    assert len(server.names(SECRETS)) == 1


async def test_a_token_that_would_not_last_for_a_configure_is_made_anew(server: FakeServer, clock: FakeClock) -> None:
    async with living(server) as tokens:
        first = await tokens.issue("r-1", "m-1")
        await clock.advance(1201)
        second = await tokens.issue("r-1", "m-1")
    assert second.text != first.text
    assert second.seconds_left == 3600
    assert len(server.names(SECRETS)) == 1


async def test_a_withdrawn_request_loses_its_token_and_no_other_does(server: FakeServer) -> None:
    async with living(server) as tokens:
        await tokens.issue("r-1", "m-1")
        kept = await tokens.issue("r-2", "m-2")
        tokens.withdraw("r-1")
        tokens.withdraw("unknown")
        await settle()
        assert server.names(SECRETS) == [f"bootstrap-token-{kept.text[:6]}"]


async def test_a_machine_that_is_ready_needs_no_token(server: FakeServer) -> None:
    async with living(server) as tokens:
        await tokens.issue("r-1", "m-1")
        await tokens.issue("r-2", "m-1")
        assert tokens.asked_at("m-1") == server.clock.wall()
        tokens.release("m-1")
        await settle()
        assert server.names(SECRETS) == []
        assert tokens.asked_at("m-1") is None


async def test_a_request_asked_again_after_its_withdrawal_gets_another_token(server: FakeServer) -> None:
    async with living(server) as tokens:
        first = await tokens.issue("r-1", "m-1")
        tokens.withdraw("r-1")
        second = await tokens.issue("r-1", "m-1")
        await settle()
        assert second.text != first.text
        assert len(server.names(SECRETS)) == 1


@pytest.mark.parametrize("steps", range(8))
async def test_a_token_asked_for_again_while_the_old_one_goes_stays(server: FakeServer, steps: int) -> None:
    async with living(server) as tokens:
        await tokens.issue("r-1", "m-1")
        tokens.withdraw("r-1")
        for _ in range(steps):
            await asyncio.sleep(0)
        token = await tokens.issue("r-1", "m-1")
        await settle()
        assert server.names(SECRETS) == [f"bootstrap-token-{token.text[:6]}"]
        assert tokens.asked_at("m-1") is not None
        assert await tokens.issue("r-1", "m-1") == token


async def test_a_delete_that_comes_late_does_not_strike_the_token_made_meanwhile(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, delete, calls = asyncio.Event(), server.delete, itertools.count()

    async def late(*args: Any, **kwargs: Any) -> None:
        if next(calls) == 0:
            await gate.wait()
        await delete(*args, **kwargs)

    monkeypatch.setattr(server, "delete", late)
    async with living(server) as tokens:
        await tokens.issue("r-1", "m-1")
        tokens.withdraw("r-1")
        await settle()
        token = await tokens.issue("r-1", "m-1")
        gate.set()
        await settle()
        assert server.names(SECRETS) == [f"bootstrap-token-{token.text[:6]}"]
        assert tokens.asked_at("m-1") is not None


async def test_a_token_made_anew_while_the_sweep_is_at_another_stays(server: FakeServer) -> None:
    gate, deletes = asyncio.Event(), itertools.count()
    server.late = lambda verb, _name: gate if verb == "delete" and next(deletes) == 0 else None
    async with living(server) as tokens:
        await tokens.issue("r-1", "m-1")
        await tokens.issue("r-2", "m-2")
        tokens.withdraw("r-1")
        tokens.withdraw("r-2")
        await settle()
        token = await tokens.issue("r-2", "m-2")
        gate.set()
        await settle()
        assert server.names(SECRETS) == [f"bootstrap-token-{token.text[:6]}"]


async def test_expired_tokens_are_swept_those_of_an_earlier_life_too(server: FakeServer, clock: FakeClock) -> None:
    async with living(server) as tokens:
        await tokens.issue("r-1", "m-1")
    await clock.advance(3000)
    async with living(server) as tokens:
        younger = await tokens.issue("r-2", "m-2")
        assert len(server.names(SECRETS)) == 2
        await clock.advance(660)
        assert server.names(SECRETS) == [f"bootstrap-token-{younger.text[:6]}"]


async def test_what_others_have_made_is_left_alone(server: FakeServer, clock: FakeClock) -> None:
    theirs = {"metadata": {"name": "bootstrap-token-aaaaaa"}, "type": "bootstrap.kubernetes.io/token"}
    server.put(SECRETS, theirs, NAMESPACE)
    async with living(server):
        await clock.advance(7200)
    assert server.names(SECRETS) == ["bootstrap-token-aaaaaa"]


async def test_an_id_that_somebody_else_has_is_passed_over(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {0: "aaaaaa", 1: "bbbbbb"}
    monkeypatch.setattr(module, "_token_id", lambda _cluster, _request, salt: ids[salt])
    server.put(SECRETS, {"metadata": {"name": "bootstrap-token-aaaaaa"}}, NAMESPACE)
    async with living(server) as tokens:
        assert (await tokens.issue("r-1", "m-1")).text.startswith("bbbbbb.")
        monkeypatch.setattr(module, "_token_id", lambda *_: "aaaaaa")
        with pytest.raises(TokenError):
            await tokens.issue("r-2", "m-2")


async def test_a_delete_that_fails_is_tried_again(server: FakeServer, clock: FakeClock) -> None:
    async with living(server) as tokens:
        await tokens.issue("r-1", "m-1")
        server.refuse = UnreachableError
        tokens.withdraw("r-1")
        await settle()
        server.refuse = lambda _verb, _name: None
        await clock.advance(61)
        assert server.names(SECRETS) == []


@pytest.mark.parametrize("error", [UnreachableError, ForbiddenError, TooManyRequestsError, partial(ApiError, code=500)])
async def test_the_start_waits_for_an_api_server_that_is_away_or_refuses(
    server: FakeServer, clock: FakeClock, error: Callable[[str, str], ApiError]
) -> None:
    async with living(server) as tokens:
        await tokens.issue("r-1", "m-1")
    server.refuse = error
    tokens = BootstrapTokens(server.client(), "prod", clock.wall, wait=clock.wait)
    loading = asyncio.create_task(tokens.load())
    await clock.advance(5)
    assert not loading.done()
    server.refuse = lambda _verb, _name: None
    await clock.advance(2)
    await loading
    assert tokens.asked_at("m-1") is not None


async def test_the_start_asks_ever_more_rarely(server: FakeServer, clock: FakeClock) -> None:
    server.refuse = ForbiddenError
    loading = asyncio.create_task(BootstrapTokens(server.client(), "prod", clock.wall, wait=clock.wait).load())
    with capture_logs() as logs:
        await clock.advance(100)
    assert [log["again_in"] for log in logs if log["event"] == "bootstrap_tokens_not_listed"] == [
        2,
        4,
        8,
        16,
        30,
        30,
        30,
    ]
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)


@pytest.mark.parametrize("machine", ["m-1", "", "provider/with a long name" * 10, "ünïcode"])
async def test_any_machine_id_makes_a_label(server: FakeServer, machine: str) -> None:
    async with living(server) as tokens:
        await tokens.issue("r-1", machine)
    (name,) = server.names(SECRETS)
    secret = server.find(SECRETS, name, NAMESPACE)
    assert secret is not None
    assert 0 < len(secret.metadata.labels[MACHINE]) <= 63
    assert secret.metadata.annotations[MACHINE] == machine
    async with living(server) as tokens:
        assert tokens.asked_at(machine) is not None


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("step", range(4))
async def test_an_operator_that_dies_at_any_step_leaves_one_token(
    server: FakeServer, clock: FakeClock, step: int, takes_effect: bool
) -> None:
    async with living(server) as tokens:
        server.die_at = step, takes_effect
        asking = asyncio.create_task(_twice(tokens))
        await settle()
        asking.cancel()
    server.die_at = None
    server.died.clear()
    async with living(server) as tokens:
        await tokens.issue("r-1", "m-1")
        assert len(server.names(SECRETS)) == 1
        await clock.advance(3700)
    assert server.names(SECRETS) == []


async def _twice(tokens: BootstrapTokens) -> BootstrapToken:
    await tokens.issue("r-1", "m-1")
    return await tokens.issue("r-1", "m-1")


STEPS = st.lists(
    st.tuples(st.sampled_from(["issue", "withdraw", "ready", "restart", "advance"]), st.sampled_from("abc")),
    max_size=15,
)


@given(steps=STEPS)
def test_there_is_never_more_than_one_token_a_request_and_in_the_end_none(steps: list[tuple[str, str]]) -> None:
    async def story() -> None:
        clock = FakeClock()
        server = FakeServer(clock)
        live: set[str] = set()
        manager = living(server)
        tokens = await manager.__aenter__()
        for step, name in steps:
            match step:
                case "issue":
                    token = await tokens.issue(name, f"m-{name}")
                    assert token.seconds_left >= 2400
                    live.add(name)
                case "withdraw":
                    tokens.withdraw(name)
                    live.discard(name)
                case "ready":
                    tokens.release(f"m-{name}")
                    live.discard(name)
                case "restart":
                    await settle()
                    await manager.__aexit__(None, None, None)
                    manager = living(server)
                    tokens = await manager.__aenter__()
                case "advance":
                    await clock.advance(300)
            await settle()
            assert len(server.names(SECRETS)) <= len(live)
        await clock.advance(3700)
        assert server.names(SECRETS) == []
        await manager.__aexit__(None, None, None)

    asyncio.run(story())
