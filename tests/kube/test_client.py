"""The verbs over a real connection: what is sent, what comes back, and every way a server says no."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from bigfleet.kube.access import http
from bigfleet.kube.access.server import ServerConfig
from bigfleet.kube.client import PAGE_OBJECTS, Client, Patch, VersionInfo
from bigfleet.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
    UnreadableError,
)
from bigfleet.kube.objects.kinds import Event, Lease, LeaseSpec, ObjectReference, Secret
from bigfleet.kube.objects.resources import (
    CAPACITY_REQUESTS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    SECRETS,
    UPCOMING_NODES,
)
from bigfleet.model.crd import ObjectMeta

if TYPE_CHECKING:
    from tests.kube.scripted_server import Server

Refusal = Callable[..., web.Response]
ok = web.json_response


def node(name: str = "n1", **metadata: Any) -> dict[str, Any]:
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, **metadata}}


class TestVerbs:
    async def test_get_reads_one_object(self, server: "Server", client: Client) -> None:
        server.answers = [ok(node(uid="u", resourceVersion="7") | {"spec": {"providerID": "sim://a", "x": 1}})]
        found = await client.get(NODES, "n1")
        assert (found.metadata.uid, found.spec.provider_id, found.spec.unschedulable) == ("u", "sim://a", False)
        assert (server.asked[0].method, server.asked[0].path) == ("GET", "/api/v1/nodes/n1")
        assert server.asked[0].headers["User-Agent"].startswith("bigfleet/")

    async def test_names_are_one_part_of_the_path_whatever_they_hold(self, server: "Server", client: Client) -> None:
        server.answers = [ok(node())]
        await client.get(NODES, "../secrets?watch=1#%2e")
        assert server.asked[0].path == "/api/v1/nodes/..%2Fsecrets%3Fwatch%3D1%23%252e"
        assert server.asked[0].query == {}
        with pytest.raises(ValueError, match="no object's name"):
            await client.get(NODES, "..")

    @pytest.mark.parametrize("verb", ["get", "delete", "patch", "evict", "namespace", "create"])
    async def test_no_call_about_one_object_can_become_one_about_all(self, client: Client, verb: str) -> None:
        calls: dict[str, Callable[[], Any]] = {
            "get": lambda: client.get(NODES, ""),
            "delete": lambda: client.delete(PODS, "", "ns"),
            "patch": lambda: client.patch(NODES, "", {}),
            "evict": lambda: client.evict("", "pod"),
            "namespace": lambda: client.delete(PODS, "pod"),
            "create": lambda: client.create(PODS, {"metadata": {"name": "a"}}),
        }
        with pytest.raises(ValueError, match=r"name is empty|none is given"):
            await calls[verb]()

    async def test_list_walks_all_pages(self, server: "Server", client: Client) -> None:
        server.answers = [
            ok({"metadata": {"resourceVersion": "9", "continue": "t/1"}, "items": [node("a"), node("b")]}),
            ok({"metadata": {"resourceVersion": "9"}, "items": [node("c")]}),
        ]
        found = await client.list(NODES, labels="a in (b,c)", fields="spec.unschedulable=true")
        assert [n.metadata.name for n in found] == ["a", "b", "c"]
        selectors = {"labelSelector": "a in (b,c)", "fieldSelector": "spec.unschedulable=true"}
        assert [asked.query for asked in server.asked] == [
            {"limit": str(PAGE_OBJECTS), **selectors},
            {"limit": str(PAGE_OBJECTS), "continue": "t/1", **selectors},
        ]

    async def test_a_list_of_nothing_may_be_null(self, server: "Server", client: Client) -> None:
        server.answers = [ok({"metadata": {"resourceVersion": "9"}, "items": None})]
        assert await client.list(PODS, "ns") == []
        assert server.asked[0].path == "/api/v1/namespaces/ns/pods"

    async def test_an_expired_page_token_begins_the_list_anew(
        self, server: "Server", client: Client, refusal: Refusal
    ) -> None:
        server.answers = [
            ok({"metadata": {"continue": "old"}, "items": [node("gone")]}),
            refusal(410, "Expired"),
            ok({"metadata": {"continue": "new"}, "items": [node("a")]}),
            ok({"metadata": {}, "items": [node("b")]}),
        ]
        assert [n.metadata.name for n in await client.list(NODES)] == ["a", "b"]

    async def test_a_list_that_never_gets_to_its_end_is_given_up(
        self, server: "Server", client: Client, refusal: Refusal
    ) -> None:
        async def behave(request: web.Request) -> web.Response:
            if "continue" in request.query:
                return refusal(410, "Expired")
            return ok({"metadata": {"continue": "t"}, "items": []})

        server.behave = behave
        with pytest.raises(GoneError):
            await client.list(NODES)
        assert len(server.asked) == 8

    async def test_an_unreadable_object_in_a_list_is_named(self, server: "Server", client: Client) -> None:
        server.answers = [ok({"metadata": {}, "items": [node("a"), node("bad") | {"spec": {"taints": 5}}]})]
        with pytest.raises(UnreadableError, match="Node bad"):
            await client.list(NODES)

    async def test_create_fills_in_what_it_is(self, server: "Server", client: Client) -> None:
        answer = {"metadata": {"name": "s", "namespace": "kube-system"}, "data": {"token": "aGk="}}
        server.answers = [ok(answer, status=201)]
        made = await client.create(
            SECRETS, Secret(metadata=ObjectMeta(name="s"), type="x/token", data={"token": b"hi"}), "kube-system"
        )
        assert made.data == {"token": b"hi"}
        assert "hi" not in repr(made)
        assert server.asked[0].path == "/api/v1/namespaces/kube-system/secrets"
        assert server.asked[0].body == {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "type": "x/token",
            "data": {"token": "aGk="},
        }

    async def test_times_are_sent_with_six_digits(self, server: "Server", client: Client) -> None:
        """A MicroTime without them is refused, and a whole second comes along once in a million."""
        moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        server.answers = [ok({"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}})]
        lease = Lease(metadata=ObjectMeta(name="l"), spec=LeaseSpec(holder_identity="me", renew_time=moment))
        made = await client.create(LEASES, lease, "ns")
        assert made.spec.renew_time == moment
        assert server.asked[0].body["spec"] == {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000000Z"}

    async def test_events_say_what_they_regard(self, server: "Server", client: Client) -> None:
        server.answers = [ok({"metadata": {"name": "e"}})]
        event = Event(
            metadata=ObjectMeta(generate_name="p."),
            event_time=datetime(2026, 1, 1, tzinfo=UTC),
            regarding=ObjectReference(api_version="v1", kind="Pod", namespace="ns", name="p", uid="u"),
            type="Warning",
            reason="Bad",
            action="Read",
            note="n",
            reporting_controller="c",
            reporting_instance="i",
        )
        await client.create(EVENTS, event, "ns")
        assert server.asked[0].path == "/apis/events.k8s.io/v1/namespaces/ns/events"
        assert server.asked[0].body["regarding"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ns",
            "name": "p",
            "uid": "u",
        }

    @pytest.mark.parametrize("content", list(Patch))
    async def test_patches_of_every_sort(self, server: "Server", client: Client, content: Patch) -> None:
        server.answers = [ok(node())]
        body: Any = [{"op": "add", "path": "/a", "value": 1}] if content is Patch.JSON else {"spec": {"a": None}}
        await client.patch(NODES, "n1", body, subresource="status", content=content, manager="us")
        asked = server.asked[0]
        assert (asked.method, asked.path) == ("PATCH", "/api/v1/nodes/n1/status")
        assert asked.headers["Content-Type"] == content.value
        if content is Patch.APPLY:
            assert asked.query == {"fieldManager": "us", "force": "true"}
            assert asked.body == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, **body}
        else:
            assert asked.query == {"fieldManager": "us"}
            assert asked.body == body

    async def test_delete_with_preconditions(self, server: "Server", client: Client) -> None:
        server.answers = [ok({"kind": "Status", "status": "Success"}), ok(node())]
        await client.delete(NODES, "n1", uid="u", resource_version="5")
        await client.delete(NODES, "n1")
        assert [asked.body["preconditions"] for asked in server.asked] == [{"uid": "u", "resourceVersion": "5"}, {}]
        assert {asked.body["propagationPolicy"] for asked in server.asked} == {"Background"}

    async def test_evict_goes_through_the_eviction_api(self, server: "Server", client: Client) -> None:
        server.answers = [ok({"kind": "Status", "status": "Success"}, status=201)]
        await client.evict("ns", "p", uid="u", grace_seconds=0)
        asked = server.asked[0]
        assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/ns/pods/p/eviction")
        assert asked.body == {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p", "namespace": "ns"},
            "deleteOptions": {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 0},
        }

    async def test_version(self, server: "Server", client: Client) -> None:
        server.answers = [ok({"major": "1", "minor": "34", "gitVersion": "v1.34.4", "platform": "linux/amd64"})]
        assert await client.version() == VersionInfo("v1.34.4")

    async def test_kinds_of_ours_and_of_kubernetes_have_their_paths(self) -> None:
        assert CAPACITY_REQUESTS.path("ns", "a") == "/apis/bigfleet.lucy.sh/v1alpha1/namespaces/ns/capacityrequests/a"
        assert CAPACITY_REQUESTS.path() == "/apis/bigfleet.lucy.sh/v1alpha1/capacityrequests"
        assert UPCOMING_NODES.path("ignored", "a") == "/apis/bigfleet.lucy.sh/v1alpha1/upcomingnodes/a"

    async def test_a_proxy_carries_the_call(self, server: "Server") -> None:
        server.answers = [ok(node())]
        async with Client(ServerConfig(server="http://kubernetes.invalid", proxy=server.url)) as client:
            await client.get(NODES, "n1")
        assert server.asked[0].headers["Host"] == "kubernetes.invalid"

    async def test_many_patches_run_beside_each_other(self, server: "Server", client: Client) -> None:
        together = asyncio.Barrier(32)

        async def behave(_: web.Request) -> web.Response:
            await together.wait()
            return ok(node())

        server.behave = behave
        async with asyncio.TaskGroup() as tasks:
            for i in range(32):
                tasks.create_task(client.patch(NODES, f"n{i}", {}))
        assert len(server.asked) == 32


class TestRefusals:
    @pytest.mark.parametrize(
        ("code", "reason", "kind"),
        [
            (401, "Unauthorized", UnauthorizedError),
            (403, "Forbidden", ForbiddenError),
            (404, "NotFound", NotFoundError),
            (409, "Conflict", ConflictError),
            (409, "AlreadyExists", AlreadyExistsError),
            (410, "Gone", GoneError),
            (422, "Invalid", InvalidError),
            (429, "TooManyRequests", TooManyRequestsError),
            (500, "InternalError", ApiError),
        ],
    )
    async def test_each_code_has_its_error(
        self, server: "Server", client: Client, refusal: Refusal, code: int, reason: str, kind: type[ApiError]
    ) -> None:
        server.answers = [refusal(code, reason, "because")]
        with pytest.raises(ApiError) as caught:
            await client.patch(NODES, "n1", {})
        assert type(caught.value) is kind
        assert (caught.value.code, caught.value.reason, caught.value.message) == (code, reason, "because")
        assert str(caught.value) == f"patch Node n1: {code} {reason}: because"
        assert len(server.asked) == 1

    async def test_an_already_existing_object_is_a_conflict_too(self) -> None:
        assert issubclass(AlreadyExistsError, ConflictError)

    async def test_the_words_of_others_are_cut_and_made_printable(self, server: "Server", client: Client) -> None:
        server.answers = [web.Response(status=502, text="<html>\x1b[31m" + "x" * 9000)]
        with pytest.raises(ApiError) as caught:
            await client.get(NODES, "n1")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 700

    async def test_an_endless_refusal_is_cut(self, server: "Server", client: Client) -> None:
        server.answers = [web.Response(status=500, body=b"x" * 1_000_000)]
        with pytest.raises(ApiError, match="500: xxx"):
            await client.get(NODES, "n1")

    @pytest.mark.parametrize("code", [301, 307])
    async def test_redirects_are_not_followed(self, server: "Server", client: Client, code: int) -> None:
        server.answers = [web.Response(status=code, headers={"Location": "/api/v1/nodes/other"})]
        with pytest.raises(ApiError, match="not followed"):
            await client.get(NODES, "n1")
        assert len(server.asked) == 1

    async def test_what_cannot_be_read_is_no_object(self, server: "Server", client: Client) -> None:
        server.answers = [web.Response(text="<html>"), ok({"spec": {}}), web.Response(body=b'{"metadata":"\xff"}')]
        for _ in range(3):
            with pytest.raises(UnreadableError, match="get Node n1"):
                await client.get(NODES, "n1")

    async def test_nobody_there(self) -> None:
        async with Client(ServerConfig(server="http://127.0.0.1:1")) as client:
            with pytest.raises(UnreachableError, match="list Pod") as caught:
                await client.list(PODS)
        assert caught.value.code == 0

    async def test_a_server_that_does_not_answer(
        self, server: "Server", client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http, "CALL_SECONDS", 0.05)
        never = asyncio.Event()

        async def behave(_: web.Request) -> web.Response:
            await never.wait()
            return ok({})

        server.behave = behave
        with pytest.raises(UnreachableError, match="no answer in time"):
            await client.get(NODES, "n1")

    async def test_an_answer_that_is_too_long(
        self, server: "Server", client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http, "_MOST_BYTES", 1000)
        server.answers = [ok(node() | {"filler": "x" * 2000})]
        with pytest.raises(UnreachableError, match="longer than 1,000 bytes"):
            await client.get(NODES, "n1")

    async def test_use_before_entering(self, server: "Server") -> None:
        with pytest.raises(RuntimeError, match="enter the client first"):
            await Client(server.config).get(NODES, "n1")


class TestPatience:
    """429s and broken connections."""

    @pytest.fixture
    def waits(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        monkeypatch.setattr(http, "_sleep", sleep)
        return waits

    async def test_a_server_that_asks_for_patience_gets_it_twice(
        self, server: "Server", client: Client, waits: list[float]
    ) -> None:
        def busy(seconds: str) -> web.Response:
            return web.Response(status=429, headers={"Retry-After": seconds}, text="Too many requests")

        server.answers = [busy("3"), busy("99"), ok(node())]
        await client.get(NODES, "n1")
        assert waits == [3.0, 10.0]
        server.answers = [busy("3") for _ in range(3)]
        with pytest.raises(TooManyRequestsError) as caught:
            await client.get(NODES, "n1")
        assert caught.value.retry_after == 3.0

    async def test_without_a_time_to_come_again_it_is_raised_at_once(
        self, server: "Server", client: Client, refusal: Refusal, waits: list[float]
    ) -> None:
        server.answers = [refusal(429, "TooManyRequests")]
        with pytest.raises(TooManyRequestsError):
            await client.get(NODES, "n1")
        assert waits == []

    async def test_a_disruption_budget_is_not_waited_for_here(
        self, server: "Server", client: Client, refusal: Refusal, waits: list[float]
    ) -> None:
        cause = {"reason": "DisruptionBudget", "message": "The disruption budget web needs 3 healthy pods and has 3"}
        server.answers = [refusal(429, "TooManyRequests", "Cannot evict", causes=[cause], retryAfterSeconds=10)]
        with pytest.raises(TooManyRequestsError, match="budget web needs 3") as caught:
            await client.evict("ns", "p")
        assert caught.value.retry_after == 10.0
        assert waits == []

    async def test_an_eviction_waits_for_a_busy_server(
        self, server: "Server", client: Client, waits: list[float]
    ) -> None:
        server.answers = [web.Response(status=429, headers={"Retry-After": "1"}), ok({}, status=201)]
        await client.evict("ns", "p")
        assert waits == [1.0]

    @pytest.mark.parametrize(
        ("verb", "again"), [("get", True), ("merge", True), ("evict", True), ("json", False), ("create", False)]
    )
    async def test_a_broken_connection_is_tried_again_where_that_does_no_harm(
        self, server: "Server", client: Client, verb: str, again: bool
    ) -> None:
        async def hang_up(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.abort()
            return ok({})

        calls: dict[str, Callable[[], Any]] = {
            "get": lambda: client.get(NODES, "n1"),
            "merge": lambda: client.patch(NODES, "n1", {}),
            "json": lambda: client.patch(NODES, "n1", [], content=Patch.JSON),
            "create": lambda: client.create(NODES, node()),
            "evict": lambda: client.evict("ns", "p"),
        }
        server.answers = [ok(node()), hang_up, ok(node())]
        await client.get(NODES, "warm")
        if again:
            await calls[verb]()
        else:
            with pytest.raises(UnreachableError):
                await calls[verb]()
        assert len(server.asked) == (3 if again else 2)
