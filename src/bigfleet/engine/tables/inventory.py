"""The inventory: the machines of a shard as columns of integers, changed in batches and read without copying.

A machine is known by the number of its row. Its id is turned into that number and back at the edge, and ids are
compared by their rank.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bigfleet.engine.codes import NOBODY, NOT_READY
from bigfleet.engine.records import MachineRecord
from bigfleet.engine.tables.arrays import Array, Column, Ids, Names, NarrowColumn, places
from bigfleet.engine.tables.shapes import Dimensions, Shapes
from bigfleet.engine.tables.validate import NO_STAMP, Batch, check_amounts, check_labels, fields_of, ids_of
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import INT32_MAX
from bigfleet.model.machine import Machine, MachineState

VACANT = 0
"""The state of a row without a machine."""

_NO_LABELS: Mapping[str, str] = {}

# In `_news`, as bits: what has happened to a row since `changes` or `ranked` was last asked. A row is moved when a
# column has changed by which its place in lists is found.
_CHANGED, _MOVED, _RENAMED = 1, 2, 4


class Inventory:
    """Machines by row. Anybody may read the columns; only this class writes them."""

    def __init__(self) -> None:
        self.shapes = Shapes(Dimensions())
        self.clusters = Names()
        self.keys = Names()
        self.ids = Ids()
        self._size = 0
        # One entry a machine. The heap has the same columns, and `heap.columns` says what each means.
        self.shape = Column(np.int32)
        self.state = Column(np.uint8)
        self.cluster = NarrowColumn(NOBODY)
        self.bound = NarrowColumn(NOBODY)
        self.binding = NarrowColumn()
        self.stamped_for = Column(np.int32, NOBODY)
        self.price = NarrowColumn()
        self.probability = Column(np.int32)
        self.stamp_priority = Column(np.int32)
        self.stamp_interruption = Column(np.uint8, PenaltyBucket.ZERO)
        self.stamp_reclamation = Column(np.uint8, PenaltyBucket.ZERO)
        self.flags = Column(np.uint8)
        self.drain_seconds = NarrowColumn()
        self.stakes_priority = NarrowColumn()
        self.stakes_interruption = Column(np.uint8, PenaltyBucket.ZERO)
        self.stakes_reclamation = Column(np.uint8, PenaltyBucket.ZERO)
        self.not_before = NarrowColumn()
        """The time before which the machine may not be acquired or preempted."""
        self.idle_since = NarrowColumn()
        """The time since which the machine is Idle."""
        self.hold_until = NarrowColumn()
        """The time before which the machine may not be given back."""
        self.offer = Column(np.int32, NOBODY)
        """Equal for machines that differ in nothing by which needs choose what to acquire."""
        self._columns = [
            self.shape, self.state, self.cluster, self.bound, self.binding, self.stamped_for, self.price,
            self.probability, self.stamp_priority, self.stamp_interruption, self.stamp_reclamation, self.flags,
            self.drain_seconds, self.not_before, self.idle_since, self.hold_until, self.stakes_priority,
            self.stakes_interruption, self.stakes_reclamation, self.offer,
        ]  # fmt: skip
        self.rank = Column(np.int32)
        """Compares as the ids of machines do."""
        self.rankings = 0
        """How often all ranks were given again. Otherwise a machine keeps its rank for as long as it is there."""
        self.generation = 0
        """How often `compact` has changed the numbers of need keys and offers; older numbers are void."""
        self.edits = 0
        """How often machines were applied or removed."""
        self.key_columns = [self.stamped_for]
        """All columns that hold numbers of `keys`, also those of the table of needs."""
        self._news = Column(np.uint8)
        self._labels: list[Mapping[str, str]] = []
        """The labels of each row, all of them, since a key may come to be looked at. Equal labels share a mapping."""
        self._terms = Names()
        self._offers = Names()
        self.by_id = np.zeros(0, np.int32)
        """The rows in the order of their ids, as of the last call of `ranked`."""

    def __len__(self) -> int:
        return self._size

    def apply(self, records: Iterable[MachineRecord]) -> None:
        """Add or replace machines; the last record of a machine counts. On RecordError nothing has changed."""
        self.edits += 1
        given = list(records)
        latest = {record.machine.id: record for record in given}
        if len(latest) < len(given):
            self._read(given)
        if latest:
            self._write(self._read(list(latest.values())))

    def remove(self, machine_ids: Iterable[str]) -> None:
        """Forget machines. A machine that is not there is no error."""
        self.edits += 1
        gone = self.ids.remove(list(machine_ids))
        self._size -= len(gone)
        self.keys.ended(len(gone))
        self._offers.ended(len(gone))
        for column in self._columns:
            column.reset(gone)
        for row in gone.tolist():
            self._labels[row] = _NO_LABELS
        self._news.view[gone] = _CHANGED | _MOVED | _RENAMED

    def reshape(self) -> None:
        """Split shapes by labels that somebody looks at since this was last called."""
        new = self.shapes.new_labels()
        if not new:
            return
        labels, shape = self._labels, self.shape.view
        live = np.flatnonzero(self.state.view != VACANT)
        # Machines of a shape often share one mapping of labels, which is then looked at once for all of them.
        first, like = _alike(shape[live], np.fromiter(map(id, labels), np.int64, len(labels))[live])
        shapes, shared = shape[live[first]].astype(np.int64), dict[int, Mapping[str, str]]()
        moved = np.zeros(len(first), np.bool_)
        for i, row in enumerate(live[first].tolist()):
            given = labels[row]
            if any(label in given for label in new):
                shapes[i] = self.shapes.relabelled(int(shapes[i]), given)
                kept = self.shapes.shared(int(shapes[i]), given)
                if kept is not given:
                    shared[i], moved[i] = kept, True
        at = np.flatnonzero(moved[like])
        for row, i in zip(live[at].tolist(), like[at].tolist(), strict=True):
            labels[row] = shared[i]
        split = live[shapes[like] != shape[live]]
        shape[live] = shapes[like]
        names = ("shape", "price", "probability", "stamp_reclamation")
        self.offer.view[split] = self._offer({name: getattr(self, name).view[split].astype(np.int64) for name in names})
        self._offers.ended(len(split))
        self._news.view[split] |= _CHANGED | _MOVED

    def changes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(Rows with any change, rows that were moved) since this was last asked.

        A row is moved if its shape, bound, binding or stamped_for has changed, or if it got or lost its machine. When
        all ranks are given again (`rankings`), that is no change.
        """
        news = self._news.view
        changed, moved_rows = np.flatnonzero(news & _CHANGED), np.flatnonzero(news & _MOVED)
        news[changed] &= ~np.uint8(_CHANGED | _MOVED)
        return changed, moved_rows

    @property
    def wants_compacting(self) -> bool:
        """Whether no machine or need has most of the need keys, or no machine most of the offers."""
        return self.keys.mostly_retired(*(column.view for column in self.key_columns)) or (
            self._offers.mostly_retired(self.offer.view)
        )

    def compact(self) -> None:
        """Forget need keys and offers that nothing has any more. Their numbers change; rows and their order do not."""
        self.keys.compact(*(column.view for column in self.key_columns))
        live = np.flatnonzero(self.state.view != VACANT)
        self._terms, self._offers = Names(), Names()
        names = ("shape", "price", "probability", "stamp_reclamation")
        columns = {name: getattr(self, name).view[live].astype(np.int64) for name in names}
        self.offer.view[live] = self._offer(columns)
        self.generation += 1

    def ranked(self) -> None:
        """Give a rank to ids that are new since this was last called."""
        news, name = self._news.view, self.ids.encoded
        renamed = np.flatnonzero(news & _RENAMED)
        if not len(renamed):
            return
        old = self.by_id[(news[self.by_id] & _RENAMED) == 0]
        fresh = renamed[self.state.view[renamed] != VACANT].tolist()
        news[renamed] &= ~np.uint8(_RENAMED)
        if len(fresh) * 8 > len(old):
            rows = np.concatenate((old, np.array(fresh, np.int32)))
            words = self.ids.words(rows)
            self.by_id = rows[sorted(range(len(rows)), key=words.__getitem__)]
            self._rank_all()
            return
        fresh.sort(key=name)
        at = places(old, fresh, name)
        self.by_id = np.insert(old, at, fresh)
        self._rank_between(old, at, np.array(fresh, np.int64))

    def _rank_between(self, old: Array, at: Array, fresh: Array) -> None:
        """Rank new ids evenly between their neighbours; if some have no room there, rank all ids again."""
        rank = self.rank.view
        bounds = np.concatenate(([0], rank[old], [INT32_MAX])).astype(np.int64)
        _, first, count = np.unique(at, return_index=True, return_counts=True)
        nth = np.arange(len(at)) - np.repeat(first, count) + 1
        step = (bounds[at + 1] - bounds[at]) // (np.repeat(count, count) + 1)
        if (step == 0).any():
            self._rank_all()
        else:
            rank[fresh] = bounds[at] + nth * step

    def _rank_all(self) -> None:
        step = INT32_MAX // (len(self.by_id) + 1)
        self.rank.view[self.by_id] = np.arange(1, len(self.by_id) + 1) * step
        self.rankings += 1

    def _read(self, batch: Sequence[MachineRecord]) -> Batch:
        """The columns of these records, or RecordError. Changes nothing."""
        machines = [record.machine for record in batch]
        ids = ids_of(machines)
        rows = self.ids.find(ids)
        shapes, new_shapes, relabelled = self._shapes_of(machines, rows)
        return Batch(ids, rows, shapes, new_shapes, relabelled, *fields_of(ids, batch))

    def _shapes_of(
        self, machines: Sequence[Machine], rows: Array
    ) -> tuple[Array, list[Machine], dict[int, Mapping[str, str]]]:
        """(The shape of each machine, one machine for each new shape, the labels of machines whose labels changed.)

        New shapes have no number yet, so they count down from -1.
        """
        guesses = self.shape.view[rows] if len(self.ids) else rows
        labels = [self._labels[row] if row >= 0 else None for row in rows.tolist()]
        shapes = np.array(self.shapes.guess(machines, guesses.tolist(), labels), np.int64)
        seen: dict[tuple[object, ...], int] = {}
        checked: set[int] = set()
        relabelled: dict[int, Mapping[str, str]] = {}
        fresh: list[Machine] = []
        for i in np.flatnonzero(shapes == NOBODY).tolist():
            m = machines[i]
            if id(m.labels) not in checked:
                check_labels(m)
                checked.add(id(m.labels))
            relabelled[i] = m.labels
            # Equal objects of one batch are often the same object, and they all live as long as the batch.
            key = (id(m.labels), id(m.resources), id(m.allocatable), m.instance_type, m.zone, m.capacity_type)
            shape = seen.get(key)
            if shape is None:
                shape = self.shapes.find(m)
                if shape == NOBODY:
                    check_amounts(m)
                    fresh.append(m)
                    shape = -len(fresh)
                seen[key] = shape
            shapes[i] = shape
        return shapes, fresh, relabelled

    def _write(self, batch: Batch) -> None:
        columns, shape = batch.columns, batch.shapes
        if batch.new_shapes:
            new = np.array([self.shapes.intern(machine) for machine in batch.new_shapes], np.int64)
            unknown = shape < 0
            shape[unknown] = new[-1 - shape[unknown]]
        cluster, committed = self._clusters(batch.clusters), self._clusters(batch.committed)
        bound = _bound(columns["state"], columns["flags"], cluster, committed)
        columns |= {"shape": shape, "cluster": cluster, "bound": bound, "stamped_for": self._stamped_for(batch)}
        columns["offer"] = self._offer(columns)
        rows, news = self._place(batch)
        for i, labels in batch.relabelled.items():
            self._labels[rows[i]] = self.shapes.shared(int(shape[i]), labels)
        named = {"stamped_for": self.keys, "offer": self._offers}
        for name, values in columns.items():
            column = getattr(self, name)
            differs = column.view[rows] != values
            if not differs.any():
                continue
            news[differs] |= _NEWS.get(name, _CHANGED)
            column.write(rows, values)
            if name in named:
                named[name].ended(int(np.count_nonzero(differs)))
        self._news.view[rows] |= news

    def _clusters(self, ids: Sequence[str]) -> Array:
        numbers = {name: self.clusters.intern(name) if name else NOBODY for name in dict.fromkeys(ids)}
        return np.array([numbers[name] for name in ids], np.int64)

    def _stamped_for(self, batch: Batch) -> Array:
        known = self.keys.values
        guesses = self.stamped_for.view[batch.rows].tolist() if len(self.ids) else [NOBODY] * len(batch.ids)
        own = np.array(
            [
                guess if guess >= 0 and ((k := known[guess]) is key or k == key) else NOBODY
                for key, guess in zip(batch.keys, guesses, strict=True)
            ],
            np.int64,
        )
        seen = {id(NO_STAMP.key): NOBODY}
        for i in np.flatnonzero(own == NOBODY).tolist():
            key = batch.keys[i]
            number = seen.get(id(key))
            if number is None:
                number = seen[id(key)] = self.keys.intern(key)
            own[i] = number
        return own

    def _offer(self, columns: dict[str, Array]) -> Array:
        """The offer of each machine: equal for machines that differ in nothing by which needs choose."""
        terms = self._terms.intern_all(((columns["price"] << 20) + columns["probability"]).tolist())
        offers = (columns["shape"] << 40) + (columns["stamp_reclamation"] << 32) + terms
        return self._offers.intern_all(offers.tolist())

    def _place(self, batch: Batch) -> tuple[Array, Array]:
        """(The rows of these machines, what is new about each.) A machine without a row gets a vacant or new one."""
        rows, fresh = batch.rows, np.flatnonzero(batch.rows == NOBODY)
        news = np.zeros(len(rows), np.uint8)
        if len(fresh):
            vacant = np.flatnonzero(self.state.view == VACANT)[: len(fresh)]
            size = len(self.ids) + len(fresh) - len(vacant)
            rows[fresh] = np.concatenate((vacant, np.arange(len(self.ids), size)))
            for column in (*self._columns, self.rank, self._news):
                column.resize(size)
            self._labels.extend([_NO_LABELS] * (size - len(self._labels)))
            self.ids.place([batch.ids[i] for i in fresh.tolist()], rows[fresh])
            self._size += len(fresh)
            news[fresh] = _CHANGED | _MOVED | _RENAMED
        return rows, news


_NEWS = {
    "shape": _CHANGED | _MOVED,
    "stamped_for": _CHANGED | _MOVED,
    "bound": _CHANGED | _MOVED,
    "binding": _CHANGED | _MOVED,
}


def _alike(one: Array, other: Array) -> tuple[Array, Array]:
    """Distinct pairs of numbers in the order of their first places: (those places, for each place which pair it is)."""
    _, other = np.unique(other, return_inverse=True)
    _, first, pair = np.unique(other.reshape(-1) << 32 | one, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return first[order], number[pair.reshape(-1)]


def _bound(state: Array, flags: Array, cluster: Array, committed: Array) -> Array:
    """The cluster that a machine counts for: the one it is committed to, else the one that it runs in."""
    runs = ((state == MachineState.CONFIGURED) | (state == MachineState.CONFIGURING)) & (flags & NOT_READY == 0)
    bound = np.where(committed != NOBODY, committed, np.where(runs, cluster, NOBODY))
    return np.where(state == MachineState.FAILED, NOBODY, bound)
