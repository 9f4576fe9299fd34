"""Hardware as a backend: a host joins by running the bootstrap blob, and leaves by a script that cleans it."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterable

from bigfleet.providerkit import Backend, BackendError, Change, Job, Known, Limits, Notice, Offer

from bigfleet_ssh_hosts.errand import LOG, Errand, script
from bigfleet_ssh_hosts.inventory import Host, Inventory
from bigfleet_ssh_hosts.ssh import UNREACHABLE, Client, Result

# How long an errand waits for another on the same host, such as a bootstrap that goes on after its connection broke.
_PATIENCE_SECONDS = 60
# The most hosts that are probed at the same time.
_PROBES = 16


class SSHHosts(Backend):
    """The backend for the hosts of one inventory. Hosts are neither made nor deleted: no `create`, no `delete`."""

    scheme = "ssh-hosts"
    limits = Limits(configure=1200.0, drain=600.0)

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._hosts = {host.id: host for host in inventory.hosts}
        self._scripts = {name: script(inventory.scripts, name) for name in ("bootstrap", "ready", "drain")}
        self._client = Client(inventory.ssh)
        self._shell = shlex.join([*inventory.scripts.become, "sh", "-s"])
        self._silent_since: dict[str, float] = {}

    async def offers(self) -> Iterable[Offer]:
        """Every host of the inventory."""
        return [host.offer() for host in self._inventory.hosts]

    async def configure(self, job: Job, blob: bytes) -> None:
        """Run the blob on the host."""
        result = await self._errand(job, "bootstrap", blob=blob)
        if result.code:
            where = f"{self._inventory.scripts.work_dir}/{LOG}"
            raise BackendError(f"host {job.host}: its bootstrap {result}; its output is on the host in {where}")

    async def ready(self, job: Job) -> bool:
        """Whether the host says that its node is Ready. A host that does not answer is asked again by the kit."""
        return (await self._errand(job, "ready")).code == 0

    async def drain(self, job: Job, grace_seconds: int) -> None:
        """Run the script that ends what runs on the host and removes the cluster's credentials."""
        result = await self._errand(job, "drain", grace_seconds)
        if result.code:
            raise BackendError(f"host {job.host}: leaving the cluster {result}")

    async def watch(self, known: Known) -> AsyncIterator[Notice]:  # noqa: ARG002 - the inventory has all hosts
        """Yield a notice for each host that has been silent for too long. The kit ignores what it knows already."""
        settings, clock = self._inventory.watch, asyncio.get_running_loop().time
        probes = asyncio.Semaphore(_PROBES)
        while True:
            async with asyncio.TaskGroup() as group:
                asked = [(host, group.create_task(self._probe(host, probes))) for host in self._inventory.hosts]
            for host, answer in asked:
                result = answer.result()
                if result.code != UNREACHABLE:
                    self._silent_since.pop(host.id, None)
                elif clock() - self._silent_since.setdefault(host.id, clock()) >= settings.broken_after_seconds:
                    yield Notice(host.id, Change.BROKEN, f"host {host.id} {result}")
            await asyncio.sleep(settings.every_seconds)

    async def close(self) -> None:
        """End the threads of the SSH client."""
        self._client.close()

    async def _probe(self, host: Host, probes: asyncio.Semaphore) -> Result:
        async with probes:
            return await self._client.run(host, "true")

    async def _errand(self, job: Job, name: str, grace_seconds: int = 0, blob: bytes = b"") -> Result:
        host = self._hosts.get(job.host)
        if host is None:
            raise BackendError(f"host {job.host}: is not in the inventory; put it back until its machine is free")
        errand = Errand(
            script=self._scripts[name],
            blob=blob,
            environment={
                "BIGFLEET_MACHINE": job.machine,
                "BIGFLEET_PROVIDER_ID": f"{self.scheme}://{job.host}",
                "BIGFLEET_GRACE_SECONDS": str(grace_seconds),
            },
            secret=name == "bootstrap",
            tidies=name == "drain",
        )
        return await self._client.run(
            host, self._shell, errand.text(self._inventory.scripts.work_dir, _PATIENCE_SECONDS)
        )
