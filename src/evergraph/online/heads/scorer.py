"""Scores of a head: immutable, and computed row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.view_map import ROWS_PER_BLOCK, RandomMap
from evergraph.topology.rowwise import Matrix, RowProduct

BLOCK_VALUES = 1 << 20  # of a matrix with a value for every node and class, computed at a time


@dataclass(frozen=True, eq=False)
class Scorer:
    """s(x) = Σ_v a_v V_vᵀφ_v(x) + b: log-probabilities up to a constant per row, or numbers.

    Immutable, so safe to use from any thread. No bit of a row's scores depends on the other rows
    (see ``evergraph.topology.rowwise``): what is predicted for a node depends on the node and the
    state alone. A few rows take well under a millisecond: a service computes them without a thread.
    """

    map: RandomMap | KernelMap  # φ of all views
    weights: tuple[Tensor, ...]  # a_v V_v.  float64 [m, classes] each
    offsets: Tensor  # b.  float32 [classes]
    has_nodes: Tensor | None = None  # by class; those without have score -inf.  bool [classes]

    def __call__(self, vectors: Matrix) -> Matrix:
        """Return scores.  float32 [n, dims] -> float32 [n, classes]"""
        product, offsets = self._solution
        scores = np.empty((len(vectors), product.columns), np.float32)
        for start in range(0, len(vectors), ROWS_PER_BLOCK):
            rows = slice(start, start + ROWS_PER_BLOCK)
            features = self.map.rowwise(vectors[rows])
            scores[rows] = product(features.reshape(len(features), -1))
        scores += offsets
        return scores

    @cached_property
    def _solution(self) -> tuple[RowProduct, Matrix]:
        """The weights of all views, one below the other, and offsets."""
        weights, offsets = torch.cat(self.weights), self.offsets
        if self.has_nodes is not None:
            newer = (0, len(self.has_nodes) - len(offsets))
            weights = torch.nn.functional.pad(weights, newer)  # 0 of newer ones
            offsets = torch.nn.functional.pad(offsets, newer, value=-torch.inf)
            offsets = offsets.masked_fill(~self.has_nodes, -torch.inf)
        return RowProduct.of(weights), offsets.numpy()

    def slopes(self, vector: Tensor) -> Tensor:
        """Return ∂s/∂x: s(x) - b is this times x.  -> [classes, dims]"""
        return self.map.slopes(vector, [weights.float() for weights in self.weights])


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of rows such that a matrix of each has at most ``BLOCK_VALUES`` values.

    A matrix of all nodes and classes is never held whole: a delta with as many classes as nodes
    would need their square.

    >>> list(row_blocks(3, 1 << 19))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = max(BLOCK_VALUES // max(columns, 1), 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
