"""Nodes that are left from an earlier binding are deleted once their kubelets are surely gone (protocol rule 22).

A kubelet renews its Node's Lease every 10 s. When a Lease has been watched for 60 s without a change, its kubelet is
taken to be gone. Only changes count, timed by our own clock, because the kubelet's may be wrong. Every delete names the
Node's UID, so that a new Node of the same name is never deleted.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

import msgspec
import structlog

from bigfleet.kube.client import Client
from bigfleet.kube.errors import ApiError, ConflictError, NotFoundError
from bigfleet.kube.objects.kinds import Node
from bigfleet.kube.objects.resources import LEASES, NODES
from bigfleet.operator.node_life.machines import UNBOUND, KnownMachine, KnownMachines, belongs
from bigfleet.operator.node_life.views import NodesSeen
from bigfleet.operator.waiting import SETTLED_SECONDS, WaitUntilWoken, until_woken

LEASE_SECONDS = 60.0
"""How long a Lease must have been watched without renewal before its kubelet counts as gone."""
ALIVE_SECONDS = 120.0
"""How long renewals must have been seen before a kubelet counts as one that stays."""

_LEASES = "kube-node-lease"
# Nodes that are looked at together.
_AT_ONCE = 8
# How often a Lease is looked at.
_LOOK_SECONDS = 10.0

_log = structlog.get_logger("bigfleet.operator")


class NodeInTheWayError(Exception):
    """A Node of an earlier binding has the name or the host of a machine that joins, and may not be deleted yet."""

    def __init__(self, node: str, problem: str) -> None:
        self.node = node
        super().__init__(f"Node {node} of an earlier binding is in the way: {problem}")


class _Watched(msgspec.Struct, frozen=True):
    """What was seen of a Node's Lease."""

    node_uid: str
    #: The Lease's renewTime when it was last read; None where there was no Lease.
    renewed: datetime | None
    #: When `renewed` was first seen.
    since: float
    #: When the present row of renewals began, without a gap of LEASE_SECONDS.
    first: float


