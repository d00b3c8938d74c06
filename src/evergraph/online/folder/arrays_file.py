"""Arrays in a safetensors file, written and read without being in memory as a whole."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.mapped import MappedTensor
from evergraph.online.pieces import PIECE, Pieces, split

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_LENGTH = 8  # bytes that tell how long the header is


def write_arrays(path: Path, arrays: Mapping[str, Tensor | Pieces]) -> str:
    """Write arrays a piece at a time; return the SHA-256 of the file.

    The file is what ``safetensors`` writes and reads: the length of a header, the header (JSON:
    dtype, shape and place of each array), and all values. Nothing waits for the disk.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header, place = {}, 0
    for name in order:
        value = arrays[name]
        size = math.prod(value.shape) * value.dtype.itemsize
        header[name] = _entry(value, place, place + size)
        place += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)  # what follows is aligned, widest values first
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for head in (len(text).to_bytes(_LENGTH, "little"), text):
            _write(file, digest, memoryview(head))
        for name in order:
            for piece in split(arrays[name]):
                _write(file, digest, _bytes(piece))
        assert file.tell() == _LENGTH + len(text) + place, "pieces are as long as they said"
    return digest.hexdigest()


def _entry(value: Tensor | Pieces, start: int, end: int) -> dict[str, Any]:
    return {
        "dtype": _NAMES[value.dtype],
        "shape": list(value.shape),
        "data_offsets": [start, end],
    }


def _bytes(piece: Tensor) -> memoryview:
    values = piece.as_subclass(Tensor).contiguous()
    flat = values.as_strided((values.numel(),), (1,))  # whatever the stride of none or one value is
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def _write(file: Any, digest: Any, data: memoryview) -> None:
    digest.update(data)
    while len(data):
        data = data[file.write(data) :]


def read_arrays(path: Path) -> dict[str, Tensor]:
    """Return the arrays of a file by name: small ones in memory, others mapped.

    What is written to a mapped one stays in this process. A file that is removed stays readable
    until nothing of it is looked at any more.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_arrays(Path(folder, "a"), {"ones": torch.ones(2)})
    ...     read_arrays(Path(folder, "a"))
    {'ones': tensor([1., 1.])}
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        return {name: _read(path, _LENGTH + length, facts) for name, facts in header.items()}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise DataError(f"{path}: is no safetensors file ({error})") from error


def _read(path: Path, begin: int, facts: Mapping[str, Any]) -> Tensor:
    dtype, shape = _DTYPES[facts["dtype"]], tuple(facts["shape"])
    start, end = facts["data_offsets"]
    if start == end:
        return torch.empty(shape, dtype=dtype)
    if end - start <= PIECE:
        flat = torch.from_numpy(np.fromfile(path, np.uint8, end - start, offset=begin + start))
        return flat.view(dtype).reshape(shape)
    mapped = np.memmap(path, np.uint8, "c", offset=begin + start, shape=(end - start,))
    values = torch.from_numpy(mapped).view(dtype).reshape(shape)
    found: MappedTensor = values.as_subclass(MappedTensor)
    return found
