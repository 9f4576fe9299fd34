"""Load for a shard: many clusters on few connections, and how soon their roll-ups are acknowledged."""

import asyncio
import gc
import resource
from collections.abc import Callable

import grpc
import msgspec

from bigfleet.model.resources import Resources
from bigfleet.sim.load.streams import Histogram, LoadedCluster, Rows, Tally
from bigfleet.transport.address import dial_address
from bigfleet.transport.grpc_options import CHANNEL_OPTIONS

STREAMS_PER_CHANNEL = 90
"""A shard takes 100 streams on one connection. We use fewer, since a stream that has just ended counts for a while."""

# Without a pool of its own each channel would share one connection with the others.
_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
_TICK_SECONDS = 0.01
_OPEN_SECONDS = 60.0
_LAST_ACKS_SECONDS = 5.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the load does; `python -m bench.shard_load --help` says what each field means."""

    target: str
    clusters: int = 100
    rate: float = 100.0
    seconds: float = 60.0
    settle: float = 0.0
    changed: float = 0.01
    rows: int = 10
    pods: int = 20
    pod: Resources = (("cpu", 1000), ("memory", 2 * 2**20))
    connect_rate: float = 500.0
    prefix: str = "load"
    stranger: bool = False
    burst: int = 0
    burst_at: float = 10.0


class Load:
    """All clusters, and what is measured of them. `tell` is called with the figures of each second."""

    def __init__(self, options: Options, tell: Callable[[dict[str, object]], None]) -> None:
        self._options, self._tell, self._tally = options, tell, Tally()
        self._rows = Rows(options.rows, options.pods, options.pod, options.burst)
        target = str(dial_address(options.target))
        channels = -(-options.clusters // STREAMS_PER_CHANNEL)
        self._channels = [grpc.aio.insecure_channel(target, _OPTIONS) for _ in range(channels)]
        self._clusters = [
            LoadedCluster(
                f"{options.prefix}-{number:05d}",
                self._channels[number // STREAMS_PER_CHANNEL],
                self._tally,
                self._rows.plain,
                reports=not options.stranger,
            )
            for number in range(options.clusters)
        ]
        self._late = 0.0
        self._burst: dict[str, object] = {}

    async def run(self) -> dict[str, object]:
        """Connect all clusters, send roll-ups and measure; returns all figures."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(cluster.run(number / self._options.connect_rate))
                    for number, cluster in enumerate(self._clusters)
                ]
                await _look(
                    lambda: self._tally.open_streams == len(tasks),
                    _OPEN_SECONDS + len(tasks) / self._options.connect_rate,
                )
                opened = {"streams": self._tally.open_streams, "seconds": round(clock() - began, 2)}
                # What exists now exists to the end. If the collector looked at it each time, that would cost more than
                # the load itself.
                gc.collect()
                gc.freeze()
                await self._send_all(self._options.settle)
                figures = {"clusters": len(tasks), "opened": opened, **await self._measure()}
                for task in tasks:
                    task.cancel()
            return figures
        finally:
            gc.unfreeze()
            await asyncio.gather(*(channel.close() for channel in self._channels))

    async def _measure(self) -> dict[str, object]:
        tally = self._tally
        tally.restart()
        clock = asyncio.get_running_loop().time
        before, began = _cpu_seconds(), clock()
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self._tell_each_second()), group.create_task(self._send_burst())]
            await self._send_all(self._options.seconds)
            spent, took = _cpu_seconds() - before, clock() - began
            await _look(lambda: not tally.unanswered, _LAST_ACKS_SECONDS)
            for helper in helpers:
                helper.cancel()
        return {
            **self._figures(tally.latency),
            "seconds": round(took, 2),
            "unanswered": tally.unanswered,
            "refusal": tally.refusal,
            "dropped": dict(tally.dropped),
            "blobs": tally.blobs,
            "reclaims": tally.reclaims,
            "own_cpu_cores": round(spent / took, 3),
            "own_cpu_us_per_rollup": round(spent / tally.sent * 1e6) if tally.sent else None,
            "own_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "own_late_ms_max": round(self._late * 1000, 1),
            "burst": self._burst or None,
        }

    async def _send_all(self, seconds: float) -> None:
        """Send roll-ups of all clusters in turn at the configured rate, whether or not they are answered."""
        clock, options, rows = asyncio.get_running_loop().time, self._options, self._rows
        began = wake = clock()
        number, changes, self._late = 0, 0.0, 0.0
        while (now := clock()) < began + seconds:
            self._late = max(self._late, now - wake)
            while number < int((now - began) * options.rate):
                cluster = self._clusters[number % len(self._clusters)]
                number += 1
                changes += options.changed
                if changes >= 1 and cluster.rows is not rows.burst:
                    changes -= 1
                    cluster.rows = rows.more if cluster.rows is rows.plain else rows.plain
                cluster.roll_up()
            wake = now + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)

    async def _send_burst(self) -> None:
        """Ask for many machines at once for the first cluster, and measure how soon they are Configured."""
        pods, cluster, clock = self._options.burst, self._clusters[0], asyncio.get_running_loop().time
        if not pods:
            return
        await asyncio.sleep(self._options.burst_at)
        cluster.rows = self._rows.burst
        began = clock()
        cluster.roll_up(waits=True)
        there: list[float] = []
        while len(there) < pods:
            await asyncio.sleep(10 * _TICK_SECONDS)
            # Machines that the cluster had before count too, since one of them may have room for one of the pods.
            there = sorted(max(0.0, at - began) for at in cluster.configured.values())
            marks = {"half": pods // 2, "nine_tenths": pods * 9 // 10, "all": pods}
            seconds = {name: round(there[n - 1], 2) if 0 < n <= len(there) else None for name, n in marks.items()}
            self._burst = {"pods": pods, "machines": len(there), "seconds": seconds}

    async def _tell_each_second(self) -> None:
        while True:
            self._tally.recent = Histogram()
            await asyncio.sleep(1.0)
            self._tell(self._figures(self._tally.recent))

    def _figures(self, latency: Histogram) -> dict[str, object]:
        tally = self._tally
        return {
            "streams": tally.open_streams,
            "sent": tally.sent,
            "acked": tally.acked,
            "refused": tally.refused,
            "skipped": tally.skipped,
            "latency_ms": latency.milliseconds(),
            "configured": sum(len(cluster.configured) for cluster in self._clusters),
        }


async def _look(is_so: Callable[[], bool], seconds: float) -> None:
    """Wait until `is_so`, but no longer than this many seconds."""
    for _ in range(int(seconds / _TICK_SECONDS)):
        if is_so():
            return
        await asyncio.sleep(_TICK_SECONDS)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
