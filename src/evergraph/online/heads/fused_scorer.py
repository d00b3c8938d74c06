"""Scorer of the head ``auto``: a mixture of the scores of several views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.closed_form.view_map import Matrix, ViewMap
from evergraph.online.heads.base import Scorer


@dataclass(frozen=True, eq=False)
class FusedScorer(Scorer):
    """s(x) = Σ_v a_v V_vᵀφ_v(x) + b."""

    map: ViewMap  # φ of all views
    weights: tuple[Tensor, ...]  # a_v V_v.  float32 [m, classes] each
    offsets: Tensor  # b.  float32 [classes]

    def __call__(self, ids: Tensor, vectors: Tensor) -> Tensor:
        """Return the scores.  [n, dims] -> [n, classes]"""
        scores = torch.empty(len(vectors), self.weights[0].shape[1])
        for rows in self.map.slices(len(vectors)):
            projected = self.map.projected(self.map.cut(vectors[rows]), torch.matmul)
            per_view = [
                self.map.features(view, projected) @ weights
                for view, weights in zip(self.map.views, self.weights, strict=True)
            ]
            scores[rows] = torch.stack(per_view).sum(0) + self.offsets
        return scores

    def few(self, ids: npt.NDArray[np.int64], vectors: Matrix) -> Matrix:
        """Return the scores by a few numpy calls.  [n, dims] -> [n, classes]"""
        if self._few is None:
            return super().few(ids, vectors)
        scores: Matrix = self._few(vectors) + self.offsets.numpy()
        return scores

    @cached_property
    def _few(self) -> Callable[[Matrix], Matrix] | None:
        return self.map.by_numpy(self.weights)

    def slopes(self, vector: Tensor) -> Tensor | None:
        """Return ∂s/∂x: s(x) - b is this times x, if φ is homogeneous.  -> [classes, dims]"""
        parts = self.map.cut(vector[None])
        projected = self.map.projected(parts, torch.matmul)
        places = self.map.places
        slopes = torch.zeros(self.weights[0].shape[1], sum(self.map.sizes.values()))
        for view, weights in zip(self.map.views, self.weights, strict=True):
            found = self.map.slopes(view, projected, weights, parts)
            if found is None:
                return None
            for part, slope in found.items():
                slopes[:, slice(*places[part])] += slope
        return slopes
