"""Arrays that grow, and names as numbers: the storage under every table of the engine."""

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

UNKNOWN = -1
"""The number of a value that was never numbered."""

_FIRST = 16
"""Entries that an array has room for at first."""
_FEW = 1024
"""So few names are never worth compacting."""
_FREE, _GONE = -1, -2
"""In the hash table of `Ids`: a slot that was never used, and one whose string was removed."""
_SPAN = 2**16
"""A span is where a string starts times this, plus how many bytes it has."""
_UTF8 = ("utf-8", "surrogatepass")

MAX_ID = _SPAN - 1
"""Bytes of the longest string that `Ids` holds."""


class Column:
    """A one-dimensional array with room to append; `view` is the part in use, not a copy."""

    __slots__ = ("_data", "_fill", "_size")

    def __init__(self, dtype: npt.DTypeLike, fill: int = 0) -> None:
        self._data: Array = np.full(_FIRST, fill, dtype=dtype)
        self._size = 0
        self._fill = fill

    def __len__(self) -> int:
        return self._size

    @property
    def view(self) -> Array:
        """What has been appended so far."""
        return self._data[: self._size]

    def append(self, value: int) -> int:
        """Add one value and return its index."""
        index = self._size
        self.resize(index + 1)
        self._data[index] = value
        return index

    def put(self, index: int, value: int) -> None:
        """Change one value."""
        self._data[index] = value

    def write(self, indices: Array, values: Array) -> None:
        """Change some values."""
        self._data[indices] = values

    def resize(self, size: int) -> None:
        """Make room up to `size`; what is new holds the fill value."""
        if size > len(self._data):
            room = max(size, len(self._data) + len(self._data) // 8 + _FIRST)
            grown = np.full(room, self._fill, dtype=self._data.dtype)
            grown[: self._size] = self._data[: self._size]
            self._data = grown
        self._size = max(self._size, size)

    def reset(self, indices: Array) -> None:
        """Give the fill value back to some of what is in use."""
        self._data[indices] = self._fill


class NarrowColumn(Column):
    """A column with entries as narrow as their values allow: it is widened when a value comes that does not fit.

    Most columns of times hold nothing but 0, and most prices and numbers are far below their bounds.
    """

    __slots__ = ()

    def __init__(self, fill: int = 0) -> None:
        super().__init__(np.int8, fill)

    def write(self, indices: Array, values: Array) -> None:
        """Change some values."""
        if len(values):
            self._admit(int(values.min()), int(values.max()))
        super().write(indices, values)

    def _admit(self, least: int, most: int) -> None:
        held = self._data.dtype
        for dtype in (held, np.int16, np.int32, np.int64):
            bounds = np.iinfo(dtype)
            if bounds.min <= least and most <= bounds.max:
                self._data = self._data.astype(dtype, copy=False)
                return


class Names:
    """Strings or other values and their numbers, found both ways."""

    def __init__(self) -> None:
        self._ids: dict[object, int] = {}
        self.values: list[object] = []
        self._retired = 0

    def __len__(self) -> int:
        return len(self.values)

    def find(self, value: object) -> int:
        """The number of a value, UNKNOWN if it has none."""
        return self._ids.get(value, UNKNOWN)

    def intern(self, value: object) -> int:
        """The number of a value; a new value gets the next number."""
        number = self._ids.get(value)
        if number is None:
            number = self._ids[value] = len(self.values)
            self.values.append(value)
        return number

    def intern_all(self, values: Sequence[object]) -> Array:
        """The numbers of many values; quick if most have one already."""
        numbers = list(map(self._ids.get, values, itertools.repeat(UNKNOWN)))
        found = np.array(numbers, np.int64)
        unknown = np.flatnonzero(found == UNKNOWN)
        fresh = [values[i] for i in unknown.tolist()]
        for value in dict.fromkeys(fresh):
            self.intern(value)
        found[unknown] = list(map(self._ids.__getitem__, fresh))
        return found

    def ended(self, uses: int) -> None:
        """Count so many uses of values that have ended; each may have been the last use of its value."""
        self._retired += uses

    def mostly_retired(self, *columns: Array) -> bool:
        """Whether most values are used in none of these columns. It is counted only once enough uses have ended."""
        if len(self) <= _FEW or 2 * self._retired <= len(self):
            return False
        self._retired = len(self) - int(np.count_nonzero(self._used(columns)))
        return 2 * self._retired > len(self)

    def compact(self, *columns: Array) -> npt.NDArray[np.bool_]:
        """Forget values that none of these columns uses, and give the rest new numbers there; which were kept."""
        used = self._used(columns)
        numbers = np.append(np.where(used, np.cumsum(used) - 1, UNKNOWN), UNKNOWN)
        for column in columns:
            column[:] = numbers[column]
        self.values = [self.values[number] for number in np.flatnonzero(used).tolist()]
        self._ids = {value: number for number, value in enumerate(self.values)}
        self._retired = 0
        return used

    def _used(self, columns: Sequence[Array]) -> npt.NDArray[np.bool_]:
        used = np.zeros(len(self) + 1, np.bool_)
        for column in columns:
            used[column] = True
        # An entry without a value is -1, which is the last place here.
        return used[:-1]


class Grid:
    """A two-dimensional array that grows in both directions; `view` is the part in use."""

    __slots__ = ("_columns", "_data", "_fill", "_rows")

    def __init__(self, dtype: npt.DTypeLike, fill: int = 0, columns: int = 0) -> None:
        self._data: Array = np.full((_FIRST, max(4, columns)), fill, dtype=dtype)
        self._fill = fill
        self._rows, self._columns = 0, columns

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns in use."""
        return self._rows, self._columns

    @property
    def data(self) -> npt.NDArray[Any]:
        """All of it, the part not in use yet included."""
        return self._data

    @property
    def view(self) -> Array:
        """The part in use."""
        return self._data[: self._rows, : self._columns]

    def keep(self, rows: npt.NDArray[np.bool_]) -> None:
        """Drop all other rows."""
        kept = self.view[rows]
        self._rows = len(kept)
        self._data[: self._rows, : self._columns] = kept
        self._data[self._rows :] = self._fill

    def resize(self, rows: int, columns: int) -> None:
        """Make room for so many rows and columns; what is new holds the fill value."""
        rows, columns = max(rows, self._rows), max(columns, self._columns)
        have_rows, have_columns = self._data.shape
        if rows > have_rows or columns > have_columns:
            new_rows = max(rows, 2 * have_rows) if rows > have_rows else have_rows
            new_columns = max(columns, 2 * have_columns) if columns > have_columns else have_columns
            grown = np.full((new_rows, new_columns), self._fill, dtype=self._data.dtype)
            grown[: self._rows, : self._columns] = self._data[: self._rows, : self._columns]
            self._data = grown
        self._rows, self._columns = rows, columns


class Ids:
    """Strings by row, packed into one array of bytes, and rows by string, in a hash table of rows.

    A list of strings and a dict would take ten times the room.
    """

    __slots__ = ("_spans", "_table", "_text", "_used", "_waste")

    def __init__(self) -> None:
        self._text = Column(np.uint8)
        # Where each row's bytes start and, in the low bits, how many they are; 0 for a vacant row.
        self._spans = Column(np.int64)
        self._table = np.full(_FIRST, _FREE, np.int32)
        self._used = 0
        self._waste = 0

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, row: int) -> str:
        return self.encoded(row).decode(*_UTF8)

    def many(self, rows: Array) -> list[str]:
        """The strings of many rows."""
        return [word.decode(*_UTF8) for word in self.words(rows)]

    def encoded(self, row: int) -> bytes:
        """The row's string as UTF-8, which compares as the strings do."""
        start, size = divmod(int(self._spans.view[row]), _SPAN)
        return self._text.view[start : start + size].tobytes()

    def words(self, rows: Array) -> list[bytes]:
        """The strings of many rows as UTF-8."""
        text = self._text.view.tobytes()
        starts, sizes = np.divmod(self._spans.view[rows], _SPAN)
        return [text[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]

    def find(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """The rows of these strings, -1 for those that have none."""
        return self._probe(names)[0]

    def place(self, names: Sequence[str], rows: npt.NDArray[np.int64]) -> None:
        """Give strings that have no row these rows, which are vacant or new."""
        text, sizes = _packed(names)
        end = len(self._text)
        self._text.resize(end + len(text))
        self._text.view[end:] = text
        self._spans.resize(int(rows.max()) + 1)
        self._spans.view[rows] = (end + np.cumsum(sizes) - sizes) * _SPAN + sizes
        self._used += len(names)
        if self._used * 4 > len(self._table) * 3:
            self._rebuild()
        else:
            self._enter(_hashes(names), rows)

    def remove(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Vacate the rows of these strings; which rows those were. A string without a row is no error."""
        rows, slots = self._probe(list(dict.fromkeys(names)))
        gone = rows[rows >= 0]
        self._table[slots[rows >= 0]] = _GONE
        self._waste += int((self._spans.view[gone] % _SPAN).sum())
        self._spans.reset(gone)
        if self._waste * 2 > len(self._text):
            self._pack()
        return gone

    def _probe(self, names: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(The row of each string, -1 for none; the slot of the hash table where the search for it ended.)"""
        text, sizes = _packed(names)
        starts = np.cumsum(sizes) - sizes
        rows, slots = np.full(len(names), -1, np.int64), _hashes(names) & (len(self._table) - 1)
        left = np.arange(len(names))
        while len(left):
            found = self._table[slots[left]]
            left, found = left[found != _FREE], found[found != _FREE]
            same = found >= 0
            same[same] = self._equal(found[same], text, starts[left[same]], sizes[left[same]])
            rows[left[same]] = found[same]
            left = left[~same]
            slots[left] = (slots[left] + 1) & (len(self._table) - 1)
        return rows, slots

    def _equal(
        self,
        rows: Array,
        text: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.bool_]:
        """Whether the string of each row equals the piece of the text that is given for it."""
        spans = self._spans.view[rows]
        same: npt.NDArray[np.bool_] = (spans % _SPAN == sizes) & (sizes > 0)
        mine, theirs, count = spans[same] // _SPAN, starts[same], sizes[same]
        if len(count):
            first = np.cumsum(count) - count
            step = np.arange(int(count.sum())) - np.repeat(first, count)
            bytes_equal = self._text.view[np.repeat(mine, count) + step] == text[np.repeat(theirs, count) + step]
            same[same] = np.logical_and.reduceat(bytes_equal, first)
        return same

    def _enter(self, hashes: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
        mask = len(self._table) - 1
        slots, left = hashes & mask, np.arange(len(rows))
        while len(left):
            free = left[self._table[slots[left]] == _FREE]
            self._table[slots[free]] = rows[free]
            left = left[self._table[slots[left]] != rows[left]]
            slots[left] = (slots[left] + 1) & mask

    def _rebuild(self) -> None:
        rows = np.flatnonzero(self._spans.view)
        self._used = len(rows)
        self._table = np.full(1 << max(4, (8 * len(rows) // 5).bit_length()), _FREE, np.int32)
        self._enter(_hashes([word.decode(*_UTF8) for word in self.words(rows)]), rows)

    def _pack(self) -> None:
        """Drop the bytes of strings that are gone."""
        rows = np.flatnonzero(self._spans.view)
        words, sizes = self.words(rows), self._spans.view[rows] % _SPAN
        self._text = Column(np.uint8)
        self._text.resize(int(sizes.sum()))
        self._text.view[:] = np.frombuffer(b"".join(words), np.uint8)
        self._spans.view[rows] = (np.cumsum(sizes) - sizes) * _SPAN + sizes
        self._waste = 0


def _packed(names: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Strings as one text in UTF-8, and how many bytes each of them is."""
    joined = "".join(names)
    text = np.frombuffer(joined.encode(*_UTF8), np.uint8)
    sizes = map(len, names) if len(text) == len(joined) else (len(name.encode(*_UTF8)) for name in names)
    return text, np.fromiter(sizes, np.int64, len(names))


def _hashes(names: Sequence[str]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(hash, names), np.int64, len(names))


def places(order: Array, rows: Sequence[int], value: Callable[[int], Any]) -> npt.NDArray[np.int64]:
    """Where to insert each of these rows into an order of rows, which is sorted by value."""
    return np.array([bisect.bisect_left(order, value(row), key=value) for row in rows], np.int64)


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can write the text; it cannot write a lone half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
