"""Revisions: which machines changed after a cursor, at a cost that grows with the number of changes.

A cursor names the process that gave it. For a cursor of an earlier process, as for garbage, all machines are returned:
the earlier process may have given a cursor for a change that a crash took back.
"""

import secrets
from array import array
from bisect import bisect_right
from collections.abc import Iterator

_PROCESS_BYTES = 8
_NUMBER_BYTES = 8
# Old rows are dropped once they outnumber the machines by this much, so that the cost is spread over many changes.
_SLACK = 1024


class Revisions:
    """Machine ids in the order of their last change."""

    def __init__(self) -> None:
        self._process = secrets.token_bytes(_PROCESS_BYTES)
        self._last = 0
        self._of: dict[str, int] = {}
        self._numbers = array("q")
        self._ids: list[str] = []

    def bump(self, machine: str) -> None:
        """The machine changed now."""
        self._last += 1
        self._of[machine] = self._last
        self._numbers.append(self._last)
        self._ids.append(machine)
        if len(self._ids) > 2 * len(self._of) + _SLACK:
            self._compact()

    def forget(self, machine: str) -> None:
        """The machine is not there any more."""
        self._of.pop(machine, None)

    def since(self, cursor: bytes) -> Iterator[tuple[int, str]]:
        """(revision, machine) of each machine whose last change came after the cursor, oldest change first."""
        start = bisect_right(self._numbers, self._number(cursor))
        of, numbers, ids = self._of, self._numbers, self._ids
        for at in range(start, len(ids)):
            if of.get(ids[at]) == numbers[at]:
                yield numbers[at], ids[at]

    def cursor(self, number: int | None = None) -> bytes:
        """The cursor right after this revision, or after the last change."""
        return self._process + (self._last if number is None else number).to_bytes(_NUMBER_BYTES, "big")

    def _number(self, cursor: bytes) -> int:
        if len(cursor) != _PROCESS_BYTES + _NUMBER_BYTES or cursor[:_PROCESS_BYTES] != self._process:
            return 0
        number = int.from_bytes(cursor[_PROCESS_BYTES:], "big")
        return number if number <= self._last else 0

    def _compact(self) -> None:
        live = [
            (number, machine)
            for number, machine in zip(self._numbers, self._ids, strict=True)
            if self._of.get(machine) == number
        ]
        self._numbers = array("q", (number for number, _ in live))
        self._ids = [machine for _, machine in live]