class LeftNodes:
    """Deletes Nodes whose machines have left. Without a session nothing is deleted."""

    def __init__(
        self,
        client: Client,
        machines: KnownMachines,
        nodes: NodesSeen,
        now: Callable[[], float],
        *,
        wait: WaitUntilWoken = until_woken,
    ) -> None:
        self._client, self._machines, self._nodes, self._now = client, machines, nodes, now
        self._wait = wait
        #: Whether this session has described a machine.
        self._in_session = False
        #: By a Node's name, when to look at its Lease next.
        self._due: dict[str, float] = {}
        self._more = asyncio.Event()
        #: UIDs by name of Nodes whose machines have left as far as this session knows.
        self._departed: dict[str, str] = {}
        #: UIDs by name of Nodes whose machines an earlier session said to have left; a later one does not repeat that.
        self._suspects: dict[str, str] = {}
        #: When the session has named every machine of the cluster.
        self._settles = math.inf
        #: By a Node's name, what was seen of its Lease.
        self._watched: dict[str, _Watched] = {}

    # What happens.

    def opened(self) -> None:
        """A session begins. Machines that left in an earlier session count as gone unless this session names them."""
        self._settles = self._now() + SETTLED_SECONDS
        for name in self._suspects:
            self._look_at(name, self._settles)

    def closed(self) -> None:
        """The session is over: what it said of machines may be out of date."""
        self._in_session = False
        self._settles = math.inf
        self._suspects |= self._departed
        self._departed.clear()

    def heard(self, machine: KnownMachine) -> None:
        """The shard has described a machine."""
        self._in_session = True
        for node in self._nodes_of(machine.node_name, machine.provider_id):
            if machine.state in UNBOUND:
                self._suspects[node.metadata.name] = node.metadata.uid
                self._look_at(node.metadata.name, 0.0)
            elif belongs(node, machine):
                self.let_be(node.metadata.name)

    def left(self, node_name: str, provider_id: str) -> None:
        """The shard no longer has this machine for the cluster, and no drain of it was seen."""
        for node in self._nodes_of(node_name, provider_id):
            self._departed[node.metadata.name] = node.metadata.uid
            self._look_at(node.metadata.name, 0.0)

    def let_be(self, node_name: str) -> None:
        """The machine of that Node has not left: do not delete the Node."""
        self._departed.pop(node_name, None)
        self._suspects.pop(node_name, None)

    def is_alive(self, node_name: str) -> bool:
        """Whether the Node's Lease has been seen renewed for ALIVE_SECONDS without a gap, up to now."""
        watched = self._watched.get(node_name)
        if watched is None or self._now() - watched.since >= LEASE_SECONDS:
            return False
        return watched.since - watched.first >= ALIVE_SECONDS

    def node_changed(self, name: str) -> None:
        """The Node of that name has come, gone or changed."""
        if self._nodes.get(name) is None:
            self._watched.pop(name, None)
            self._suspects.pop(name, None)
        if name not in self._due and (node := self._nodes.get(name)) is not None and self._is_left_over(node):
            self._look_at(name, 0.0)

    # Before a machine joins.

    async def clear(self, node_name: str, provider_id: str) -> None:
        """Delete the Nodes of the machine's earlier binding; NodeInTheWayError where one may not be deleted yet."""
        for node in self._nodes_of(node_name, provider_id):
            name, age = node.metadata.name, await self._lease_age(node)
            if age < LEASE_SECONDS:
                seen = f"its Lease has been seen without renewal for {age:.0f} s"
                raise NodeInTheWayError(name, f"{seen}; its kubelet counts as gone after {LEASE_SECONDS:.0f} s")
            try:
                await self._delete(node)
            except ConflictError:
                raise NodeInTheWayError(name, "another Node has taken its name just now") from None

    # After a machine has left.

    async def run(self) -> None:
        """Delete left Nodes, until cancelled."""
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
                self._due[name] = self._now() + _LOOK_SECONDS
        except ConflictError:
            self._due.pop(name, None)
        except ApiError as error:
            _log.warning("leftover_node_not_deleted", node=name, error=str(error), again_in=_LOOK_SECONDS)
            if name in self._due:
                self._due[name] = self._now() + _LOOK_SECONDS

    def _is_left_over(self, node: Node) -> bool:
        if self._departed.get(node.metadata.name) == node.metadata.uid:
            return True
        if self._now() >= self._settles and self._suspects.get(node.metadata.name) == node.metadata.uid:
            return True
        machine = self._machines.of(node) or self._machines.by_node_name(node.metadata.name)
        if machine is None or not self._in_session:
            return False
        return machine.state in UNBOUND and self._machines.is_named(machine.id)

    def _look_at(self, name: str, when: float) -> None:
        self._due[name] = when
        self._more.set()

    def _nodes_of(self, node_name: str, provider_id: str) -> Iterator[Node]:
        """The Nodes with that name or that providerID. No two machines share either, so such a Node is this one's."""
        named = self._nodes.get(node_name) if node_name else None
        hosted = self._nodes.by_provider_id(provider_id) if provider_id else None
        if named is not None:
            yield named
        if hosted is not None and (named is None or hosted.metadata.uid != named.metadata.uid):
            yield hosted

    async def _lease_age(self, node: Node) -> float:
        """For how many seconds the Lease has been seen unchanged, or missing."""
        name, uid, renewed = node.metadata.name, node.metadata.uid, None
        with suppress(NotFoundError):
            renewed = (await self._client.get(LEASES, name, namespace=_LEASES)).spec.renew_time
        now, before = self._now(), self._watched.get(name)
        if before is None or before.node_uid != uid:
            before = self._watched[name] = _Watched(uid, renewed, now, now)
        elif before.renewed != renewed:
            first = now if now - before.since >= LEASE_SECONDS else before.first
            before = self._watched[name] = _Watched(uid, renewed, now, first)
        return now - before.since

    async def _delete(self, node: Node) -> None:
        with suppress(NotFoundError):
            await self._client.delete(NODES, node.metadata.name, uid=node.metadata.uid)
        _log.info("leftover_node_deleted", node=node.metadata.name, uid=node.metadata.uid)
