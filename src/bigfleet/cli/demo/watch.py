"""What the demo sees of the cloud and the shard from outside: the cloud's list, and audit log, status and metrics."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from bigfleet.cli.ctl.shard_client import Target, get_status
from bigfleet.cli.program import InputError
from bigfleet.model.machine import Machine
from bigfleet.provider.client import ProviderClient, provider_dialer
from bigfleet.provider.fencing import Fencing
from bigfleet.shard.persistence.audit_log import Record
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.transport.address import Address
from bigfleet.transport.server_check import DialError

_LOOK_SECONDS = 0.1
_ASK_SECONDS = 0.5
_CYCLES = "bigfleet_shard_cycle_duration_seconds"

_decode = msgspec.json.Decoder(Record).decode


class Watch:
    """The newest state of the cloud and the shard, kept up to date while `run` runs."""

    def __init__(self, cloud: Address, shard: Target, audit: Path, metrics_port: Callable[[], int]) -> None:
        # This client only reads. Reads carry no fencing token, so it does not act as a second shard.
        self._cloud = ProviderClient(
            "demo", provider_dialer("demo", cloud, None), Fencing("demo", 1), ShardMetrics(CollectorRegistry())
        )
        self._shard, self._metrics_port = shard, metrics_port
        self._audit, self._read = audit, 0
        self._cycles = (0.0, 0.0)
        self.machines: Sequence[Machine] = ()
        self.audit_records: list[Record] = []
        self.epoch = self.decisions = 0
        self.cycle_seconds = 0.0
        """How long a cycle took, on average over those since the last look at the metrics."""

    @property
    def dollars(self) -> float:
        """What the shard pays an hour, by the last line of its audit log."""
        # After many additions and subtractions the sum may be a little below 0.
        return max(0.0, self.audit_records[-1].cost_after) if self.audit_records else 0.0

    async def run(self) -> None:
        """Keep everything up to date, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look())
                tasks.create_task(self._ask())
        finally:
            await self._cloud.close()

    async def _look(self) -> None:
        while True:
            self.machines = list((await self._cloud.list()).machines.values())
            self._read_on()
            await asyncio.sleep(_LOOK_SECONDS)

    def _read_on(self) -> None:
        """Read the new whole lines of the audit log; half a line is read again later."""
        with suppress(FileNotFoundError), self._audit.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read += len(whole) + 1
                self.audit_records += map(_decode, whole.split(b"\n"))

    async def _ask(self) -> None:
        while True:
            if port := self._metrics_port():
                # The shard may be killed at any moment.
                with suppress(InputError, DialError):
                    status = await get_status(self._shard)
                    self.epoch, self.decisions = status.epoch, status.cycle
                with suppress(OSError, HTTPException):
                    self._take_cycles(await asyncio.to_thread(_fetch, port))
            await asyncio.sleep(_ASK_SECONDS)

    def _take_cycles(self, text: str) -> None:
        samples = {
            sample.name.removeprefix(_CYCLES): sample.value
            for family in text_string_to_metric_families(text)
            if family.name == _CYCLES
            for sample in family.samples
            if not sample.labels
        }
        count, seconds = samples["_count"], samples["_sum"]
        before, spent = self._cycles if self._cycles[0] <= count else (0.0, 0.0)
        if count > before:
            self.cycle_seconds = (seconds - spent) / (count - before)
        self._cycles = count, seconds


def _fetch(port: int) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()
