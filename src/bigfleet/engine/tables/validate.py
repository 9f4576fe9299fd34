"""Validating machine records: each is checked, and the fields of all of them become columns of numbers."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigfleet.engine.codes import COMMITTED, EMPTY, NOBODY, NOT_READY, PROTECTED, STAMPED, UNREQUESTED
from bigfleet.engine.records import MAX_TIME, MachineRecord, Stakes, Stamp
from bigfleet.engine.tables.arrays import MAX_ID, Array, is_utf8
from bigfleet.model.demand.need import NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import INT32_MAX, INT32_MIN
from bigfleet.model.machine import INVARIANTS, InvariantError, Machine, check_invariants
from bigfleet.model.resources import MAX_UNITS, PODS

MAX_PRICE = 500_000.0
"""Dollars an hour. A higher price could not be weighed against a penalty without losing digits."""

MAX_PODS = 2**20
"""Pods on one machine. Every unit takes one, so no sum of units over 5,000,000 machines reaches 2**43."""

MAX_NUMBER = 2**62 - 1
"""The highest number of a binding."""


class RecordError(ValueError):
    """A machine record that is refused; names the machine and the field."""

    def __init__(self, machine_id: str, field: str, problem: str) -> None:
        self.machine_id, self.field = machine_id, field
        super().__init__(f"machine {machine_id!r}: {field}: {problem}")


class Batch(NamedTuple):
    """Records that have been checked, by column. A negative row or shape has no number yet."""

    ids: list[str]
    rows: Array
    shapes: Array
    new_shapes: list[Machine]
    relabelled: dict[int, Mapping[str, str]]
    clusters: Sequence[str]
    committed: Sequence[str]
    keys: Sequence[NeedKey]
    columns: dict[str, Array]


class _Status(dict[tuple[Any, ...], int]):
    """State and flags of a record as one number, by which of its fields are set; -1 if its state forbids that."""

    def __missing__(self, fact: tuple[Any, ...]) -> int:
        state, no_host, no_error, no_cluster, no_commitment, empty, protected, not_ready, no_stamp, requested = fact
        rule = INVARIANTS[state]
        if not (rule.host.admits(not no_host) and rule.cluster.admits(not no_cluster)):
            return NOBODY
        if not rule.last_error.admits(not no_error):
            return NOBODY
        flags = (
            (EMPTY if empty else 0)
            | (PROTECTED if protected else 0)
            | (NOT_READY if not_ready else 0)
            | (0 if requested else UNREQUESTED)
            | (0 if no_commitment else COMMITTED)
            | (0 if no_stamp else STAMPED)
        )
        status = self[fact] = state * 256 + flags
        return status


_STATUS = _Status()
_AT_ONCE = 512
"""Records that are read at a time, while they are near in memory."""
NO_STAMP = Stamp(NeedKey("", "", ()), 0, PenaltyBucket.ZERO, PenaltyBucket.ZERO, 0)
"""The stamp that a record without one is read with."""
_BUCKETS = (PenaltyBucket.ZERO * 257, PenaltyBucket.PINNED * 257)
"""Bounds for two buckets in one number, the first times 256."""

_WHOLE = (
    ("drain_seconds", "drain_seconds", 0, INT32_MAX),
    ("not_before", "not_before", -MAX_TIME, MAX_TIME),
    ("idle_since", "idle_since", -MAX_TIME, MAX_TIME),
    ("hold_until", "reclaim_hold_until", -MAX_TIME, MAX_TIME),
    ("binding", "stamp.number", 0, MAX_NUMBER),
    ("stamp_priority", "stamp.priority", INT32_MIN, INT32_MAX),
    ("stamp_buckets", "stamp", *_BUCKETS),
)
"""Whole numbers of a record: the column, the field, the lowest and the highest value."""


def ids_of(machines: Sequence[Machine]) -> list[str]:
    """The ids of machines; RecordError for an id that is empty or too long."""
    ids = [machine.id for machine in machines]
    lengths = list(map(len, ids))
    if not min(lengths) or max(lengths) * 4 > MAX_ID:
        bad = next(name for name in ids if not 0 < len(name) * 4 <= MAX_ID)
        raise RecordError(bad, "id", f"is empty or longer than {MAX_ID // 4} characters")
    return ids


def fields_of(
    ids: Sequence[str], batch: Sequence[MachineRecord]
) -> tuple[list[str], list[str], list[NeedKey], dict[str, Array]]:
    """(Clusters, clusters committed to, need keys, columns of numbers) of these records; RecordError for a bad one."""
    known, clusters, committed, keys, price, probability, *numbers, unrequested = _fields(batch)
    status = np.array(known, np.int64)
    if status.min() < 0:
        _refuse_state(batch[int(status.argmin())].machine)
    columns = {"state": status >> 8, "flags": status & 255, **_offered(ids, price, probability)}
    for (name, field, low, high), values in zip(_WHOLE, numbers, strict=True):
        columns[name] = _column(ids, field, values, np.int64, low, high)
    columns |= _stakes(ids, unrequested)
    for name in ("stamp", "stakes"):
        buckets = columns.pop(f"{name}_buckets")
        columns[f"{name}_interruption"], columns[f"{name}_reclamation"] = buckets >> 8, buckets & 255
    return clusters, committed, keys, columns


def _fields(batch: Sequence[MachineRecord]) -> list[list[Any]]:
    """The values of these records, field by field."""
    columns: list[list[Any]] = [[] for _ in range(7 + len(_WHOLE))]
    for start in range(0, len(batch), _AT_ONCE):
        rows = [
            (
                _STATUS[
                    m.state, m.host is None, not m.last_error, not m.cluster, not r.committed_to,
                    r.empty, r.protected, r.not_ready, r.stamp is None, r.unrequested is None,
                ],
                m.cluster, r.committed_to, s.key, m.price_per_hour, m.interruption_probability,
                r.drain_seconds, r.not_before, r.idle_since, r.reclaim_hold_until,
                s.number, s.priority, (s.interruption << 8) + s.reclamation, r.unrequested,
            )
            for r in batch[start : start + _AT_ONCE]
            for m, s in ((r.machine, r.stamp or NO_STAMP),)
        ]  # fmt: skip
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            column.extend(values)
    return columns


def _stakes(ids: Sequence[str], unrequested: Sequence[Stakes | None]) -> dict[str, Array]:
    """The stakes of pods that no request speaks for; few machines have such pods."""
    priority = np.zeros(len(ids), np.int64)
    buckets = np.full(len(ids), _BUCKETS[0])
    rows = [i for i, stakes in enumerate(unrequested) if stakes is not None]
    if rows:
        given = [stakes for stakes in unrequested if stakes is not None]
        names, both = [ids[i] for i in rows], [(s.interruption << 8) + s.reclamation for s in given]
        field = "unrequested.priority"
        priority[rows] = _column(names, field, [s.priority for s in given], np.int64, INT32_MIN, INT32_MAX)
        buckets[rows] = _column(names, "unrequested", both, np.int64, *_BUCKETS)
    return {"stakes_priority": priority, "stakes_buckets": buckets}


def _refuse_state(machine: Machine) -> None:
    try:
        check_invariants(machine)
    except InvariantError as error:
        raise RecordError(machine.id, error.field, error.problem) from None


def check_labels(machine: Machine) -> None:
    """Raise RecordError for a label that cannot be written."""
    for label, value in machine.labels.items():
        if not is_utf8(label) or not is_utf8(value):
            raise RecordError(machine.id, f"labels[{label!r}]", "must be text that UTF-8 can write")


def check_amounts(machine: Machine) -> None:
    """Raise RecordError for an amount of a resource that is out of bounds."""
    field = "resources" if machine.allocatable is None else "allocatable"
    for name, amount in machine.usable:
        most = MAX_PODS if name == PODS else MAX_UNITS
        if not isinstance(amount, int) or not 0 <= amount <= most:
            raise RecordError(machine.id, f"{field}[{name!r}]", f"is {amount}, but must lie between 0 and {most}")


def _offered(ids: Sequence[str], price: Sequence[float], probability: Sequence[float]) -> dict[str, Array]:
    prices = _column(ids, "price_per_hour", price, np.float64, 0, MAX_PRICE)
    chances = _column(ids, "interruption_probability", probability, np.float64, 0, 1)
    return {
        "price": np.rint(prices * 1e6).astype(np.int64),
        # Rounded up, so that a machine that can be interrupted at all never counts as one that cannot.
        "probability": np.maximum(-(-np.rint(chances * 1e9).astype(np.int64) // 1000), chances > 0),
    }


def _column(
    ids: Sequence[str],
    field: str,
    values: Sequence[float],
    dtype: type[np.int64] | type[np.float64],
    low: float,
    high: float,
) -> Array:
    """One field of all records; RecordError for the first value that is not whole or out of bounds, as NaN is."""
    try:
        # An array of the standard library takes whole numbers only. numpy would cut others off, or be slow.
        column = np.array(values, dtype) if dtype is np.float64 else np.frombuffer(array("q", values), dtype)
    except (TypeError, OverflowError):
        column = np.full(1, np.nan)
    if len(column) and not (column.min() >= low and column.max() <= high):
        for name, value in zip(ids, values, strict=True):
            if not low <= value <= high:
                raise RecordError(name, field, f"is {value}, but must lie between {low} and {high}")
            if dtype is np.int64 and not isinstance(value, int):
                raise RecordError(name, field, f"is {value}, but must be a whole number")
    return column
