"""The machines of a shard as columns of integers, changed record by record and read without copying.

Ids are strings at the edge only; inside, a machine is the number of its row, and ids compare by their rank.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from bigfleet.engine.arrays import Column
from bigfleet.engine.records import MachineRecord, Stamp
from bigfleet.engine.shapes import Dimensions, Shapes
from bigfleet.model.buckets import PenaltyBucket
from bigfleet.model.machine import InvariantError, MachineState, check_invariants
from bigfleet.model.need import NeedKey

VACANT = 0
NOBODY = -1

EMPTY = 1
PROTECTED = 2
NOT_READY = 4
UNREQUESTED = 8
COMMITTED = 16
STAMPED = 32

MAX_PRICE = 500_000.0
"""Dollars an hour above which a price cannot be weighed against a penalty without losing digits."""


class RecordError(ValueError):
    """A record that cannot be taken; names the machine and the field."""

    def __init__(self, machine_id: str, field: str, problem: str) -> None:
        self.machine_id, self.field = machine_id, field
        super().__init__(f"machine {machine_id!r}: {field}: {problem}")


class Names:
    """Strings or values as numbers, both ways."""

    def __init__(self) -> None:
        self._ids: dict[object, int] = {}
        self.values: list[object] = []

    def __len__(self) -> int:
        return len(self.values)

    def intern(self, value: object) -> int:
        """The number of a value, made on first sight."""
        number = self._ids.get(value)
        if number is None:
            number = self._ids[value] = len(self.values)
            self.values.append(value)
        return number


class Inventory:
    """Machines by row. Columns are read by the walks; only this class writes them."""

    def __init__(self) -> None:
        self.shapes = Shapes(Dimensions())
        self.clusters = Names()
        self.keys = Names()
        self._rows: dict[str, int] = {}
        self._vacant: list[int] = []
        self.ids: list[str] = []
        self.shape = Column(np.int32)
        self.state = Column(np.uint8)
        self.cluster = Column(np.int32, NOBODY)
        self.bound = Column(np.int32, NOBODY)
        self.number = Column(np.int64)
        self.own = Column(np.int32, NOBODY)
        self.price = Column(np.int64)
        self.probability = Column(np.int32)
        self.stamp_priority = Column(np.int32)
        self.stamp_interruption = Column(np.uint8)
        self.stamp_reclamation = Column(np.uint8)
        self.flags = Column(np.uint8)
        self.drain_seconds = Column(np.int32)
        self.not_before = Column(np.int64)
        self.idle_since = Column(np.int64)
        self.hold_until = Column(np.int64)
        self.stakes_priority = Column(np.int32)
        self.stakes_interruption = Column(np.uint8)
        self.stakes_reclamation = Column(np.uint8)
        self.rank = Column(np.int64)
        self.offer = Column(np.int32)
        self._offers = Names()
        self._ranked = True
        self._order = np.zeros(0, np.int64)
        self._moved: set[int] = set()
        self._reorder = False
        self._columns = [
            self.shape, self.state, self.cluster, self.bound, self.number, self.own, self.price, self.probability,
            self.stamp_priority, self.stamp_interruption, self.stamp_reclamation, self.flags, self.drain_seconds,
            self.not_before, self.idle_since, self.hold_until, self.stakes_priority, self.stakes_interruption,
            self.stakes_reclamation, self.rank, self.offer,
        ]  # fmt: skip

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, machine_id: str) -> int:
        """The row of a machine that is there."""
        return self._rows[machine_id]

    def apply(self, records: Iterable[MachineRecord]) -> None:
        """Add or replace machines. All are checked first: on RecordError no column has changed."""
        batch = list(records)
        for record in batch:
            _check(record)
        for record in batch:
            self._write(record)

    def remove(self, machine_ids: Iterable[str]) -> None:
        """Forget machines; one that is not there is no error."""
        for machine_id in machine_ids:
            row = self._rows.pop(machine_id, None)
            if row is not None:
                self._moved.add(row)
                self.state.view[row] = VACANT
                self.bound.view[row] = self.cluster.view[row] = NOBODY
                self.ids[row] = ""
                self._vacant.append(row)

    def _write(self, record: MachineRecord) -> None:
        machine = record.machine
        row = self._rows.get(machine.id)
        if row is None:
            row = self._place(machine.id)
        cluster = self.clusters.intern(machine.cluster) if machine.cluster else NOBODY
        committed = self.clusters.intern(record.committed_to) if record.committed_to else NOBODY
        flags = (
            (EMPTY if record.empty else 0)
            | (PROTECTED if record.protected else 0)
            | (NOT_READY if record.not_ready else 0)
            | (COMMITTED if record.committed_to else 0)
        )
        shape = self.shapes.intern(machine)
        bound = _bound(machine.state, cluster, committed, record.not_ready)
        price = round(machine.price_per_hour * 1e6)
        # Rounded up: what can be interrupted at all never counts as what cannot.
        probability = -(-round(machine.interruption_probability * 1e9) // 1000)
        reclamation = PenaltyBucket.ZERO if record.stamp is None else record.stamp.reclamation
        number = 0 if record.stamp is None else record.stamp.number
        if self.bound.view[row] != bound or self.number.view[row] != number:
            self._moved.add(row)
        self.shape.view[row] = shape
        self.state.view[row] = machine.state
        self.cluster.view[row] = cluster
        self.bound.view[row] = bound
        self.price.view[row] = price
        self.probability.view[row] = probability
        self.offer.view[row] = self._offers.intern((shape, price, probability, reclamation))
        self.drain_seconds.view[row] = record.drain_seconds
        self.not_before.view[row] = record.not_before
        self.idle_since.view[row] = record.idle_since
        self.hold_until.view[row] = record.reclaim_hold_until
        if record.unrequested is not None:
            flags |= UNREQUESTED
            self.stakes_priority.view[row] = record.unrequested.priority
            self.stakes_interruption.view[row] = record.unrequested.interruption
            self.stakes_reclamation.view[row] = record.unrequested.reclamation
        self._stamp(row, record.stamp)
        if record.stamp is not None:
            flags |= STAMPED
        self.flags.view[row] = flags

    def _stamp(self, row: int, stamp: Stamp | None) -> None:
        self.number.view[row] = 0 if stamp is None else stamp.number
        self.own.view[row] = NOBODY if stamp is None else self.keys.intern(stamp.key)
        self.stamp_priority.view[row] = 0 if stamp is None else stamp.priority
        self.stamp_interruption.view[row] = 1 if stamp is None else stamp.interruption
        self.stamp_reclamation.view[row] = 1 if stamp is None else stamp.reclamation

    def _place(self, machine_id: str) -> int:
        if self._vacant:
            row = self._vacant.pop()
            self.ids[row] = machine_id
        else:
            row = len(self.ids)
            self.ids.append(machine_id)
            for column in self._columns:
                column.resize(row + 1)
        self._rows[machine_id] = row
        self._ranked = False
        return row

    def key(self, number: int) -> NeedKey:
        """The need key that a number in `own` stands for."""
        key = self.keys.values[number]
        assert isinstance(key, NeedKey)  # noqa: S101 - only need keys are interned here
        return key

    def ranked(self) -> None:
        """Give ids that are new since the last time their place in the order of ids."""
        if not self._ranked:
            by_id = sorted(self._rows)
            rows = np.fromiter((self._rows[name] for name in by_id), np.int64, len(by_id))
            self.rank.view[rows] = np.arange(len(rows), dtype=np.int64)
            self._ranked = True
            self._reorder = True

    def binding_order(self) -> npt.NDArray[np.int64]:
        """The bound machines by binding number, then id; kept from one decision to the next."""
        self.ranked()
        bound, number = self.bound.view, self.number.view
        moved = np.fromiter(self._moved, np.int64, len(self._moved))
        fresh = moved[bound[moved] >= 0]
        # Only machines without a stamp share a number, 0; then ids decide, and everything is sorted anew.
        if self._reorder or len(moved) * 4 > len(self._order) or (number[fresh] == 0).any():
            rows = np.flatnonzero(bound >= 0)
            self._order = rows[np.lexsort((self.rank.view[rows], number[rows]))]
            self._reorder = False
        elif len(moved):
            stays = np.ones(len(bound), bool)
            stays[moved] = False
            old = self._order[stays[self._order]]
            fresh = fresh[np.argsort(number[fresh])]
            self._order = np.insert(old, np.searchsorted(number[old], number[fresh]), fresh)
        self._moved.clear()
        return self._order


def _bound(state: MachineState, cluster: int, committed: int, not_ready: bool) -> int:
    """The cluster that the machine counts for: its commitment's, else its provider's while it runs there."""
    if state is MachineState.FAILED:
        return NOBODY
    if committed != NOBODY:
        return committed
    if state in (MachineState.CONFIGURED, MachineState.CONFIGURING) and not not_ready:
        return cluster
    return NOBODY


def _check(record: MachineRecord) -> None:
    machine = record.machine
    try:
        check_invariants(machine)
    except InvariantError as error:
        raise RecordError(machine.id, error.field, error.problem) from None
    if not 0 <= machine.price_per_hour <= MAX_PRICE:
        raise RecordError(machine.id, "price_per_hour", f"must lie between 0 and {MAX_PRICE:.0f} dollars")
    if not 0 <= machine.interruption_probability <= 1:
        raise RecordError(machine.id, "interruption_probability", "must lie between 0 and 1")
    if record.drain_seconds < 0:
        raise RecordError(machine.id, "drain_seconds", "must not be negative")
    if record.stamp is not None and not 0 <= record.stamp.number < 2**62:
        raise RecordError(machine.id, "stamp.number", "must lie between 0 and 2**62")
