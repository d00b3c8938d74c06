"""Largest registers among neighbours, in whole-array operations: on a GPU, or without numba."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs.csr import repeat, row_entries

# Entries of a row that are taken one by one; a longer row is cut and its pieces are rows again.
PIECE = 8
_SUMMED_ROWS = 1 << 16


class TorchMax:
    """Takes maxima over the rows of a CSR matrix on any device; equals ``NumbaMax`` bit for bit.

    The parameters are the same. The width must be one that 8 divides.
    """

    def __init__(
        self, indptr: Tensor, indices: Tensor, column: Tensor, rank: Tensor, low: int, width: int
    ) -> None:
        self._indptr, self._indices = indptr, indices
        self._single = torch.zeros(len(rank), width, dtype=torch.uint8, device=rank.device)
        inside = ((column >= low) & (column < low + width)).nonzero().flatten()
        self._single[inside, column[inside].long() - low] = rank[inside]

    def first(self, rows: Tensor) -> Tensor:
        """Return the registers of what each row sees in one hop, itself included.

        rows: int64 [m] -> uint8 [m, width]
        """
        return self.following(rows, self._single)

    def following(self, rows: Tensor, registers: Tensor) -> Tensor:
        """Return the largest of each register over a row's neighbours and itself.

        rows: int64 [m]; registers: uint8 [nodes, width] -> uint8 [m, width]
        """
        lengths = (self._indptr[rows + 1] - self._indptr[rows]).long()
        _, entries = row_entries(self._indptr, rows)
        places = self._indices.index_select(0, entries).long()
        return torch.maximum(piecewise_max(registers, places, lengths), _take(registers, rows))

    def sums(self, registers: Tensor, top: int) -> Tensor:
        """Return Σ 2^(top - M) over the registers M that are set, and how many are not.

        registers: uint8 [m, width] -> int64 [2, m]
        """
        weights = 1 << (top - torch.arange(top + 1, device=registers.device))
        weights[0] = 0
        parts = [
            torch.stack([weights[some.int()].sum(1), (some == 0).sum(1)])
            for some in registers.split(_SUMMED_ROWS)
        ]
        return torch.cat(parts, dim=1)


def piecewise_max(source: Tensor, places: Tensor, lengths: Tensor) -> Tensor:
    """Return maxima over consecutive runs of ``source[places]``, zeros where a run is empty.

    Runs are cut into pieces of at most ``PIECE``. Pieces lie longest first, so that the k-th
    entries of all that have one meet the front of the result. Then the pieces' maxima are the
    source and a run is the pieces it was cut into, until every run is one piece.

    source: uint8 [n, width]; places: int64 [sum of lengths]; lengths: int64 [m] -> [m, width]
    """
    while True:
        pieces = (lengths + PIECE - 1) // PIECE
        own = repeat(torch.arange(len(lengths), device=lengths.device), pieces)
        passed = torch.arange(len(own), device=own.device) - (pieces.cumsum(0) - pieces)[own]
        starts = (lengths.cumsum(0) - lengths)[own] + PIECE * passed
        sizes = (lengths[own] - PIECE * passed).clamp_max(PIECE)
        order = sizes.argsort(descending=True, stable=True)
        best = _longest_first(source, places, starts[order], sizes[order])
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order), device=order.device)
        source, lengths = best, pieces
        if not bool((lengths > 1).any()):
            found = source.new_zeros(len(lengths), source.shape[1])
            found[own] = _take(source, places)
            return found


def _longest_first(source: Tensor, places: Tensor, starts: Tensor, sizes: Tensor) -> Tensor:
    best = source.new_zeros(len(starts), source.shape[1])
    counts = (sizes[None] > torch.arange(PIECE, device=sizes.device)[:, None]).sum(1).tolist()
    for step, count in enumerate(counts):
        front = best[:count]
        torch.maximum(front, _take(source, places[starts[:count] + step]), out=front)
    return best


def _take(registers: Tensor, rows: Tensor) -> Tensor:
    """Return rows of bytes, moved eight at a time."""
    return registers.view(torch.int64).index_select(0, rows).view(torch.uint8)
