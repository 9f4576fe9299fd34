"""How long machines take from state to state: for metrics, for the engine's scores, and for what is promised."""

from collections.abc import Iterable, Mapping

from bigfleet.model.machine import TRANSITIONAL, Machine, MachineState
from bigfleet.shard.decision.medians import Medians
from bigfleet.telemetry.metrics import ShardMetrics

_S = MachineState


class Timings:
    """Since when machines have been under way, and how long others took lately."""

    def __init__(self, drains: Mapping[str, Iterable[float]], metrics: ShardMetrics) -> None:
        self.drains = Medians(drains)
        self.creations, self.configurations = Medians(), Medians()
        self._metrics = metrics
        self._since: dict[str, tuple[MachineState, float]] = {}

    def moved(self, machine_id: str, after: Machine | None, now: float) -> None:
        """The machine is in another state, or gone."""
        was, since = self._since.pop(machine_id, (None, now))
        if after is None:
            return
        match was, after.state:
            case _S.CREATING, _S.IDLE:
                self.creations.add(after.instance_type, now - since)
            case _S.CONFIGURING, _S.CONFIGURED:
                self._metrics.configure_phase.observe(now - since)
                self.configurations.add(after.instance_type, now - since)
            case _S.DRAINING, _S.IDLE:
                self._metrics.drain_phase.observe(now - since)
                self.drains.add(after.instance_type, now - since)
        if after.state in TRANSITIONAL:
            self._since[machine_id] = after.state, now

    def until_ready(self, instance_type: str) -> float | None:
        """What a slot of that type takes to become a node, by what was seen, of any type where none of it was."""
        created = self.creations.of(instance_type) or self.creations.overall()
        configured = self.configurations.of(instance_type) or self.configurations.overall()
        return None if created is None or configured is None else created + configured
