"""The controller against an API server: one request per live pod, whatever happens on the way."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from bigfleet.podcontroller.controller import Plan
from bigfleet.podcontroller.keeper import Mode
from bigfleet.podcontroller.pod.penalties import Penalties
from tests.podcontroller.api_server import ApiServer, Object, refusal
from tests.podcontroller.stage import (
    LABEL,
    REQUESTS,
    held,
    own_name,
    owner,
    passed,
    pod,
    request,
    running,
    settled,
    unschedulable,
)

ALONE = Plan(concurrency=1)
ONLY = Plan(mode=Mode.UNSCHEDULABLE_ONLY, concurrency=1)


async def test_a_pod_gets_one_request_that_it_owns(server: ApiServer) -> None:
    made = server.add("pods", pod(priority=7, nodeSelector={"zone": "a"}))
    async with settled(server) as stage:
        (found,) = server.all(REQUESTS)
    assert found["metadata"]["name"].startswith("cr-pod-web-")
    assert found["metadata"]["namespace"] == "shop"
    assert found["metadata"]["ownerReferences"] == [owner(made)]
    assert found["metadata"]["labels"] == LABEL
    assert found["spec"] == {
        "resources": {"cpu": "1"},
        "priority": 7,
        "requirements": [{"key": "zone", "operator": "In", "values": ["a"]}],
    }
    assert stage.count("created") == 1


async def test_a_pod_that_comes_later_gets_one_too(server: ApiServer) -> None:
    async with settled(server):
        made = server.add("pods", pod())
        await server.until(lambda: held(server) == {own_name(made): "1"})


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_ends_gives_its_request_up(server: ApiServer, phase: str) -> None:
    server.add("pods", pod())
    async with settled(server):
        server.edit("pods", "shop", "web", lambda obj: obj["status"].update(phase=phase))
        await server.until(lambda: not server.all(REQUESTS))


async def test_a_pod_that_is_gone_takes_its_request_along(server: ApiServer) -> None:
    server.add("pods", pod())
    async with settled(server):
        server.remove("pods", "shop", "web")
        await server.until(lambda: not server.all(REQUESTS))
    assert [call for call in server.calls if call[1].endswith("/pods/web")] == [], "the watch had said so"


async def test_a_running_pod_keeps_its_request_while_it_is_deleted(server: ApiServer) -> None:
    made = server.add("pods", pod(nodeName="n1", status={"phase": "Running"}))
    async with settled(server, ALONE):
        server.edit("pods", "shop", "web", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
        await passed(server)
        assert held(server) == {own_name(made): "1"}


async def test_pods_that_are_no_demand_get_none(server: ApiServer) -> None:
    daemon = pod("daemon")
    daemon["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    ]
    mirror = pod("mirror")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    for each in (
        daemon,
        mirror,
        pod("done", status={"phase": "Succeeded"}),
        pod("gated", schedulingGates=[{"name": "g"}]),
    ):
        server.add("pods", each)
    async with settled(server) as stage:
        assert stage.count("skipped") == 4
    assert server.writes() == []


async def test_a_pod_counts_once_its_gates_are_lifted(server: ApiServer) -> None:
    made = server.add("pods", pod(schedulingGates=[{"name": "quota"}]))
    async with settled(server):
        server.edit("pods", "shop", "web", lambda obj: obj["spec"].pop("schedulingGates"))
        await server.until(lambda: held(server) == {own_name(made): "1"})


async def test_a_restart_changes_nothing(server: ApiServer) -> None:
    for name in ("a", "b", "c"):
        server.add("pods", pod(name))
    async with settled(server):
        pass
    before = server.all(REQUESTS)
    server.calls.clear()
    async with settled(server) as stage:
        assert stage.count("unchanged") == 3
    assert server.writes() == []
    assert server.all(REQUESTS) == before


async def test_a_resize_changes_the_request(server: ApiServer) -> None:
    made = server.add("pods", pod(cpu="1"))
    async with settled(server):
        container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
        server.edit("pods", "shop", "web", lambda obj: obj["spec"].update(containers=[container]))
        await server.until(lambda: held(server) == {own_name(made): "2"})


TAMPERING: list[tuple[str, Callable[[Object], object]]] = [
    ("a smaller spec", lambda obj: obj["spec"].update(resources={"cpu": "1m"})),
    ("a field more", lambda obj: obj["spec"].update(maxPerNode=3)),
    ("a resource more", lambda obj: obj["spec"]["resources"].update(memory="9Gi")),
    ("another owner", lambda obj: obj["metadata"].update(ownerReferences=[])),
    ("the label gone", lambda obj: obj["metadata"].pop("labels")),
    ("unreadable", lambda obj: obj["spec"].update(priority="high")),
]


@pytest.mark.parametrize("change", [case[1] for case in TAMPERING], ids=[case[0] for case in TAMPERING])
@pytest.mark.parametrize("away", [False, True], ids=["at work", "away"])
async def test_a_request_that_somebody_edited_is_put_right(
    server: ApiServer, change: Callable[[Object], object], away: bool
) -> None:
    made = server.add("pods", pod())
    whole: Any = None

    def right() -> bool:
        (now,) = server.all(REQUESTS)
        metadata = now["metadata"]
        about = (now["spec"], metadata.get("labels"), metadata["ownerReferences"])
        return bool(about == (whole["spec"], LABEL, [owner(made)]))

    async with settled(server):
        (whole,) = server.all(REQUESTS)
        if not away:
            server.edit(REQUESTS, "shop", own_name(made), change)
            await server.until(right)
            return
    server.edit(REQUESTS, "shop", own_name(made), change)
    async with running(server):
        await server.until(right)


async def test_a_request_that_somebody_deleted_is_made_again(server: ApiServer) -> None:
    made = server.add("pods", pod())
    async with settled(server):
        server.remove(REQUESTS, "shop", own_name(made))
        await server.until(lambda: own_name(made) in held(server))


async def test_labels_of_others_stay_when_a_request_is_put_right(server: ApiServer) -> None:
    made = server.add("pods", pod())
    server.add(REQUESTS, request(made, cpu="9", labels={**LABEL, "team": "x"}))
    async with settled(server):
        (found,) = server.all(REQUESTS)
    assert found["spec"]["resources"] == {"cpu": "1"}
    assert found["metadata"]["labels"] == {**LABEL, "team": "x"}


async def test_two_requests_for_one_pod_do_not_stay(server: ApiServer) -> None:
    made = server.add("pods", pod())
    server.add(REQUESTS, request(made, "cr-pod-web-x7k2p"))
    async with settled(server):
        assert held(server) == {own_name(made): "1"}
        server.add(REQUESTS, request(made, "cr-pod-web-q9"))
        await server.until(lambda: held(server) == {own_name(made): "1"})


async def test_requests_without_a_pod_are_removed_and_those_of_others_are_not(server: ApiServer) -> None:
    gone = pod("gone")
    gone["metadata"]["uid"] = "u-gone"
    server.add(REQUESTS, request(gone))
    server.add(REQUESTS, request(gone, "no-owner", ownerReferences=[]))
    server.add(REQUESTS, request(gone, "kueue-made-this", labels={"app.kubernetes.io/managed-by": "kueue"}))
    async with settled(server):
        assert list(held(server)) == ["kueue-made-this"]


async def test_a_request_that_took_the_name_of_one_to_be_deleted_stays(server: ApiServer) -> None:
    gone = pod("gone")
    gone["metadata"]["uid"] = "u-gone"
    old = server.add(REQUESTS, request(gone))
    name = old["metadata"]["name"]

    def strike(method: str, path: str) -> None:
        if method == "DELETE" and server.objects[REQUESTS, "shop", name] == old:
            server.remove(REQUESTS, "shop", name)
            server.add(REQUESTS, request(gone, name, cpu="5", labels={}))

    server.strike = strike
    async with settled(server):
        assert held(server) == {name: "5"}


async def test_a_request_that_is_gone_when_it_is_to_be_deleted_is_no_error(server: ApiServer) -> None:
    ended = server.add("pods", pod(status={"phase": "Failed"}))
    server.add(REQUESTS, request(ended))
    server.strike = lambda method, path: (
        server.remove(REQUESTS, "shop", own_name(ended)) if method == "DELETE" else None
    )
    async with settled(server) as stage:
        assert (stage.count("deleted"), stage.count("error")) == (1, 0)


async def test_a_request_is_not_deleted_because_our_view_of_the_pods_lags(server: ApiServer) -> None:
    made = server.add("pods", pod())
    server.hidden.add(("pods", "shop", "web"))
    server.add(REQUESTS, request(made))
    async with settled(server) as stage:
        assert held(server) == {own_name(made): "1"}
        assert stage.count("unchanged") == 1
    assert ("GET", "/api/v1/namespaces/shop/pods/web") in server.calls


@pytest.mark.parametrize("away", [False, True], ids=["at work", "away"])
async def test_a_pod_that_cannot_be_read_any_more_keeps_its_request(server: ApiServer, away: bool) -> None:
    made = server.add("pods", pod())
    async with settled(server) as stage:
        if not away:
            server.edit("pods", "shop", "web", lambda obj: obj["spec"].update(priority="high"))
            await server.until(lambda: stage.count("error"))
    if away:
        server.edit("pods", "shop", "web", lambda obj: obj["spec"].update(priority="high"))
        async with running(server) as stage:
            await server.until(lambda: stage.count("error"))
    assert held(server) == {own_name(made): "1"}


async def test_a_pod_that_came_again_under_its_name_gets_a_request_of_its_own(server: ApiServer) -> None:
    first = server.add("pods", pod())
    async with settled(server):
        server.remove("pods", "shop", "web")
        second = server.add("pods", pod(cpu="3"))
        await server.until(lambda: held(server) == {own_name(second): "3"})
    assert own_name(first) != own_name(second)


async def test_a_pod_that_came_again_while_we_were_away(server: ApiServer) -> None:
    server.add("pods", pod())
    async with settled(server):
        pass
    server.remove("pods", "shop", "web")
    second = server.add("pods", pod(cpu="3"))
    async with settled(server):
        assert held(server) == {own_name(second): "3"}


@pytest.mark.parametrize(
    "answer",
    [
        lambda: refusal(500, "InternalError"),
        lambda: refusal(503, "ServiceUnavailable"),
        lambda: refusal(409, "Conflict"),
        lambda: refusal(429, "TooManyRequests", Retry_After="0"),
        lambda: "before",
        lambda: "after",
    ],
    ids=["500", "503", "409", "429", "cut before", "cut after"],
)
async def test_what_fails_is_tried_again(server: ApiServer, answer: Callable[[], Any]) -> None:
    ended = server.add("pods", pod("ended", status={"phase": "Failed"}))
    wrong = server.add("pods", pod("wrong"))
    new = server.add("pods", pod("new"))
    server.add(REQUESTS, request(ended))
    server.add(REQUESTS, request(wrong, cpu="9"))
    struck: dict[str, int] = {}

    def strike(method: str, path: str) -> Any:
        struck[method] = struck.get(method, 0) + 1
        return answer() if method not in {"GET", "WATCH"} and struck[method] <= 2 else None

    server.strike = strike
    async with settled(server):
        assert held(server) == {own_name(wrong): "1", own_name(new): "1"}


async def test_one_that_always_fails_does_not_hold_up_others(server: ApiServer) -> None:
    server.add("pods", pod("never", namespace="bad"))
    server.strike = lambda method, path: refusal(500, "InternalError") if "/bad/" in path else None
    async with running(server, ALONE) as stage:
        await server.until(lambda: stage.count("error") >= 2)
        made = server.add("pods", pod("fine"))
        await server.until(lambda: held(server) == {own_name(made): "1"})
        assert not stage.controller.complete.is_set()


async def test_failures_of_many_are_logged_by_few_lines(server: ApiServer) -> None:
    for number in range(50):
        server.add("pods", pod(f"p{number}"))
    server.strike = lambda method, path: refusal(500, "InternalError", "out of order") if method == "POST" else None
    with capture_logs() as logs:
        async with running(server) as stage:
            await server.until(lambda: stage.count("error") >= 50)
    lines = [log for log in logs if log["event"] == "request_not_kept"]
    assert 1 <= len(lines) < 25
    assert "out of order" in lines[0]["error"]


async def test_what_the_server_refuses_is_told_to_the_pods_owner_and_not_asked_again(server: ApiServer) -> None:
    server.add("pods", pod("picky", nodeSelector={f"label-{number}": "x" for number in range(33)}))
    async with settled(server, ALONE) as stage:
        await server.until(lambda: server.all("events"))
        (event,) = server.all("events")
        assert (event["reason"], event["type"], event["regarding"]["name"]) == (
            "CapacityRequestRefused",
            "Warning",
            "picky",
        )
        assert "must have at most 32 items" in event["note"]
        assert stage.count("refused") == 1
    assert server.all(REQUESTS) == []


def malformed(value: str = "lots") -> Object:
    made = pod()
    made["metadata"]["annotations"] = {"bigfleet.lucy.sh/interruption-penalty": value}
    return made


async def test_a_malformed_annotation_gets_an_event_and_the_default(server: ApiServer) -> None:
    made = server.add("pods", malformed() | {"spec": {**pod()["spec"], "priorityClassName": "web"}})
    async with settled(server, defaults=lambda: {"web": Penalties(interruption_penalty="8")}):
        await server.until(lambda: server.all("events"))
    (found,) = server.all(REQUESTS)
    assert found["spec"]["interruptionPenalty"] == "8"
    (event,) = server.all("events")
    assert event["regarding"] == {
        "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": made["metadata"]["uid"]
    }  # fmt: skip
    assert (event["type"], event["reason"], event["metadata"]["namespace"]) == ("Warning", "MalformedPenalty", "shop")
    assert "'lots' is no amount of dollars" in event["note"]
    assert event["reportingController"] == "bigfleet.lucy.sh/pod-controller"


async def test_a_complaint_is_said_once_in_all_lives(server: ApiServer) -> None:
    server.add("pods", malformed())
    async with settled(server, ALONE):
        await server.until(lambda: server.all("events"))
        server.edit("pods", "shop", "web", lambda obj: obj["metadata"]["labels"].update(more="x"))
        await passed(server)
    asked = sum(call == ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events") for call in server.calls)
    assert asked == 1
    async with settled(server, ALONE):
        await server.until(lambda: sum(call[1].endswith("/events") for call in server.calls) == 2)
        server.edit("pods", "shop", "web", lambda obj: obj["metadata"].update(malformed("much")["metadata"]))
        await server.until(lambda: len(server.all("events")) == 2)


async def test_new_penalty_defaults_reach_the_requests_that_live(server: ApiServer) -> None:
    server.add("pods", pod(priorityClassName="web"))
    defaults: dict[str, Penalties] = {}
    async with settled(server, defaults=lambda: defaults) as stage:
        defaults["web"] = Penalties(reclamation_penalty="4")
        stage.controller.look_again()
        await server.until(lambda: server.all(REQUESTS)[0]["spec"].get("reclamationPenalty") == "4")
        defaults.clear()
        stage.controller.look_again()
        await server.until(lambda: "reclamationPenalty" not in server.all(REQUESTS)[0]["spec"])


def either_zone() -> Object:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}, {"key": "t", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


async def test_a_placed_pod_asks_for_the_alternative_that_its_node_meets(server: ApiServer) -> None:
    server.add("nodes", {"metadata": {"name": "n1", "labels": {"zone": "b"}}})
    server.add("pods", pod(affinity=either_zone()))

    def keys() -> list[str]:
        return [condition["key"] for condition in server.all(REQUESTS)[0]["spec"]["requirements"]]

    async with settled(server):
        assert keys() == ["t", "zone"]
        server.edit("pods", "shop", "web", lambda obj: obj["spec"].update(nodeName="n1"))
        await server.until(lambda: keys() == ["zone"])
        await server.until(lambda: server.all("events"))
    assert server.all("events")[0]["reason"] == "CapacityApproximated"


async def test_of_a_node_that_is_gone_nothing_is_asked(server: ApiServer) -> None:
    server.add("pods", pod(affinity=either_zone(), nodeName="n1"))
    async with settled(server):
        assert len(server.all(REQUESTS)) == 1


async def test_only_pods_that_were_found_unschedulable(server: ApiServer) -> None:
    server.add("pods", pod("placed", nodeName="n1", status={"phase": "Running"}))
    waiting = server.add("pods", pod("waiting"))
    async with settled(server, ONLY):
        assert server.all(REQUESTS) == []
        server.edit("pods", "shop", "waiting", lambda obj: obj.update(status=unschedulable()))
        await server.until(lambda: held(server) == {own_name(waiting): "1"})

        def place(obj: Object) -> None:
            obj["spec"]["nodeName"], obj["status"] = "n2", {"phase": "Running"}

        server.edit("pods", "shop", "waiting", place)
        await passed(server)
        assert held(server) == {own_name(waiting): "1"}, "to the end of the pod"
        server.remove(REQUESTS, "shop", own_name(waiting))
        await server.until(lambda: own_name(waiting) in held(server))
    async with settled(server, ONLY):
        assert held(server) == {own_name(waiting): "1"}, "in the next life too"
        server.edit("pods", "shop", "waiting", lambda obj: obj["status"].update(phase="Succeeded"))
        await server.until(lambda: not server.all(REQUESTS))


async def test_pods_that_found_a_place_are_not_complained_about_in_that_mode(server: ApiServer) -> None:
    server.add("pods", malformed())
    async with settled(server, ONLY):
        await passed(server)
    assert server.all("events") == []


async def test_only_pods_of_named_namespaces(server: ApiServer) -> None:
    inside = server.add("pods", pod(namespace="ml"))
    outside = server.add("pods", pod(namespace="shop"))
    server.add(REQUESTS, request(outside))
    async with settled(server, Plan(namespaces=("ml",))):
        assert held(server) == {own_name(inside): "1"}


async def test_only_pods_of_selected_namespaces_as_their_labels_change(server: ApiServer) -> None:
    for name, team in (("one", "a"), ("two", "b"), ("three", "c")):
        server.add("namespaces", {"metadata": {"name": name, "labels": {"team": team}}})
    one, two, three = (server.add("pods", pod(namespace=name)) for name in ("one", "two", "three"))
    async with settled(server, Plan(namespace_selector="team in (a,b)")):
        assert held(server).keys() == {own_name(one), own_name(two)}
        server.edit("namespaces", "", "three", lambda obj: obj["metadata"]["labels"].update(team="a"))
        await server.until(lambda: held(server).keys() == {own_name(each) for each in (one, two, three)})
        server.edit("namespaces", "", "one", lambda obj: obj["metadata"]["labels"].update(team="z"))
        await server.until(lambda: held(server).keys() == {own_name(two), own_name(three)})
        server.remove("namespaces", "", "two")
        await server.until(lambda: held(server).keys() == {own_name(three)})


async def test_a_stop_lets_calls_under_way_end(server: ApiServer) -> None:
    hold = asyncio.Event()
    server.strike = lambda method, path: hold if method == "POST" else None
    made = server.add("pods", pod())
    async with running(server) as stage:
        await server.until(server.writes)
        stage.controller.stop()
        await asyncio.wait({stage.task}, timeout=0.1)
        assert not stage.task.done()
        hold.set()
        await asyncio.wait_for(stage.task, 30)
    assert held(server) == {own_name(made): "1"}


async def test_the_view_says_when_it_is_filled(server: ApiServer) -> None:
    async with running(server) as stage:
        assert not stage.controller.healthy()
        await asyncio.wait_for(stage.controller.complete.wait(), 30)
        assert stage.controller.healthy()
