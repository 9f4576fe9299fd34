"""Machines, needs and shapes that are no candidates for a while, because they just failed (protocol rule 8).

Events in, not-before times out. Times are seconds on the caller's monotonic clock. The engine gets whole seconds,
rounded up so that no hold-out ends early.
"""

import math
from collections.abc import Mapping
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from bigfleet.model.machine import CapacityType, Machine

FIRST_SECONDS, LONGEST_SECONDS = 60.0, 3600.0
"""How long a machine or a (cluster, fingerprint) is held out: doubling from the first to the longest."""

SHAPE_SECONDS = 180.0
"""How long a shape is held out."""

SHAPE_WINDOW_SECONDS = 300.0
"""Two failed Creates of a shape no further apart than this hold it out."""

_FORGET_SECONDS = 86_400.0
"""How long after its end a hold-out is remembered, so that the next one is longer."""

_STOCK_SECONDS = 600.0
"""How long after its end a hold-out of a shape is taken for the beginning of the next one: nothing was had between."""

_MOST_SAID = 200
"""How many characters are kept of what a provider or an operator said."""

_MOST_ELAPSED = 3.2e9
"""The longest elapsed time that a file may claim: a century, which a float still counts in milliseconds."""

K = TypeVar("K")

Shape = tuple[str, str, CapacityType]
"""Instance type, zone, and how it is paid for."""

_Elapsed = Annotated[float, msgspec.Meta(ge=0, le=_MOST_ELAPSED)]
_Seconds = Annotated[float, msgspec.Meta(ge=FIRST_SECONDS, le=LONGEST_SECONDS)]


