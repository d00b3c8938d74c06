"""Values on their way to another process: arrays as arrays, files as paths."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.engine import Columns
from evergraph.core.mapped import MappedTensor, map_array


@dataclass(frozen=True, eq=False)
class _Array:
    """A dense tensor; numpy arrays need not be copied by who reads them."""

    values: npt.NDArray[Any]
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class _Csr:
    """A sparse matrix."""

    parts: tuple[_Array, _Array, _Array]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _File:
    """A mapped array, to be mapped again where it arrives."""

    path: Path


@dataclass(frozen=True, eq=False)
class _Record:
    """A dataclass and its fields."""

    kind: type
    values: dict[str, Any]


def pack(value: Any, *, by_path: Callable[[Path], bool] = lambda path: True) -> Any:
    """Return a value with every tensor in it as a numpy array, or as the file it lies in.

    Looks into records, dictionaries, lists and tuples; all else stays as it is. Tensors of a GPU
    come to memory. by_path: whether the receiver can open a file.
    """
    if isinstance(value, Tensor):
        return _packed_tensor(value, by_path)
    if isinstance(value, Columns) and _travels_dense(value.array, by_path):
        value = value.sent()
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        return _Record(type(value), pack(held, by_path=by_path))
    if type(value) is dict:
        return {key: pack(part, by_path=by_path) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(pack(part, by_path=by_path) for part in value)
    return value


def unpack(value: Any) -> Any:
    """Return what was packed.

    Arrays share the memory that they came in: they are to be read, not written.

    >>> unpack(pack({"a": torch.arange(3), "b": ["text"]}))
    {'a': tensor([0, 1, 2]), 'b': ['text']}
    """
    if isinstance(value, _Array):
        return _tensor(value)
    if isinstance(value, _Csr):
        return _matrix(*(_tensor(part) for part in value.parts), shape=value.shape)
    if isinstance(value, _File):
        return map_array(value.path)
    if isinstance(value, _Record):
        record: Any = object.__new__(value.kind)
        for name, part in value.values.items():
            object.__setattr__(record, name, unpack(part))
        return record
    if type(value) is dict:
        return {key: unpack(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(unpack(part) for part in value)
    return value


def packed_bytes(value: Any) -> int:
    """Return how many bytes of arrays a packed value holds.

    >>> packed_bytes(pack({"a": torch.zeros(2), "b": [torch.zeros(3)], "c": "text"}))
    20
    """
    if isinstance(value, _Array):
        return int(value.values.nbytes)
    if isinstance(value, _Csr):
        return sum(map(packed_bytes, value.parts))
    if isinstance(value, _Record):
        return packed_bytes(value.values)
    parts = value.values() if type(value) is dict else value
    return sum(map(packed_bytes, parts)) if type(value) in (dict, list, tuple) else 0


def _packed_tensor(tensor: Tensor, by_path: Callable[[Path], bool]) -> _Array | _Csr | _File:
    file = _packed_file(tensor, by_path)
    if file is not None:
        return file
    if tensor.layout == torch.sparse_csr:
        parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        first, second, third = (_array(part) for part in parts)
        return _Csr((first, second, third), tuple(tensor.shape))
    return _array(tensor)


def _packed_file(tensor: Tensor, by_path: Callable[[Path], bool]) -> _File | None:
    if isinstance(tensor, MappedTensor) and tensor.path is not None and by_path(tensor.path):
        return _File(tensor.path)
    return None


def _travels_dense(tensor: Tensor, by_path: Callable[[Path], bool]) -> bool:
    return tensor.layout == torch.strided and _packed_file(tensor, by_path) is None


def _array(tensor: Tensor) -> _Array:
    plain = tensor.detach().cpu().as_subclass(Tensor)
    # numpy has no bfloat16: its bytes travel as integers.
    values = plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain
    return _Array(values.numpy(), plain.dtype)


def _tensor(array: _Array) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the array is read-only: so it is
        values = torch.from_numpy(array.values)
    return values.view(array.dtype) if array.dtype == torch.bfloat16 else values


def _matrix(indptr: Tensor, indices: Tensor, values: Tensor, *, shape: tuple[int, ...]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch's CSR tensors are in beta
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape, check_invariants=False)
