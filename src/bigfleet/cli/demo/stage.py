"""The stage that the demo's story is played on: real processes, and what can be seen of them from outside."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from bigfleet.cli.demo.processes import ShardProcess
from bigfleet.cli.demo.screen import Row, Screen, View
from bigfleet.cli.demo.watch import Watch
from bigfleet.cli.demo.words import in_words
from bigfleet.model.machine import Machine
from bigfleet.shard.persistence.audit_log import Record
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.story import CAST, StoryError

# How long a slow machine may take for what otherwise takes seconds.
_PATIENCE_SECONDS = 120.0
_FRAME_SECONDS = 0.2
_LOOK_SECONDS = 0.05


class DemoStage:
    """The story's stage on real processes; `sim.story.Stage` says what each part of it means."""

    def __init__(
        self,
        linger: float,
        screen: Screen,
        shard: ShardProcess,
        watch: Watch,
        clusters: Mapping[str, Cluster],
        hosts: Callable[[], int],
        began: float,
    ) -> None:
        self._linger, self._screen, self._shard, self._watch = linger, screen, shard, watch
        self.clusters, self._hosts, self._began = clusters, hosts, began
        self._drawn = 0
        """How many audit records have been shown."""
        self._doubted: set[str] = set()
        """The clusters whose last roll-up the shard refused."""

    @property
    def seconds(self) -> float:
        """How long the demo has run."""
        return asyncio.get_running_loop().time() - self._began

    @property
    def machines(self) -> Sequence[Machine]:
        """Every machine, from the cloud's list."""
        return self._watch.machines

    @property
    def audit_records(self) -> Sequence[Record]:
        """The audit log so far, from the shard's file."""
        return self._watch.audit_records

    @property
    def hosts(self) -> int:
        """How many hosts exist, by the cloud's own count."""
        return self._hosts()

    @property
    def dollars(self) -> float:
        """What the shard pays an hour, from its audit log."""
        return self._watch.dollars

    @property
    def epoch(self) -> int:
        """The shard's epoch, from its status."""
        return self._watch.epoch

    def act(self, title: str, text: str) -> None:
        """Show that an act begins."""
        self._draw()
        self._screen.tell(self.seconds, f"{title}: {text}", loud=True)

    def say(self, text: str) -> None:
        """Show a sentence of the story, below everything that happened before it."""
        self._draw()
        self._screen.tell(self.seconds, text)

    async def until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until `is_so`; StoryError where that takes too long, or where the shard ends."""
        ends = self.seconds + _PATIENCE_SECONDS
        while not is_so():
            self._shard.check()
            if self.seconds > ends:
                raise StoryError(f"after {_PATIENCE_SECONDS:.0f} s it was not so that {what}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def linger(self) -> None:
        """Wait a moment, so that people can look."""
        await asyncio.sleep(self._linger)

    async def kill_shard(self) -> None:
        """Kill the shard with -9."""
        await self._shard.kill()

    async def start_shard(self) -> None:
        """Start the shard again, with the same flags and data."""
        await self._shard.start()

    async def draw(self) -> None:
        """Show everything again and again, until cancelled."""
        while True:
            self._draw()
            await asyncio.sleep(_FRAME_SECONDS)

    def _draw(self) -> None:
        seconds, new = self.seconds, self._watch.audit_records[self._drawn :]
        self._drawn += len(new)
        for line in [*in_words(new, {machine.id: machine for machine in self.machines}), *self._doubts()]:
            self._screen.did(seconds, line)
        self._screen.show(seconds, self._view())

    def _doubts(self) -> list[str]:
        """A line for each cluster whose roll-up the shard has newly refused."""
        doubted = {name for name, cluster in self.clusters.items() if cluster.refusal}
        new, self._doubted = sorted(doubted - self._doubted), doubted
        return [f"wait for {name} to say it again: {self.clusters[name].refusal.partition(';')[0]}" for name in new]

    def _view(self) -> View:
        watch = self._watch
        figures = f", epoch {watch.epoch}, decision {watch.decisions} in {watch.cycle_seconds * 1000:.1f} ms"
        return View(
            rows=[
                Row(name, each.name, each.profile.priority, pods.running, pods.pending)
                for name, workloads in CAST.items()
                for each in workloads
                for pods in [self.clusters[name].world.pods(each.name)]
            ],
            nodes={name: len(cluster.world.nodes) for name, cluster in self.clusters.items()},
            sessions={name: _session(cluster) for name, cluster in self.clusters.items()},
            machines=Counter((machine.capacity_type, machine.state) for machine in self.machines),
            shard=f"shard {self._shard.state}" + (figures if self._shard.up else ""),
            dollars=watch.dollars,
        )


def _session(cluster: Cluster) -> str:
    if not cluster.connected:
        return "no session"
    return "not believed yet" if cluster.refusal else "connected"
