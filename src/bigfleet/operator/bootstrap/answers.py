"""Answers to bootstrap requests: the user data with which one machine joins, or an error (protocol rules 15, 22).

Every answer is made anew from the template, the cluster's facts and the request's own token. So a request that is asked
twice gets the same answer, even from an operator that has restarted; the shard takes the first.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import structlog

from bigfleet.kube.errors import ApiError, TooManyRequestsError, UnreachableError
from bigfleet.model.labels import KUBELET_VERSION
from bigfleet.operator.bootstrap.cluster_access import ClusterAccess, ClusterAccessError, NodeAccess
from bigfleet.operator.bootstrap.template import JoinFacts, LiveTemplate, RenderError
from bigfleet.operator.bootstrap.tokens import BootstrapToken, BootstrapTokens, TokenError
from bigfleet.operator.bootstrap.version_skew import SkewError, check_skew
from bigfleet.operator.node_life.left_nodes import LeftNodes, NodeInTheWayError
from bigfleet.operator.node_life.machines import KnownMachine, KnownMachines
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

CONCURRENCY = 16
"""Requests that are worked on at the same time."""

MAX_STANDING = 10_000
"""Requests that may wait for an answer; a shard has at most so many actions under way."""

# The shard waits 30 s for an answer. After 20 s an error is sent, which says more than no answer.
_PATIENCE_SECONDS = 20.0
# Seconds between two tries while the API server is away, at first and at most.
_FIRST_WAIT, _LAST_WAIT = 0.5, 4.0
_MAX_ID = 253
_MAX_ERROR = 500
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_log = structlog.get_logger("bigfleet.operator")

T = TypeVar("T")


class _RefusedError(Exception):
    """A request for which there is no user data; the text says why."""


class BootstrapAnswers:
    """Answers the bootstrap requests of the present session.

    `kubelet_version` is the version that the template installs, for machines without a label that says so. `began` is
    called with a machine's id once its token has been issued.
    """

    def __init__(
        self,
        cluster_id: str,
        template: LiveTemplate,
        access: ClusterAccess,
        tokens: BootstrapTokens,
        machines: KnownMachines,
        left_nodes: LeftNodes,
        *,
        send: Callable[[pb.OperatorMessage], None],
        began: Callable[[str], None],
        now: Callable[[], float],
        kubelet_version: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cluster_id, self._template, self._access, self._tokens = cluster_id, template, access, tokens
        self._machines, self._left_nodes, self._send, self._began = machines, left_nodes, send, began
        self._now, self._kubelet_version, self._sleep = now, kubelet_version, sleep
        #: Requests that wait for an answer, by id.
        self._standing: dict[str, pb.BootstrapRequest] = {}
        self._queue: asyncio.Queue[pb.BootstrapRequest] = asyncio.Queue()
        #: Ids of the requests that workers have in hand.
        self._in_hand: list[str] = []
        #: Ids among those in hand that were withdrawn and not asked anew.
        self._over: set[str] = set()

    def asked(self, request: pb.BootstrapRequest) -> None:
        """A request has come. A request that waits already is answered once."""
        if request.cluster_id != self._cluster_id:
            _log.warning("bootstrap_request_strayed", request=request.request_id[:_MAX_ID], of=request.cluster_id)
        elif not 0 < len(request.request_id) <= _MAX_ID or len(self._standing) >= MAX_STANDING:
            self._answer(request.request_id, error="the request has no usable id, or too many wait")
        elif request.request_id not in self._standing:
            self._standing[request.request_id] = request
            self._over.discard(request.request_id)
            self._queue.put_nowait(request)

    def withdrawn(self, request_id: str) -> None:
        """The request is withdrawn: it gets no answer, and its token is deleted."""
        self._standing.pop(request_id, None)
        if request_id in self._in_hand:
            self._over.add(request_id)
        self._tokens.withdraw(request_id)

    def closed(self) -> None:
        """The session is over. Tokens stay, because the next session asks under the same ids."""
        self._standing.clear()

    async def run(self) -> None:
        """Answer, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            request = await self._queue.get()
            if self._standing.get(request.request_id) is not request:
                continue
            self._in_hand.append(request.request_id)
            await self._see_to(request)
            self._in_hand.remove(request.request_id)
            if request.request_id not in self._in_hand:
                self._over.discard(request.request_id)

    async def _see_to(self, request: pb.BootstrapRequest) -> None:
        try:
            data, token = await self._patiently(request)
        except (
            _RefusedError,
            ApiError,
            ClusterAccessError,
            NodeInTheWayError,
            RenderError,
            SkewError,
            TokenError,
        ) as error:
            # Only this machine is hindered: the shard may choose another.
            self._settle(request, error=str(error), about_machine=isinstance(error, NodeInTheWayError))
        else:
            self._settle(request, data, token.seconds_left)

    def _settle(
        self,
        request: pb.BootstrapRequest,
        data: bytes = b"",
        seconds: int = 0,
        error: str = "",
        *,
        about_machine: bool = False,
    ) -> None:
        # The request was withdrawn meanwhile, or was asked anew in another session, which gets its own answer.
        if self._standing.get(request.request_id) is not request:
            return
        del self._standing[request.request_id]
        ids = {"machine": request.machine_id, "request": request.request_id}
        if error:
            _log.warning("bootstrap_refused", **ids, reason=error)
        else:
            _log.info("bootstrap_answered", **ids, size=len(data), seconds=seconds)
        self._answer(request.request_id, data, seconds, error, about_machine=about_machine)

    def _answer(
        self, request_id: str, data: bytes = b"", seconds: int = 0, error: str = "", *, about_machine: bool = False
    ) -> None:
        answer = pb.BootstrapBlobResponse(
            request_id=request_id,
            user_data=data,
            ttl_seconds=seconds,
            error=error[:_MAX_ERROR],
            about_machine=about_machine,
        )
        self._send(pb.OperatorMessage(bootstrap_response=answer))

    async def _patiently(self, request: pb.BootstrapRequest) -> tuple[bytes, BootstrapToken]:
        """The user data and the token. Tries again while the API server is away, for as long as the shard waits."""
        until, wait = self._now() + _PATIENCE_SECONDS, _FIRST_WAIT
        while True:
            try:
                return await self._user_data(request)
            except ApiError as error:
                passing = isinstance(error, UnreachableError | TooManyRequestsError) or error.code >= 500
                stands = self._standing.get(request.request_id) is request
                if not passing or not stands or self._now() + wait > until:
                    raise
            await self._sleep(wait)
            wait = min(2 * wait, _LAST_WAIT)

    async def _user_data(self, request: pb.BootstrapRequest) -> tuple[bytes, BootstrapToken]:
        machine = self._machines.get(request.machine_id)
        node_name = request.node_name or (machine.node_name if machine is not None else request.machine_id)
        if node_name and (len(node_name) > _MAX_ID or not _NODE_NAME.fullmatch(node_name)):
            raise _RefusedError(f"{node_name[:80]!r} can be no Node's name: lower case letters, digits, - and . only")
        access = await self._access.look()
        kubelet = (machine.labels.get(KUBELET_VERSION, "") if machine is not None else "") or self._kubelet_version
        if kubelet:
            check_skew(kubelet, access.kubernetes_version)
        await self._left_nodes.clear(node_name, machine.provider_id if machine is not None else "")
        if self._standing.get(request.request_id) is not request:
            raise _RefusedError("withdrawn")
        token = await self._tokens.issue(request.request_id, request.machine_id)
        if self._standing.get(request.request_id) is not request:
            # Where the session has ended, the token stays: the next session asks for this very token.
            if request.request_id in self._over:
                self._tokens.withdraw(request.request_id)
            raise _RefusedError("withdrawn")
        self._began(request.machine_id)
        facts = self._facts(request, machine, node_name, access, token.text)
        try:
            return self._template.current().render(facts), token
        except RenderError:
            self._tokens.withdraw(request.request_id)
            raise

    def _facts(
        self, request: pb.BootstrapRequest, machine: KnownMachine | None, node_name: str, access: NodeAccess, token: str
    ) -> JoinFacts:
        provider_id = "" if machine is None else machine.provider_id
        config = access.kubelet_config | ({"providerID": provider_id} if provider_id else {})
        return JoinFacts(
            cluster_id=self._cluster_id,
            machine_id=request.machine_id,
            node_name=node_name,
            provider_id=provider_id,
            node_selector=_selector(request, {} if machine is None else machine.labels),
            taints=() if machine is None else machine.taints,
            token=token,
            ca_bundle=access.ca_bundle,
            endpoint=access.endpoint,
            kubernetes_version=access.kubernetes_version,
            kubelet_config=config,
        )


def _selector(request: pb.BootstrapRequest, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that the Node shall have: its machine's, and those of which the need allows one value only."""
    asked = {
        each.key: each.values[0]
        for each in request.requirements
        if each.operator == capacity_pb2.NodeSelectorRequirement.OPERATOR_IN and len(each.values) == 1
    }
    return asked | dict(labels)
