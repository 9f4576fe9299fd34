"""The agents of all hosts of a cloud. Each joins in a task of its own, which ends once its node is Ready."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec
import structlog

from bigfleet.kube.errors import ApiError, KubeConfigError, UnauthorizedError
from bigfleet.providerkit.offer import Shape
from bigfleet.sim.agent.join import Join, Kubelet, leave
from bigfleet.sim.agent.user_data import Bootstrap

_log = structlog.get_logger("bigfleet.sim.agent")

# A drain waits this long for the cluster to hear of it. After that the drain goes on, and the cluster is told later.
_LEAVE_SECONDS = 5.0
_RETRY_SECONDS = 3.0


class Disks(Protocol):
    """Where hosts keep what they must know after a restart of the cloud."""

    def disk(self, ref: str) -> bytes:
        """What a host has written; nothing if there is no such host, or it has written nothing."""
        ...

    def write_disk(self, ref: str, content: bytes) -> None:
        """Keep this content for a host; empty content wipes the disk."""
        ...


class Agents:
    """The agents of all hosts that have bootstrap data. `scheme` is what provider ids begin with."""

    def __init__(self, disks: Disks, scheme: str) -> None:
        self._disks, self._scheme = disks, scheme
        self._joins: dict[str, tuple[Join, asyncio.Task[None]]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def resume(self, refs: Iterable[str]) -> None:
        """Go on with the joins of these hosts, which an earlier process of the cloud began."""
        for ref in refs:
            kubelet = self._on_disk(ref)
            if kubelet is not None and not kubelet.joined:
                self._begin(ref, kubelet, 0.0)

    def boot(self, ref: str, bootstrap: Bootstrap, shape: Shape, seconds: float) -> None:
        """Give a host its bootstrap data; its kubelet starts after this many seconds."""
        kubelet = Kubelet(
            bootstrap=bootstrap,
            node_name=bootstrap.node_name or ref,
            provider_id=f"{self._scheme}://{ref}",
            shape=shape,
        )
        self._keep(ref, kubelet)
        self._begin(ref, kubelet, seconds)

    def has_joined(self, ref: str) -> bool:
        """Whether the host's node has been Ready."""
        found = self._joins.get(ref)
        kubelet = self._on_disk(ref) if found is None else found[0].kubelet
        return kubelet is not None and kubelet.joined

    def hindrance(self, ref: str) -> str:
        """At which step of its join a host is, and what went wrong last."""
        if ref not in self._joins:
            return "the host has no bootstrap data"
        join, task = self._joins[ref]
        broke = task.exception() if task.done() else None
        return str(join) if broke is None else f"{join.step}: the agent broke: {broke}"

    async def leave(self, ref: str) -> None:
        """End the host's kubelet and wipe its credentials; a cluster that does not answer is told later."""
        leaving = self.abandon(ref)
        if leaving is not None:
            await asyncio.wait({leaving}, timeout=_LEAVE_SECONDS)

    def abandon(self, ref: str) -> asyncio.Task[None] | None:
        """End the host's kubelet and wipe its disk; returns the task that tells the cluster, None without a kubelet."""
        kubelet = self._on_disk(ref)
        _, joining = self._joins.pop(ref, (None, None))
        if joining is not None:
            # Before the disk is wiped: once cancelled, the join writes nothing to it.
            joining.cancel()
        if kubelet is None:
            return None
        self._disks.write_disk(ref, b"")
        task = asyncio.create_task(_end(kubelet, joining))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def close(self) -> None:
        """End every task."""
        tasks = [*self._leaving, *(task for _, task in self._joins.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, ref: str, kubelet: Kubelet, seconds: float) -> None:
        join = Join(kubelet, lambda changed: self._keep(ref, changed))

        async def run() -> None:
            await asyncio.sleep(seconds)
            await join.run()

        self._joins[ref] = (join, asyncio.create_task(run()))

    def _keep(self, ref: str, kubelet: Kubelet) -> None:
        self._disks.write_disk(ref, msgspec.json.encode(kubelet))

    def _on_disk(self, ref: str) -> Kubelet | None:
        content = self._disks.disk(ref)
        return msgspec.json.decode(content, type=Kubelet) if content else None


async def _end(kubelet: Kubelet, joining: asyncio.Task[None] | None) -> None:
    """Await the end of a join, then have KWOK leave the Node alone, however long the cluster takes to answer."""
    if joining is not None:
        await asyncio.wait({joining})
    if not kubelet.certificate:
        return
    problem = ""
    # The cluster may still carry out what the join asked for when it was cancelled. So where the host was joining, its
    # Node is looked for twice.
    looks = 1 if kubelet.joined else 2
    while looks:
        try:
            looks = 0 if await leave(kubelet) else looks - 1
        except UnauthorizedError as error:
            _log.warning("node_left_in_silence", node=kubelet.node_name, reason=str(error))
            return
        except (ApiError, KubeConfigError) as error:
            if str(error) != problem:
                problem = str(error)
                _log.warning("node_leave_hindered", node=kubelet.node_name, reason=problem)
        if looks:
            await asyncio.sleep(_RETRY_SECONDS)
    _log.info("node_left", node=kubelet.node_name)
