"""How long machines take from state to state: for metrics, for the engine's scores, and for what clusters are told."""

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

from bigfleet.model.machine import TRANSITIONAL, Machine, MachineState
from bigfleet.telemetry.metrics import ShardMetrics

_REMEMBERED = 64
"""How many of the last durations of an instance type are remembered."""

_MOST_TYPES = 4096
"""How many instance types are remembered. Providers name them, so their number must have a bound."""

_S = MachineState


class Medians:
    """The last durations of one change of state, by instance type."""

    def __init__(self, kept: Mapping[str, Iterable[float]] | None = None) -> None:
        self._seen = {name: deque(seconds, _REMEMBERED) for name, seconds in (kept or {}).items()}

    def add(self, instance_type: str, seconds: float) -> None:
        """A machine of that type took so long."""
        if instance_type not in self._seen and len(self._seen) >= _MOST_TYPES:
            return
        self._seen.setdefault(instance_type, deque(maxlen=_REMEMBERED)).append(max(0.0, seconds))

    def of(self, instance_type: str) -> float | None:
        """The median for the type; None before the first machine of it."""
        seen = self._seen.get(instance_type)
        return None if seen is None else median(seen)

    def overall(self) -> float | None:
        """The median over all types; None before the first machine."""
        seen = [seconds for times in self._seen.values() for seconds in times]
        return median(seen) if seen else None

    def kept(self) -> dict[str, tuple[float, ...]]:
        """What the local file holds of the durations."""
        return {name: tuple(seen) for name, seen in self._seen.items()}


class Durations:
    """Since when machines have been in a transitional state, and how long other machines were in one lately."""

    def __init__(self, drains: Mapping[str, Iterable[float]], metrics: ShardMetrics) -> None:
        self.drains = Medians(drains)
        self._creations, self._configurations = Medians(), Medians()
        self._metrics = metrics
        self._since: dict[str, tuple[MachineState, float]] = {}

    def moved(self, machine_id: str, after: Machine | None, now: float) -> None:
        """The machine has changed its state; None says that the machine is gone."""
        was, since = self._since.pop(machine_id, (None, now))
        if after is None:
            return
        match was, after.state:
            case _S.CREATING, _S.IDLE:
                self._creations.add(after.instance_type, now - since)
            case _S.CONFIGURING, _S.CONFIGURED:
                self._metrics.configure_phase.observe(now - since)
                self._configurations.add(after.instance_type, now - since)
            case _S.DRAINING, _S.IDLE:
                self._metrics.drain_phase.observe(now - since)
                self.drains.add(after.instance_type, now - since)
        if after.state in TRANSITIONAL:
            self._since[machine_id] = after.state, now

    def until_ready(self, instance_type: str) -> float | None:
        """Seconds that a slot of that type takes to become a node; the median over all types where none was seen."""
        created = self._creations.of(instance_type) or self._creations.overall()
        configured = self._configurations.of(instance_type) or self._configurations.overall()
        return None if created is None or configured is None else created + configured
