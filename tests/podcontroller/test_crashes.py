"""Wherever the controller is struck down, the next one ends with the same requests: exactly one for each live pod."""

import asyncio
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.podcontroller.api_server import ApiServer, Object, api_server
from tests.podcontroller.stage import REQUESTS, held, own_name, owner, pod, request, running, settled


def a_bit_of_everything(server: ApiServer) -> dict[str, str]:
    """Every kind of work there is; returns the requests that should be there in the end."""
    new = server.add("pods", pod("new"))
    wrong = server.add("pods", pod("wrong"))
    ended = server.add("pods", pod("ended", status={"phase": "Failed"}))
    double = server.add("pods", pod("double"))
    bare = server.add("pods", pod("bare"))
    malformed = pod("malformed")
    malformed["metadata"]["annotations"] = {"bigfleet.lucy.sh/reclamation-penalty": "?"}
    server.add("pods", malformed)
    orphan = pod("orphan")
    orphan["metadata"]["uid"] = "gone"
    server.add(REQUESTS, request(wrong, cpu="9"))
    server.add(REQUESTS, request(ended))
    server.add(REQUESTS, request(orphan))
    server.add(REQUESTS, request(double))
    server.add(REQUESTS, request(double, "cr-pod-double-zzz"))
    server.add(REQUESTS, request(bare, labels={}))
    live = [new, wrong, double, bare, server.objects["pods", "shop", "malformed"]]
    return {own_name(each): "1" for each in live}


@contextmanager
def striking(server: ApiServer, step: int, how: Literal["before", "after"]) -> Iterator[asyncio.Event]:
    """Cut the call of that number, counted over all calls; the event tells when."""
    struck = asyncio.Event()
    count = 0

    def strike(method: str, path: str) -> Any:
        nonlocal count
        count += 1
        if count != step + 1:
            return None
        struck.set()
        return how

    server.strike = strike
    yield struck
    server.strike = lambda method, path: None


async def test_there_are_many_steps_to_be_struck_at(server: ApiServer) -> None:
    expected = a_bit_of_everything(server)
    async with settled(server):
        await server.until(lambda: server.all("events"))
        assert held(server) == expected
    assert len(server.calls) > 10


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("step", range(12))
async def test_a_crash_at_any_step_leaves_nothing_that_the_next_life_does_not_mend(
    server: ApiServer, step: int, how: Literal["before", "after"]
) -> None:
    expected = a_bit_of_everything(server)
    with striking(server, step, how) as struck:
        async with running(server) as stage:
            await asyncio.wait_for(struck.wait(), 30)
            await stage.crash()
    async with settled(server):
        assert held(server) == expected
        for made in server.all(REQUESTS):
            (reference,) = made["metadata"]["ownerReferences"]
            assert reference == owner(server.objects["pods", "shop", reference["name"]])


NAMES = ("a", "b", "c")
steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "end", "resize", "tamper", "unlabel", "take", "double", "crash"]),
        st.sampled_from(NAMES),
    ),
    max_size=25,
)


class Story:
    """Pods and requests as users and accidents change them."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def tell(self, step: str, name: str) -> None:
        server, key = self._server, ("pods", "shop", name)
        found = server.objects.get(key)
        if step == "add" and found is None:
            server.add("pods", pod(name))
        if found is None:
            return
        own = (REQUESTS, "shop", own_name(found))
        if step == "remove":
            server.remove(*key)
        elif step == "end":
            server.edit(*key, lambda obj: obj["status"].update(phase="Succeeded"))
        elif step == "resize":
            container = {"name": "main", "resources": {"requests": {"cpu": str(server.version)}}}
            server.edit(*key, lambda obj: obj["spec"].update(containers=[container]))
        elif step == "double":
            server.add(REQUESTS, request(found, f"cr-pod-{name}-{server.version}"))
        elif own in server.objects:
            if step == "tamper":
                server.edit(*own, lambda obj: obj["spec"]["resources"].update(memory="1Gi"))
            elif step == "unlabel":
                server.edit(*own, lambda obj: obj["metadata"].update(labels={}))
            elif step == "take":
                server.remove(*own)

    def wanted(self) -> dict[str, Any]:
        def resources(made: Object) -> Any:
            return copy.deepcopy(made["spec"]["containers"][0]["resources"]["requests"])

        live = [made for made in self._server.all("pods") if made["status"]["phase"] != "Succeeded"]
        return {own_name(made): resources(made) for made in live}

    def right(self) -> bool:
        made = self._server.all(REQUESTS)
        return {each["metadata"]["name"]: each["spec"]["resources"] for each in made} == self.wanted()


async def tell(story: list[tuple[str, str]]) -> None:
    async with api_server() as server:
        told = Story(server)
        left = list(story)
        while True:
            async with running(server) as stage:
                while left:
                    step, name = left.pop(0)
                    if step == "crash":
                        await stage.crash()
                        break
                    told.tell(step, name)
                    await asyncio.sleep(0)
                else:
                    await server.until(told.right)
                    break
            if not left:
                break
        async with settled(server):
            assert told.right()
        server.calls.clear()
        async with settled(server):
            assert told.right()
        assert server.writes() == []


@settings(max_examples=100)
@given(steps)
def test_whatever_happens_every_live_pod_ends_with_its_one_request(story: list[tuple[str, str]]) -> None:
    asyncio.run(tell(story))
