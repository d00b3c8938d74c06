"""ER-GNN's influence: nodes with the largest effect on the model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from evergraph.core.checks import check_number
from evergraph.memory.samplers.base import Candidates, Sampler, samplers


@samplers.register
class InfluenceSampler(Sampler):
    """Keeps the nodes of largest influence g_vᵀ H^-1 g_v (IM of ER-GNN, Zhou and Cao 2021).

    An influence function measures how far the parameters move if a node's weight changes: H^-1 g_v.
    At the last layer a node's gradient is the outer product δ_v h_vᵀ of its residual and its hidden
    state; with H factored as E[δδᵀ] ⊗ E[hhᵀ], the influence is
    (δᵀ (E[δδᵀ] + εI)^-1 δ) · (hᵀ (E[hhᵀ] + εI)^-1 h): two solves for all nodes together. Without
    a model's residuals only the second factor is used: the leverage of an embedding.

    Args:
        damping: ε as a share of the mean of each factor's diagonal.
    """

    name = "influence"
    aliases = ("im",)

    def __init__(self, *, damping: float = 0.01) -> None:
        check_number("damping", damping, least=1e-8)
        self.damping = damping

    def rank(
        self, candidates: Candidates, budgets: Mapping[int, int], *, generator: torch.Generator
    ) -> Tensor:
        """Return minus the influence of each candidate."""
        influence = self._lengths(candidates.embeddings.double())
        if candidates.residuals is not None:
            influence = influence * self._lengths(candidates.residuals.double())
        return -influence.cpu()

    def _lengths(self, rows: Tensor) -> Tensor:
        """Return rᵀ (E[rrᵀ] + εI)^-1 r for each row.  [n, d] -> [n]"""
        second = rows.t() @ rows / max(len(rows), 1)
        scale = second.diagonal().mean().clamp_min(1e-12)
        eye = torch.eye(len(second), dtype=rows.dtype, device=rows.device)
        solved = torch.linalg.solve(second + self.damping * scale * eye, rows.t())  # [d, n]
        lengths: Tensor = (rows * solved.t()).sum(1)
        return lengths
