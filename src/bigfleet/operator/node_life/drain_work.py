"""Carries out what `drains` decides, with one worker for each node that is held.

Every patch names the UID and the version of the Node that it was made for, so it changes the Node that was looked at or
none. A patch that the API server refuses is made anew from a fresh look at the Node.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.errors import ApiError, ConflictError, InvalidError, NotFoundError
from bigfleet.kube.objects.kinds import Node, Pod
from bigfleet.kube.objects.resources import NODES, PODS
from bigfleet.operator.node_life.drain_acts import Confirm, Cordon, DrainAct, Evict, Recordon, Uncordon, Wait
from bigfleet.operator.node_life.drains import Drains
from bigfleet.operator.node_life.holds import CALLED, DEADLINE, INSTRUCTION, KIND, WAS_CORDONED, Hold
from bigfleet.operator.node_life.machines import KnownMachine
from bigfleet.operator.node_life.views import NodesSeen
from bigfleet.operator.waiting import WaitUntilWoken, until_woken
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

EVICTIONS = 32
"""Evictions in flight at most, over all nodes."""

_FIRST_RETRY, _LAST_RETRY = 0.5, 15.0
# How often a patch is made anew before it counts as failed.
_MOST_CONFLICTS = 10

_log = structlog.get_logger("bigfleet.operator")


class DrainWork:
    """Passes on to `drains` what the session, the watches and the clock say. `run` works without a session too."""

    def __init__(
        self,
        client: Client,
        drains: Drains,
        nodes: NodesSeen,
        now: Callable[[], float],
        wall: Callable[[], datetime],
        *,
        wait: WaitUntilWoken = until_woken,
    ) -> None:
        self._client, self._drains, self._nodes, self._now, self._wall = client, drains, nodes, now, wall
        self._wait = wait
        self._evictions = asyncio.Semaphore(EVICTIONS)
        #: By node, what wakes its worker.
        self._woken: dict[str, asyncio.Event] = {}
        #: Nodes that need a worker and have none yet.
        self._to_start: set[str] = set()
        self._more = asyncio.Event()

    # What happens.

    def opened(self) -> None:
        """A session begins."""
        self._drains.opened(self._now())
        self._wake(*self._drains)

    def closed(self) -> None:
        """The session is over."""
        self._drains.closed()

    def resumed(self) -> None:
        """All Nodes and pods are known: go on with the drains that are written on Nodes."""
        self._drains.resumed(self._now(), self._wall())
        self._wake(*self._drains)

    def instructed(self, instruction: pb.ReclaimInstruction) -> None:
        """The shard wants nodes emptied."""
        self._wake(*self._drains.instructed(instruction, self._now(), self._wall()))

    def withdrawn(self, withdrawn: pb.ReclaimWithdrawn) -> None:
        """The shard withdraws an instruction, for all its nodes or for some."""
        self._wake(*self._drains.withdrawn(withdrawn))

    def heard(self, machine: KnownMachine) -> None:
        """The shard says how a machine stands."""
        self._wake(*self._drains.heard(machine))

    def node_changed(self, name: str) -> None:
        """The Node of that name has come, gone or changed."""
        self._drains.node_changed(name)
        if name in self._woken:
            self._wake(name)

    def pods_changed(self, node_name: str) -> None:
        """A pod on that node has come, gone or changed."""
        if node_name in self._woken:
            self._wake(node_name)

    # What is done.

    async def run(self) -> None:
        """Drain, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._more.clear()
                for node in sorted(self._to_start):
                    self._woken[node] = asyncio.Event()
                    group.create_task(self._work(node, self._woken[node]))
                self._to_start.clear()
                await self._more.wait()

    def _wake(self, *nodes: str) -> None:
        for node in nodes:
            if (woken := self._woken.get(node)) is not None:
                woken.set()
            else:
                self._to_start.add(node)
                self._more.set()

    async def _work(self, node: str, woken: asyncio.Event) -> None:
        """Do one act after the other for a node until it is held no longer."""
        retry = _FIRST_RETRY
        while True:
            woken.clear()
            act = self._drains.next(node, self._now())
            if act is None:
                del self._woken[node]
                return
            if isinstance(act, Wait):
                await self._wait(act.until - self._now(), woken)
                continue
            try:
                await self._do(act)
                retry = _FIRST_RETRY
            except ApiError as error:
                _log.warning("drain_delayed", node=node, error=str(error), again_in=retry)
                await self._wait(retry, woken)
                retry = min(_LAST_RETRY, 2 * retry)

    async def _do(self, act: DrainAct) -> None:
        match act:
            case Cordon(hold=hold):
                await self._cordon(hold)
            case Recordon(hold=hold, version=version):
                await self._recordon(hold, version)
            case Uncordon(hold=hold):
                await self._uncordon(hold)
            case Evict(hold=hold, pods=pods):
                async with asyncio.TaskGroup() as group:
                    for pod, grace in pods:
                        group.create_task(self._evict(hold, pod, grace))
            case Confirm(hold=hold):
                found = await self._client.list(PODS, fields=f"spec.nodeName={hold.node}")
                self._drains.confirmed(hold, found, self._now())

    async def _cordon(self, hold: Hold) -> None:
        def body(node: Node) -> dict[str, Any]:
            theirs = node.spec.unschedulable and INSTRUCTION not in node.metadata.annotations
            noted = {WAS_CORDONED: "true"} if theirs else {}
            return {"metadata": {"annotations": hold.annotations() | noted}, "spec": {"unschedulable": True}}

        if await self._change(hold, body):
            self._drains.cordoned(hold)

    async def _recordon(self, hold: Hold, version: str) -> None:
        def body(node: Node) -> dict[str, Any] | None:
            ours = node.metadata.annotations.get(INSTRUCTION) == hold.instruction
            return {"metadata": {}, "spec": {"unschedulable": True}} if ours and not node.spec.unschedulable else None

        if await self._change(hold, body):
            _log.warning("node_recordoned", node=hold.node, instruction=hold.instruction)
        self._drains.recordoned(hold, version)

    async def _uncordon(self, hold: Hold) -> None:
        def body(node: Node) -> dict[str, Any] | None:
            annotations = node.metadata.annotations
            if annotations.get(INSTRUCTION) != hold.instruction:
                return None
            ours = dict.fromkeys((INSTRUCTION, DEADLINE, KIND, CALLED, WAS_CORDONED))
            spec = {} if WAS_CORDONED in annotations else {"spec": {"unschedulable": None}}
            return {"metadata": {"annotations": ours}, **spec}

        # The watch may lag behind a cordon of ours, which would then stay for good.
        if await self._change(hold, body, fresh=True):
            _log.info("node_uncordoned", node=hold.node, instruction=hold.instruction)
        self._drains.uncordoned(hold)

    async def _change(self, hold: Hold, body: Callable[[Node], dict[str, Any] | None], *, fresh: bool = False) -> bool:
        """Patch the Node of the hold; `body` makes the patch from the Node. Returns whether anything was changed."""
        node = None if fresh else self._nodes.get(hold.node)
        for _ in range(_MOST_CONFLICTS):
            try:
                if node is None:
                    node = await self._client.get(NODES, hold.node)
                if node.metadata.uid != hold.uid:
                    self._drains.ended(hold, gone=False)
                    return False
                wanted = body(node)
                if wanted is None:
                    return False
                wanted["metadata"] |= {"uid": hold.uid, "resourceVersion": node.metadata.resource_version}
                await self._client.patch(NODES, hold.node, wanted, content=Patch.MERGE)
                return True
            except NotFoundError:
                self._drains.ended(hold, gone=True)
                return False
            except (ConflictError, InvalidError):
                node = None
        raise ConflictError("patch", f"node {hold.node}", "it changes faster than it can be patched")

    async def _evict(self, hold: Hold, pod: Pod, grace: int | None) -> None:
        meta = pod.metadata
        async with self._evictions:
            # The semaphore may have been waited for long after the decision.
            if not self._drains.may_evict(hold, self._now()):
                return
            try:
                await self._client.evict(meta.namespace, meta.name, uid=meta.uid, grace_seconds=grace)
            except (NotFoundError, ConflictError):
                # The pod is gone, or another has its name: the watch will show it.
                self._drains.evicted(hold, pod, self._now())
            except ApiError as error:
                problem = error.message or str(error)
                self._drains.blocked(hold, pod, problem, error.retry_after, self._now())
            else:
                _log.info("pod_evicted", pod=f"{meta.namespace}/{meta.name}", node=hold.node, grace=grace)
                self._drains.evicted(hold, pod, self._now())
