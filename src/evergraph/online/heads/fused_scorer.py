"""Scorer of the head ``auto``: a mixture of the scores of several views."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.view_map import RandomMap
from evergraph.online.heads.base import Ids, Scorer
from evergraph.topology.rowwise import Matrix, Panels

ROWS_PER_BLOCK = 64  # their features stay in the cache


@dataclass(frozen=True, eq=False)
class FusedScorer(Scorer):
    """s(x) = Σ_v a_v V_vᵀφ_v(x) + b."""

    map: RandomMap | KernelMap  # φ of all views
    weights: tuple[Tensor, ...]  # a_v V_v.  float64 [m, classes] each
    offsets: Tensor  # b.  float32 [classes]

    def __call__(self, ids: Ids, vectors: Matrix) -> Matrix:
        dims, panels = self._panels
        if missing := dims - vectors.shape[1]:  # no label is nearby
            vectors = np.pad(vectors, ((0, 0), (0, missing)))
        scores = np.empty((len(vectors), panels.columns), np.float32)
        for start in range(0, len(vectors), ROWS_PER_BLOCK):
            rows = slice(start, start + ROWS_PER_BLOCK)
            features = self.map.rowwise(vectors[rows])
            scores[rows] = panels(features.reshape(len(features), -1).astype(np.float64))
        scores += self.offsets.numpy()
        return scores

    @cached_property
    def _panels(self) -> tuple[int, Panels]:
        """Width of vectors, and the weights of all views, one below the other."""
        return sum(self.map.sizes.values()), Panels.of(torch.cat(self.weights))

    def slopes(self, vector: Tensor) -> Tensor | None:
        """Return ∂s/∂x: s(x) - b is this times x, if φ is homogeneous.  -> [classes, dims]"""
        parts = self.map.cut(vector[None])
        projected = self.map.projected(parts, torch.matmul)
        places = self.map.places
        slopes = torch.zeros(self.weights[0].shape[1], sum(self.map.sizes.values()))
        for view, weights in zip(self.map.views, self.weights, strict=True):
            found = self.map.slopes(view, projected, weights.float(), parts)
            if found is None:
                return None
            for part, slope in found.items():
                slopes[:, slice(*places[part])] += slope
        if isinstance(self.map, KernelMap):  # times the vector with the constant, so far
            plain = vector.numpy()
            seen = self.map.with_constant(plain[None])[0]
            slopes *= torch.from_numpy(
                np.divide(seen, plain, np.zeros_like(seen), where=plain != 0)
            )
        return slopes
