"""Scores of a head: immutable, and computed row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.view_map import RandomMap
from evergraph.topology.rowwise import Matrix, RowProduct

ROWS_PER_BLOCK = 64  # their features stay in the cache
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
        dims, product, offsets = self._solution
        if missing := dims - vectors.shape[1]:  # no label is nearby
            vectors = np.pad(vectors, ((0, 0), (0, missing)))
        scores = np.empty((len(vectors), product.columns), np.float32)
        for start in range(0, len(vectors), ROWS_PER_BLOCK):
            rows = slice(start, start + ROWS_PER_BLOCK)
            features = self.map.rowwise(vectors[rows])
            scores[rows] = product(features.reshape(len(features), -1))
        scores += offsets
        return scores

    @cached_property
    def _solution(self) -> tuple[int, RowProduct, Matrix]:
        """Width of vectors, the weights of all views, one below the other, and offsets."""
        weights, offsets = torch.cat(self.weights), self.offsets
        if self.has_nodes is not None:
            newer = (0, len(self.has_nodes) - len(offsets))
            weights = torch.nn.functional.pad(weights, newer)  # 0 of newer ones
            offsets = torch.nn.functional.pad(offsets, newer, value=-torch.inf)
            offsets = offsets.masked_fill(~self.has_nodes, -torch.inf)
        return sum(self.map.sizes.values()), RowProduct.of(weights), offsets.numpy()

    def slopes(self, vector: Tensor) -> Tensor | None:
        """Return ∂s/∂x: s(x) - b is this times x, if φ is homogeneous.  -> [classes, dims]"""
        parts = self.map.cut(vector[None])
        projected = self.map.projected(parts, torch.matmul)
        places = self.map.places
        slopes = torch.zeros(self.weights[0].shape[1], sum(self.map.sizes.values()))
        for view, weights in zip(self.map.views, self.weights, strict=True):
            view_slopes = self.map.slopes(view, projected, weights.float(), parts)
            if view_slopes is None:
                return None
            for part, slope in view_slopes.items():
                slopes[:, slice(*places[part])] += slope
        if isinstance(self.map, KernelMap):  # times the vector with the constant, so far
            original = vector.numpy()
            scaled = self.map.with_constant(original[None])[0]
            slopes *= torch.from_numpy(
                np.divide(scaled, original, np.zeros_like(scaled), where=original != 0)
            )
        return slopes


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of rows such that a matrix of each has at most ``BLOCK_VALUES`` values.

    A matrix of all nodes and classes is never held whole: a delta with as many classes as nodes
    would need their square.

    >>> list(row_blocks(3, 1 << 19))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = max(BLOCK_VALUES // max(columns, 1), 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