class KeptHold(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A hold-out in the file."""

    #: How long the hold-out lasts.
    seconds: _Seconds
    #: How long ago it began; more than `seconds` where it is over.
    elapsed: _Elapsed
    #: What the provider or the operator said when it failed.
    said: str = ""


class KeptShape(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A shape in the file."""

    instance_type: str
    zone: str
    capacity_type: CapacityType
    #: The shape's hold-out, if it has one.
    hold: KeptHold | None
    #: How long ago a Create of the shape last failed.
    failed: _Elapsed | None
    #: How long ago the first of the hold-outs began that followed each other until now.
    out: _Elapsed | None = None


class KeptHoldOuts(msgspec.Struct, frozen=True):
    """All hold-outs as plain data. Decoding the data with this type checks it."""

    machines: Mapping[str, KeptHold] = {}
    needs: Mapping[str, Mapping[str, KeptHold]] = {}
    shapes: tuple[KeptShape, ...] = ()


class HeldOut(NamedTuple):
    """A hold-out, for people."""

    #: Since when; of a shape, since the first of the hold-outs that followed each other.
    since: float
    until: float
    #: What the provider or the operator said when it failed; empty where nobody said anything.
    said: str


class _Hold(msgspec.Struct, frozen=True, gc=False):
    since: float
    seconds: float
    said: str

    @property
    def until(self) -> float:
        return self.since + self.seconds

    def kept(self, now: float) -> KeptHold:
        return KeptHold(self.seconds, max(0.0, now - self.since), self.said)

    def shown(self, now: float) -> HeldOut | None:
        return HeldOut(self.since, self.until, self.said) if self.until > now else None


def shape_of(machine: Machine) -> Shape:
    """The shape whose stock a machine comes from."""
    return machine.instance_type, machine.zone, machine.capacity_type


class HoldOuts:
    """Not-before times of machines, of needs by (cluster, fingerprint), and of shapes."""

    def __init__(self) -> None:
        self._machines: dict[str, _Hold] = {}
        self._needs: dict[str, dict[str, _Hold]] = {}
        self._shapes: dict[Shape, _Hold] = {}
        self._failed_creates: dict[Shape, float] = {}
        #: When the first of the hold-outs of a shape began that followed each other until now.
        self._out_since: dict[Shape, float] = {}

    def machine_failed(self, machine_id: str, now: float, said: str = "") -> None:
        """The machine is Failed, or was not Ready in time."""
        self._machines[machine_id] = _longer(self._machines.get(machine_id), now, said)

    def machine_succeeded(self, machine_id: str) -> None:
        """The machine serves a cluster."""
        self._machines.pop(machine_id, None)

    def need_failed(self, cluster_id: str, fingerprint: str, now: float, said: str = "") -> None:
        """The cluster's operator could not give user data for a machine of this profile."""
        holds = self._needs.setdefault(cluster_id, {})
        holds[fingerprint] = _longer(holds.get(fingerprint), now, said)

    def need_succeeded(self, cluster_id: str, fingerprint: str) -> None:
        """The cluster's operator gave user data for this profile, and the machine serves."""
        holds = self._needs.get(cluster_id, {})
        holds.pop(fingerprint, None)
        if not holds:
            self._needs.pop(cluster_id, None)

    def create_failed(self, shape: Shape, now: float, said: str = "") -> None:
        """A Create of this shape failed; the second within the window holds the shape out."""
        last = self._failed_creates.get(shape)
        self._failed_creates[shape] = now
        if last is not None and now - last <= SHAPE_WINDOW_SECONDS:
            self.out_of_stock(shape, now, said)

    def out_of_stock(self, shape: Shape, now: float, said: str = "") -> None:
        """The provider has no more of this shape, as it said."""
        self._shapes[shape] = _Hold(now, SHAPE_SECONDS, said[:_MOST_SAID])
        self._out_since.setdefault(shape, now)

    def create_succeeded(self, shape: Shape) -> None:
        """A Create of this shape succeeded."""
        self._shapes.pop(shape, None)
        self._failed_creates.pop(shape, None)
        self._out_since.pop(shape, None)

    def not_before(self, machine_id: str) -> int:
        """For MachineRecord.not_before: 0 where nothing holds the machine."""
        hold = self._machines.get(machine_id)
        return 0 if hold is None else math.ceil(hold.until)

    def held_out(self, cluster_id: str, now: float) -> dict[str, int]:
        """For ClusterRecord.held_out: until when each fingerprint of the cluster is held out."""
        return _whole(self._needs.get(cluster_id, {}), now)

    def held_out_shapes(self, now: float) -> dict[Shape, int]:
        """For Policy.held_out_shapes: until when each shape is held out."""
        return _whole(self._shapes, now)

    def held_machine(self, machine_id: str, now: float) -> HeldOut | None:
        """Why the machine is held out; None where it is not."""
        hold = self._machines.get(machine_id)
        return None if hold is None else hold.shown(now)

    def held_need(self, cluster_id: str, fingerprint: str, now: float) -> HeldOut | None:
        """Why needs of this profile are held out in the cluster; None where they are not."""
        hold = self._needs.get(cluster_id, {}).get(fingerprint)
        return None if hold is None else hold.shown(now)

    def held_shape(self, shape: Shape, now: float) -> HeldOut | None:
        """Why the shape is held out; None where it is not."""
        hold = self._shapes.get(shape)
        shown = None if hold is None else hold.shown(now)
        return None if shown is None else shown._replace(since=self._out_since.get(shape, shown.since))

    def kept(self, now: float) -> KeptHoldOuts:
        """What the local file holds. Hold-outs that ended a day ago are forgotten, here and in the file."""
        self._forget(now)
        shapes = sorted(self._shapes.keys() | self._failed_creates.keys() | self._out_since.keys())
        return KeptHoldOuts(
            {machine_id: hold.kept(now) for machine_id, hold in self._machines.items()},
            {
                cluster_id: {fingerprint: hold.kept(now) for fingerprint, hold in holds.items()}
                for cluster_id, holds in self._needs.items()
            },
            tuple(self._kept_shape(shape, now) for shape in shapes),
        )

    @classmethod
    def restored(cls, kept: KeptHoldOuts, now: float) -> "HoldOuts":
        """The hold-outs of the file. Every time goes on from where it was then (protocol rule 19)."""
        holdouts = cls()
        holdouts._machines = _resumed(kept.machines, now)
        holdouts._needs = {cluster_id: _resumed(holds, now) for cluster_id, holds in kept.needs.items()}
        for row in kept.shapes:
            shape = (row.instance_type, row.zone, row.capacity_type)
            if row.hold is not None:
                holdouts._shapes[shape] = _Hold(now - row.hold.elapsed, row.hold.seconds, row.hold.said)
            if row.out is not None:
                holdouts._out_since[shape] = now - row.out
            if row.failed is not None:
                holdouts._failed_creates[shape] = now - row.failed
        return holdouts

    def _kept_shape(self, shape: Shape, now: float) -> KeptShape:
        hold, failed, out = self._shapes.get(shape), self._failed_creates.get(shape), self._out_since.get(shape)
        return KeptShape(
            *shape,
            hold=None if hold is None else hold.kept(now),
            failed=None if failed is None else max(0.0, now - failed),
            out=None if out is None else max(0.0, now - out),
        )

    def _forget(self, now: float) -> None:
        for holds in (self._machines, *self._needs.values()):
            _drop_old(holds, now - _FORGET_SECONDS)
        self._needs = {cluster_id: holds for cluster_id, holds in self._needs.items() if holds}
        self._shapes = {shape: hold for shape, hold in self._shapes.items() if hold.until > now - _STOCK_SECONDS}
        self._out_since = {shape: since for shape, since in self._out_since.items() if shape in self._shapes}
        self._failed_creates = {
            shape: at for shape, at in self._failed_creates.items() if now - at <= SHAPE_WINDOW_SECONDS
        }


def _longer(hold: _Hold | None, now: float, said: str) -> _Hold:
    if hold is None:
        return _Hold(now, FIRST_SECONDS, said[:_MOST_SAID])
    if now < hold.until:
        # Nothing begins during a hold-out, so what failed now began before it: it is the same mishap.
        return hold
    return _Hold(now, min(2 * hold.seconds, LONGEST_SECONDS), said[:_MOST_SAID])


def _whole(holds: Mapping[K, _Hold], now: float) -> dict[K, int]:
    return {key: math.ceil(hold.until) for key, hold in holds.items() if hold.until > now}


def _resumed(kept: Mapping[str, KeptHold], now: float) -> dict[str, _Hold]:
    return {key: _Hold(now - hold.elapsed, hold.seconds, hold.said) for key, hold in kept.items()}


def _drop_old(holds: dict[str, _Hold], before: float) -> None:
    for key in [key for key, hold in holds.items() if hold.until < before]:
        del holds[key]
