"""Arrays of an ``.npz`` archive that are never held as a whole."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from evergraph.core.errors import DataError

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_SKIP = 1 << 24  # bytes


def array_names(archive: Path) -> list[str]:
    """Return which arrays an archive has."""
    with _archive(archive) as opened:
        return [name.removesuffix(".npy") for name in opened.namelist()]


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise DataError(f"{path}: is no .npz archive ({error})") from None


class StreamedArray:
    """One array of an archive, stored or deflated, whose values are read as they come.

    Args:
        archive: an ``.npz`` file.
        name: of the array.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez_compressed(Path(folder, "a.npz"), x=np.arange(6).reshape(2, 3))
    ...     array = StreamedArray(Path(folder, "a.npz"), "x")
    ...     array.shape, [values.tolist() for values in array.values(2, start=1)]
    ((2, 3), [[1, 2], [3, 4], [5]])
    """

    def __init__(self, archive: Path, name: str) -> None:
        self.archive = archive
        self.name = name
        with self._opened() as stream:
            self.shape, self.by_column, self.dtype = self._header(stream)
        self.size = int(np.prod(self.shape, dtype=np.int64))

    def values(
        self, count: int, *, start: int = 0, stop: int | None = None
    ) -> Iterator[NDArray[Any]]:
        """Yield values, ``count`` at a time, in the order of the file: by row, or ``by_column``."""
        stop = self.size if stop is None else stop
        with self._opened() as stream:
            self._header(stream)
            self._skip(stream, start * self.dtype.itemsize)
            for first in range(start, stop, count):
                yield self._read(stream, min(count, stop - first))

    def rows(self, count: int) -> Iterator[NDArray[Any]]:
        """Yield so many rows at a time.  [count, width]"""
        width = self.size // max(self.shape[0], 1)
        if self.by_column and width > 1:
            raise DataError(
                f"{self.archive}: array {self.name!r} is kept column by column: expected rows"
            )
        return (values.reshape(-1, width) for values in self.values(count * width))

    def pairs(self, count: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield so many columns at a time of an array of two rows.  2 x [count]"""
        if self.by_column:
            return ((both[::2], both[1::2]) for both in self.values(2 * count))
        middle = self.size // 2
        return zip(self.values(count, stop=middle), self.values(count, start=middle), strict=True)

    def _opened(self) -> IO[bytes]:
        try:
            return _archive(self.archive).open(f"{self.name}.npy")
        except KeyError:
            raise DataError(f"{self.archive}: has no array {self.name!r}") from None

    def _header(self, stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        version = npy.read_magic(stream)
        shape, by_column, dtype = _HEADERS[version](stream)
        if dtype.hasobject:
            raise DataError(f"{self.archive}: array {self.name!r} holds objects, not numbers")
        return shape, by_column, dtype

    def _skip(self, stream: IO[bytes], size: int) -> None:
        while size:
            size -= len(stream.read(min(size, _SKIP))) or self._cut_short()

    def _read(self, stream: IO[bytes], count: int) -> NDArray[Any]:
        values = np.empty(count, self.dtype)
        rest = memoryview(values.view(np.uint8))  # type: ignore[arg-type]
        while len(rest):
            rest = rest[stream.readinto(rest) or self._cut_short() :]  # type: ignore[attr-defined]
        return values

    def _cut_short(self) -> int:
        raise DataError(f"{self.archive}: array {self.name!r} is cut short")
