"""An array in a file that grows at its end and learns its length last."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from evergraph.core.mapped import disk_is_enough


class AppendedArray:
    """Writes an ``.npy`` file piece by piece, without holding it or knowing its length.

    The header has one size whatever the length is, so it is written over at the end. Until then
    the header says that there is nothing.

    Args:
        path: the file.
        dtype: of the values.
        width: how many values a row has; without it the array is flat.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     array = AppendedArray(Path(folder, "a.npy"), np.int32)
    ...     array.append(np.array([4, 5]))
    ...     array.append(np.array([6]))
    ...     array.finish()
    ...     np.load(Path(folder, "a.npy")).tolist()
    [4, 5, 6]
    """

    def __init__(self, path: Path, dtype: type[np.number], *, width: int | None = None) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self.width = width
        self.length = 0
        with disk_is_enough(path):
            self._file = path.open("wb", buffering=0)
            self._write(self._header(0))

    def append(self, values: NDArray[np.number]) -> None:
        """Write values behind those that are there.  [rows] or [rows, width]"""
        with disk_is_enough(self.path):
            self._write(np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8).data)
        self.length += len(values)

    def finish(self) -> None:
        """Write how long the array is, and close the file."""
        with disk_is_enough(self.path):
            self._file.seek(0)
            self._write(self._header(self.length))
            os.fsync(self._file.fileno())
        self.close()

    def close(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def _write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest.nbytes:  # the system may take less at a time than it is given
            rest = rest[self._file.write(rest) :]

    def _header(self, length: int) -> bytes:
        shape = (length,) if self.width is None else (length, self.width)
        about = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        held = io.BytesIO()
        npy.write_array_header_1_0(held, about)
        return held.getvalue()
