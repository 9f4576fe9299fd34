"""The process: one at a time by a Lease, a mark about the demand, health and metrics over HTTP."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bigfleet.podcontroller.controller import Plan
from bigfleet.podcontroller.keeper import Mode
from bigfleet.podcontroller.pod.penalties import PenaltyFileError
from bigfleet.podcontroller.run import PodControllerConfig, SelectorError, Served, serving
from bigfleet.transport.address import TCPAddress
from tests.podcontroller.api_server import ApiServer, refusal
from tests.podcontroller.stage import REQUESTS, held, own_name, pod, unschedulable

LEASE = ("leases", "bigfleet-system", "bigfleet-pod-controller")
MARK = ("configmaps", "bigfleet-system", "bigfleet-pod-controller")


def config(server: ApiServer, plan: Plan | None = None, **more: Any) -> PodControllerConfig:
    listen = TCPAddress("127.0.0.1", 0)
    return PodControllerConfig(
        server=server.config, plan=plan or Plan(), namespace="bigfleet-system", metrics_listen=listen, **more
    )


@asynccontextmanager
async def at_work(server: ApiServer, plan: Plan | None = None, **more: Any) -> AsyncIterator[Served]:
    """A process that holds the Lease and has made the request of the pod there is."""
    async with serving(config(server, plan, **more)) as served:
        await server.until(lambda: server.all(REQUESTS))
        yield served


async def get(served: Served, path: str) -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{served.metrics_port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


async def ready(served: Served) -> None:
    """Ask until it says that it is."""
    async with asyncio.timeout(30):
        while (await get(served, "/readyz"))[0] != 200:
            pass


async def test_it_works_and_tells_what_it_did(server: ApiServer) -> None:
    made = server.add("pods", pod())
    async with at_work(server) as served:
        await server.until(lambda: MARK in server.objects)
        assert held(server) == {own_name(made): "1"}
        assert (await get(served, "/healthz"))[0] == 200
        await ready(served)
        _, metrics = await get(served, "/metrics")
        assert 'bigfleet_unschedulable_pod_controller_reconciles_total{outcome="created"} 1.0' in metrics
    assert server.objects[LEASE]["spec"]["holderIdentity"] == "", "the Lease is given up"


async def test_a_second_stands_by_ready_and_takes_over(server: ApiServer) -> None:
    server.add("pods", pod())
    async with serving(config(server)) as second_candidate:
        await server.until(lambda: server.all(REQUESTS))
        holder = server.objects[LEASE]["spec"]["holderIdentity"]
        async with serving(config(server)) as standing_by:
            asked = len(server.calls)
            await server.until(lambda: any(call == ("GET", PATH) for call in server.calls[asked:]))
            assert (await get(standing_by, "/readyz"))[0] == 200
            assert server.objects[LEASE]["spec"]["holderIdentity"] == holder
        assert server.objects[LEASE]["spec"]["holderIdentity"] == holder, "who stood by gives up nothing"
        assert not second_candidate.working.done()
    later = server.add("pods", pod("later"))
    async with serving(config(server)):
        await server.until(lambda: own_name(later) in held(server))


PATH = "/apis/coordination.k8s.io/v1/namespaces/bigfleet-system/leases/bigfleet-pod-controller"


async def test_all_demand_is_marked_total_once_every_pod_has_its_request(server: ApiServer) -> None:
    made = server.add("pods", pod())
    hold = asyncio.Event()
    server.strike = lambda method, path: hold if method == "POST" and path.endswith(REQUESTS) else None
    async with serving(config(server)):
        await server.until(
            lambda: ("POST", f"/apis/bigfleet.lucy.sh/v1alpha1/namespaces/shop/{REQUESTS}") in server.calls
        )
        assert MARK not in server.objects
        hold.set()
        await server.until(lambda: MARK in server.objects)
        assert held(server) == {own_name(made): "1"}
    assert server.objects[MARK]["data"] == {"demand": "total", "mode": "all"}


async def test_part_of_the_demand_is_marked_partial_before_the_first_request(server: ApiServer) -> None:
    server.add("pods", pod(status=unschedulable()))
    refusals = 1

    def strike(method: str, path: str) -> Any:
        nonlocal refusals
        if method == "PATCH" and path.endswith("configmaps/bigfleet-pod-controller") and refusals:
            refusals -= 1
            return "before"
        return None

    server.strike = strike
    async with at_work(server, Plan(mode=Mode.UNSCHEDULABLE_ONLY)):
        assert server.objects[MARK]["data"] == {"demand": "partial", "mode": "unschedulable-only"}
    kinds = [change.plural for change in server.history if change.plural in {"configmaps", REQUESTS}]
    assert kinds == ["configmaps", REQUESTS]


async def test_going_back_to_all_demand_stays_partial_until_all_is_there(server: ApiServer) -> None:
    server.add("pods", pod(status=unschedulable()))
    async with at_work(server, Plan(mode=Mode.UNSCHEDULABLE_ONLY)):
        pass
    server.add("pods", pod("placed", nodeName="n1", status={"phase": "Running"}))
    server.strike = lambda method, path: refusal(500, "InternalError") if method == "POST" else None
    async with serving(config(server)):
        await server.until(lambda: sum(call[0] == "POST" for call in server.calls) >= 4)
        assert server.objects[MARK]["data"]["demand"] == "partial"
        server.strike = lambda method, path: None
        await server.until(lambda: server.objects[MARK]["data"]["demand"] == "total")
        assert len(server.all(REQUESTS)) == 2


async def test_penalty_defaults_are_used_and_bad_ones_stop_the_start(server: ApiServer, tmp_path: Path) -> None:
    path = tmp_path / "penalties.yaml"
    path.write_text("web: {interruptionPenalty: 5}")
    server.add("pods", pod(priorityClassName="web"))
    async with at_work(server, penalty_defaults=path):
        assert server.all(REQUESTS)[0]["spec"]["interruptionPenalty"] == 5
    path.write_text("web: 5")
    with pytest.raises(PenaltyFileError):
        async with serving(config(server, penalty_defaults=path)):
            pytest.fail("it must not start")


async def test_a_selector_that_the_server_does_not_understand_stops_it(server: ApiServer) -> None:
    with pytest.raises(SelectorError, match="unable to parse"):
        async with serving(config(server, Plan(namespace_selector="team of (a)"))) as served:
            await asyncio.wait_for(asyncio.shield(served.working), 30)


async def test_a_lost_lease_ends_the_work_and_it_stands_by_again(server: ApiServer) -> None:
    server.add("pods", pod())
    async with at_work(server) as served:
        server.edit(*LEASE, lambda obj: obj["spec"].update(holderIdentity="usurper", leaseDurationSeconds=3600))
        asked = len(server.calls)
        # The next renewal sees it; from then on there is no watch of ours, and nothing is written.
        await server.until(lambda: ("GET", PATH) in server.calls[asked:])
        await server.until(lambda: server.calls[asked:].count(("GET", PATH)) >= 3)
        calls = len(server.calls)
        server.add("pods", pod("later"))
        await server.until(lambda: ("GET", PATH) in server.calls[calls:])
        assert len(server.all(REQUESTS)) == 1
        assert not served.working.done()
