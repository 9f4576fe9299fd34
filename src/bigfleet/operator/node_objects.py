"""Nodes left from an earlier binding are deleted, once their kubelets are surely gone (protocol.md 22).

A kubelet renews its Node's Lease every 10 s; one that is 60 s old belongs to nobody. Every delete names the Node's UID,
so that a Node which has come up meanwhile under the same name is never the one that goes.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

import structlog

from bigfleet.kube.client import Client
from bigfleet.kube.errors import ApiError, ConflictError, NotFoundError
from bigfleet.kube.objects import Node
from bigfleet.kube.resources import LEASES, NODES
from bigfleet.operator.machines import GONE, Machine, Machines, NodesSeen
from bigfleet.operator.waiting import Waiting, until_woken

LEASE_SECONDS = 60.0
"""How long a Lease must have gone without renewal."""

_LEASES = "kube-node-lease"
_AT_ONCE = 8
_RETRY_SECONDS = 10.0

_log = structlog.get_logger("bigfleet.operator")


class NodeInTheWayError(Exception):
    """A Node from an earlier binding has the name or the host of a machine, and may not be deleted yet."""

    def __init__(self, node: str, problem: str) -> None:
        self.node = node
        super().__init__(f"Node {node} of an earlier binding is in the way: {problem}")


class NodeObjects:
    """Deletes what is left over. `run` it in a task; without a session it deletes nothing."""

    def __init__(
        self,
        client: Client,
        machines: Machines,
        nodes: NodesSeen,
        now: Callable[[], float],
        wall: Callable[[], datetime],
        *,
        wait: Waiting = until_woken,
    ) -> None:
        self._client, self._machines, self._nodes, self._now, self._wall = client, machines, nodes, now, wall
        self._wait = wait
        self._in_session = False
        self._due: dict[str, float] = {}
        self._more = asyncio.Event()
        self._departed: dict[str, str] = {}

    # What happens.

    def closed(self) -> None:
        """The session is over: what it said of machines may be so no more."""
        self._in_session = False
        self._departed.clear()

    def heard(self, machine: Machine) -> None:
        """The shard says how a machine stands."""
        self._in_session = True
        if machine.state in GONE:
            for node in self._nodes_of(machine.node_name, machine.provider_id):
                self._look_at(node.metadata.name, 0.0)

    def left(self, node_name: str, provider_id: str) -> None:
        """The shard has this machine for the cluster no more, though nobody heard it leave."""
        for node in self._nodes_of(node_name, provider_id):
            self._departed[node.metadata.name] = node.metadata.uid
            self._look_at(node.metadata.name, 0.0)

    def node_changed(self, name: str) -> None:
        """The Node of that name has come, gone or changed."""
        if name not in self._due and (node := self._nodes.get(name)) is not None and self._is_left_over(node):
            self._look_at(name, 0.0)

    # Before a machine joins.

    async def clear(self, node_name: str, provider_id: str) -> None:
        """Delete what is left of the machine's earlier binding; NodeInTheWayError where that is not allowed yet."""
        for node in self._nodes_of(node_name, provider_id):
            name, age = node.metadata.name, await self._lease_age(node)
            if age < LEASE_SECONDS:
                raise NodeInTheWayError(name, f"its Lease was renewed {max(age, 0):.0f} s ago, so its kubelet is alive")
            try:
                await self._delete(node)
            except ConflictError:
                raise NodeInTheWayError(name, "another Node has taken its name just now") from None

    # Afterwards, in its own time.

    async def run(self) -> None:
        """Delete what is left over, until cancelled."""
        while True:
            self._more.clear()
            due = [name for name, when in self._due.items() if when <= self._now()]
            for first in range(0, len(due), _AT_ONCE):
                await asyncio.gather(*(self._tidy(name) for name in due[first : first + _AT_ONCE]))
            if not self._more.is_set():
                await self._wait(min(self._due.values(), default=math.inf) - self._now(), self._more)

    async def _tidy(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or not self._is_left_over(node):
            self._due.pop(name, None)
            return
        try:
            age = await self._lease_age(node)
            if age >= LEASE_SECONDS and self._is_left_over(node):
                await self._delete(node)
                self._due.pop(name, None)
            elif name in self._due:
                self._due[name] = self._now() + max(LEASE_SECONDS - age, 1.0)
        except ConflictError:
            self._due.pop(name, None)
        except ApiError as error:
            _log.warning("leftover_node_not_deleted", node=name, error=str(error), again_in=_RETRY_SECONDS)
            if name in self._due:
                self._due[name] = self._now() + _RETRY_SECONDS

    def _is_left_over(self, node: Node) -> bool:
        if self._departed.get(node.metadata.name) == node.metadata.uid:
            return True
        machine = self._machines.of(node) or self._machines.by_node_name(node.metadata.name)
        if machine is None or not self._in_session:
            return False
        return machine.state in GONE and self._machines.is_named(machine.id)

    def _look_at(self, name: str, when: float) -> None:
        self._due[name] = when
        self._more.set()

    def _nodes_of(self, node_name: str, provider_id: str) -> Iterator[Node]:
        """Names and hosts are each a machine's own, so whatever has one of them was this machine's."""
        named = self._nodes.get(node_name) if node_name else None
        hosted = self._nodes.by_provider_id(provider_id) if provider_id else None
        if named is not None:
            yield named
        if hosted is not None and (named is None or hosted.metadata.uid != named.metadata.uid):
            yield hosted

    async def _lease_age(self, node: Node) -> float:
        """Seconds since the last renewal; where there is no Lease, since the Node was made."""
        renewed = node.metadata.creation_timestamp
        with suppress(NotFoundError):
            lease = await self._client.get(LEASES, node.metadata.name, namespace=_LEASES)
            renewed = lease.spec.renew_time or renewed
        return math.inf if renewed is None else (self._wall() - renewed).total_seconds()

    async def _delete(self, node: Node) -> None:
        with suppress(NotFoundError):
            await self._client.delete(NODES, node.metadata.name, uid=node.metadata.uid)
        _log.info("leftover_node_deleted", node=node.metadata.name, uid=node.metadata.uid)
