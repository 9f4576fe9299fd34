"""Arrays that grow: the storage under every table of the engine."""

from typing import Any

import numpy as np
import numpy.typing as npt

_FIRST = 16


class Column:
    """A one-dimensional array with room to append; `view` is the part in use, not a copy."""

    __slots__ = ("_data", "_fill", "_size")

    def __init__(self, dtype: npt.DTypeLike, fill: int = 0) -> None:
        self._data: npt.NDArray[Any] = np.full(_FIRST, fill, dtype=dtype)
        self._size = 0
        self._fill = fill

    def __len__(self) -> int:
        return self._size

    @property
    def view(self) -> npt.NDArray[Any]:
        """What has been appended so far."""
        return self._data[: self._size]

    def append(self, value: int) -> int:
        """Add one value and return its index."""
        index = self._size
        self.resize(index + 1)
        self._data[index] = value
        return index

    def resize(self, size: int) -> None:
        """Make room up to `size`; what is new holds the fill value."""
        if size > len(self._data):
            grown = np.full(max(size, 2 * len(self._data)), self._fill, dtype=self._data.dtype)
            grown[: self._size] = self._data[: self._size]
            self._data = grown
        self._size = max(self._size, size)


class Grid:
    """A two-dimensional array that grows in both directions; `view` is the part in use."""

    __slots__ = ("_columns", "_data", "_fill", "_rows")

    def __init__(self, dtype: npt.DTypeLike, fill: int = 0, columns: int = 0) -> None:
        self._data: npt.NDArray[Any] = np.full((_FIRST, max(4, columns)), fill, dtype=dtype)
        self._fill = fill
        self._rows, self._columns = 0, columns

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns in use."""
        return self._rows, self._columns

    @property
    def view(self) -> npt.NDArray[Any]:
        """The part in use."""
        return self._data[: self._rows, : self._columns]

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
