"""Largest registers among neighbours, one row after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.graphs.kernels.compiled import in_threads, unsigned

Array = npt.NDArray[Any]


class NumbaMax:
    """Takes maxima over the rows of a CSR matrix in memory or in a file.

    A node by itself fills one register only, so the first hop reads three bytes an entry: the
    register and the rank of a neighbour, not a row of registers.

    indptr: [nodes + 1]; indices: int32 [edges].
    column, rank: which register each node fills, and with what.  int16 [nodes], uint8 [nodes]
    low, width: the first of the registers worked on, and how many they are.
    """

    def __init__(
        self, indptr: Tensor, indices: Tensor, column: Tensor, rank: Tensor, low: int, width: int
    ) -> None:
        self._adjacency = unsigned(indptr), unsigned(indices)
        self._hashes = column.numpy(), rank.numpy(), low
        self._width = width

    def first(self, rows: Tensor) -> Tensor:
        """Return the registers of what each row sees in one hop, itself included.

        rows: int64 [m] -> uint8 [m, width]
        """
        out = np.zeros((len(rows), self._width), dtype=np.uint8)
        costs = self._costs(rows)
        in_threads(fill_first, costs, *self._adjacency, rows.numpy(), *self._hashes, out)
        return torch.from_numpy(out)

    def following(self, rows: Tensor, registers: Tensor) -> Tensor:
        """Return the largest of each register over a row's neighbours and itself.

        rows: int64 [m]; registers: uint8 [nodes, width] -> uint8 [m, width]
        """
        out = registers[rows]
        costs = self._costs(rows)
        in_threads(
            fill_maxima, costs, *self._adjacency, rows.numpy(), registers.numpy(), out.numpy()
        )
        return out

    def sums(self, registers: Tensor, top: int) -> Tensor:
        """Return Σ 2^(top - M) over the registers M that are set, and how many are not.

        registers: uint8 [m, width] -> int64 [2, m]
        """
        sums = np.empty((2, len(registers)), dtype=np.int64)
        in_threads(fill_sums, np.ones(len(registers)), registers.numpy(), top, sums)
        return torch.from_numpy(sums)

    def _costs(self, rows: Tensor) -> Array:
        indptr, places = self._adjacency[0], rows.numpy()
        costs: Array = indptr[places + 1] - indptr[places] + 1
        return costs


def fill_first(
    indptr: Array, indices: Array, rows: Array, column: Array, rank: Array, low: int,
    out: Array, start: int, stop: int,
) -> None:  # fmt: skip
    """Fill ``out[start:stop]`` from the one register that each neighbour fills."""
    for i in range(start, stop):
        v = rows[i]
        at = column[v] - low
        if at >= 0 and at < out.shape[1]:
            out[i, at] = rank[v]
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            at = column[u] - low
            if at >= 0 and at < out.shape[1]:
                out[i, at] = max(out[i, at], rank[u])


def fill_maxima(
    indptr: Array, indices: Array, rows: Array, registers: Array,
    out: Array, start: int, stop: int,
) -> None:  # fmt: skip
    """Raise ``out[start:stop]``; four neighbours at a time keep as many reads under way."""
    one, two, three, four = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
    for i in range(start, stop):
        # Unsigned as what is added to them: of an unsigned 64 and a signed number numba makes a
        # float, which is no place in an array.
        e, end = np.uintp(indptr[rows[i]]), np.uintp(indptr[rows[i] + 1])
        row = out[i]
        while e + four <= end:
            a, b = registers[indices[e]], registers[indices[e + one]]
            c, d = registers[indices[e + two]], registers[indices[e + three]]
            for k in range(len(row)):
                row[k] = max(row[k], max(max(a[k], b[k]), max(c[k], d[k])))
            e += four
        while e < end:
            a = registers[indices[e]]
            for k in range(len(row)):
                row[k] = max(row[k], a[k])
            e += one


def fill_sums(registers: Array, top: int, sums: Array, start: int, stop: int) -> None:
    """Fill ``sums[:, start:stop]``."""
    for i in range(start, stop):
        total, zeros = 0, 0
        for k in range(registers.shape[1]):
            if registers[i, k] == 0:
                zeros += 1
            else:
                total += 1 << (top - registers[i, k])
        sums[0, i] = total
        sums[1, i] = zeros
