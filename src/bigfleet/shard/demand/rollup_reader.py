"""Reads roll-ups, at the cost of the rows that changed. Roll-ups are refused that the engine would refuse later."""

import hashlib
from collections.abc import Iterable

import msgspec

from bigfleet.engine.tables.needs import MAX_ASKED
from bigfleet.model.demand.need import Need, NeedKey, Rollup
from bigfleet.model.resources import ResourceError, total
from bigfleet.wire.errors import WireError
from bigfleet.wire.needs import need_from_wire, rollup_from_wire
from bigfleet.wire.v1alpha1 import capacity_pb2

MAX_NAMES = 64
"""How many kinds of resources one roll-up may name. The engine has a column for each."""


class RollupReader:
    """Turns one operator's roll-ups into the model's, at the cost of the rows that changed.

    Roll-ups come every ten seconds and hardly differ. A row is known by a digest of its bytes, which costs far less
    than reading the row. Equal rows are the same object, so that comparing two roll-ups costs next to nothing.
    """

    def __init__(self) -> None:
        self._digest = b""
        self._last: Rollup | WireError | None = None
        self._rows: dict[bytes, Need] = {}

    def read(self, message: capacity_pb2.ClusterCapacityNeeds) -> Rollup:
        """The roll-up that a message carries, or WireError. The message cannot be read again."""
        said_at = message.timestamp_unix_nanos
        message.timestamp_unix_nanos = 0
        digest = _digest(message)
        if self._last is None or digest != self._digest:
            self._digest = digest
            try:
                self._last = self._read(message)
            except WireError as error:
                self._last = error
        if isinstance(self._last, WireError):
            raise WireError(self._last.path, self._last.problem)
        return msgspec.structs.replace(self._last, timestamp_unix_nanos=said_at)

    def _read(self, message: capacity_pb2.ClusterCapacityNeeds) -> Rollup:
        rows: dict[bytes, Need] = {}
        needs = []
        for i, row in enumerate(message.needs):
            digest = _digest(row)
            need = self._rows.get(digest)
            if need is None:
                try:
                    need = need_from_wire(row)
                except WireError as error:
                    raise WireError(f"needs[{i}].{error.path.removeprefix('need.')}", error.problem) from None
            rows[digest] = need
            needs.append(need)
        _check_rows(needs, frozenset(map(id, self._rows.values())))
        message.ClearField("needs")
        rollup = msgspec.structs.replace(rollup_from_wire(message), needs=tuple(needs))
        self._rows = rows
        return rollup


def _check_rows(needs: Iterable[Need], known: frozenset[int]) -> None:
    """Raise WireError for rows that the engine would refuse, before the roll-up is acknowledged.

    `known` are the ids of rows that were checked before.
    """
    rows: dict[NeedKey, Need] = {}
    names: set[str] = set()
    for i, need in enumerate(needs):
        key = need.key
        names.update(name for name, _ in need.aggregate)
        if len(names) > MAX_NAMES:
            raise WireError(f"needs[{i}]", f"with it the roll-up names over {MAX_NAMES} kinds of resources")
        twin = rows.get(key)
        try:
            rows[key] = need if twin is None else _summed(twin, need)
        except ResourceError as error:
            raise WireError(f"needs[{i}]", f"equal rows cannot be summed: {error}") from None
        if twin is None and id(need) in known:
            continue
        if rows[key].units > MAX_ASKED:
            raise WireError(f"needs[{i}]", f"asks for {rows[key].units} units, more than {MAX_ASKED}")
        if "\0" in key.group or any("\0" in name for name, _ in key.unit):
            raise WireError(f"needs[{i}]", "has a NUL in its group or in a resource's name")


def _summed(one: Need, other: Need) -> Need:
    return Need(one.profile, total([(one.aggregate, 1), (other.aggregate, 1)]), one.unit, one.group)


def _digest(message: capacity_pb2.ClusterCapacityNeeds | capacity_pb2.CapacityNeed) -> bytes:
    return hashlib.blake2b(message.SerializeToString(deterministic=True), digest_size=16).digest()
