"""An array file that grows at its end; its length is written last."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from evergraph.core.mapped import disk_is_enough

if TYPE_CHECKING:
    from typing_extensions import Self


class AppendedArray:
    """Writes an ``.npy`` file in pieces, without holding it in memory or knowing its length.

    The header has a fixed size, so it is overwritten at the end of the ``with`` block. Until then,
    and after an error, it declares an empty array.

    path: the file. dtype: type of the values. width: values per row; without it the array is flat.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with AppendedArray(Path(folder, "a.npy"), np.int32) as array:
    ...         array.append(np.array([4, 5]))
    ...         array.append(np.array([6]))
    ...     np.load(Path(folder, "a.npy")).tolist()
    [4, 5, 6]
    """

    def __init__(self, path: Path, dtype: type[np.number], *, width: int | None = None) -> None:
        self.path, self.dtype, self.width = path, np.dtype(dtype), width
        self.length = 0
        with disk_is_enough(path):
            self._file = path.open("wb", buffering=0)
            self._write_header()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        with self._file:
            if error is None:
                with disk_is_enough(self.path):
                    self._file.seek(0)
                    self._write_header()
                    os.fsync(self._file.fileno())

    def append(self, values: NDArray[np.number]) -> None:
        """Append values.  [rows] or [rows, width]"""
        with disk_is_enough(self.path):
            self._write(np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8).data)
        self.length += len(values)

    def _write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest.nbytes:  # the system may write less than it is given
            rest = rest[self._file.write(rest) :]

    def _write_header(self) -> None:
        shape = (self.length,) if self.width is None else (self.length, self.width)
        about = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        held = io.BytesIO()
        npy.write_array_header_1_0(held, about)
        self._write(held.getvalue())
