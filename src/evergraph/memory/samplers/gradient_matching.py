"""Gradient matching: synthetic vectors with the gradients of their class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from evergraph.core.checks import check_integer, check_number
from evergraph.memory.samplers.base import Candidates, samplers
from evergraph.memory.samplers.condensing import BLOCK, CondensingSampler, averaging, spread

# Entries of a block of residuals, whatever the number of classes.
CELLS = BLOCK * 64


@samplers.register
class GradientMatchingSampler(CondensingSampler):
    """Synthetic embeddings whose loss has the same gradient as that of their class (DeLoMe).

    For random linear heads over the task's classes, the gradient of the cross-entropy of class c
    is G_kc = mean_{v∈c} (softmax(W_k e_v + b_k) - 1_c) e_vᵀ. Minimises the mean over heads and
    classes of ‖G_kc - G'_kc‖² / ‖G_kc‖², G' of the vectors (Niu et al. 2024; Zhao et al. 2021).
    The candidates' gradients are computed once. A task of one class has no gradient, and its
    vectors stay at their start.

    Args:
        heads: number of random heads.
        sharpness: the standard deviation of a head's scores; at 0 only class means count.
        start, steps, lr: see ``CondensingSampler``.
    """

    name = "gradient-matching"

    def __init__(
        self,
        *,
        heads: int = 8,
        sharpness: float = 1.0,
        start: str = "herding",
        steps: int = 50,
        lr: float = 0.03,
    ) -> None:
        super().__init__(start=start, steps=steps, lr=lr)
        check_integer("heads", heads, least=1)
        check_number("sharpness", sharpness, least=0.0)
        self.heads = heads
        self.sharpness = sharpness

    def distance(
        self, candidates: Candidates, labels: Tensor, *, generator: torch.Generator
    ) -> Callable[[Tensor], Tensor]:
        """Return the relative squared distance of the vectors' gradients from the candidates'."""
        known = candidates.labels.to(labels.device)
        every, classes = known.unique(), labels.unique()
        heads = self._heads(candidates.embeddings, len(every), generator=generator)
        targets, own = torch.searchsorted(every, known), torch.searchsorted(every, labels)
        wanted = _gradients(candidates.embeddings, targets, averaging(known, classes), heads)
        lengths = wanted.square().sum((2, 3)).clamp_min(1e-12)  # [classes, heads]
        weights = averaging(labels, classes)

        def distance(vectors: Tensor) -> Tensor:
            apart = _gradients(vectors, own, weights, heads) - wanted
            return (apart.square().sum((2, 3)) / lengths).mean()

        return distance

    def _heads(self, embeddings: Tensor, classes: int, *, generator: torch.Generator) -> Tensor:
        """Return random heads with a bias that makes the average score 0.

        -> [heads, dims + 1, classes], the bias last
        """
        mean, deviation = spread(embeddings)
        shape = (self.heads, embeddings.shape[1], classes)
        weights = torch.randn(shape, generator=generator).to(embeddings)
        weights = weights * (self.sharpness / deviation)
        return torch.cat([weights, -(mean @ weights)[:, None]], dim=1)


def _gradients(rows: Tensor, targets: Tensor, weights: Tensor, heads: Tensor) -> Tensor:
    """Return the gradient of each class's mean loss in each head.

    rows: [n, dims]; targets: int64 [n]; weights: [chosen classes, n];
    heads: [heads, dims + 1, classes];  -> [chosen classes, heads, classes, dims]
    """
    classes = heads.shape[2]
    block = max(1, CELLS // (len(heads) * classes))
    total = rows.new_zeros(len(weights), len(heads), classes, rows.shape[1])
    for part, own, share in zip(
        rows.split(block), targets.split(block), weights.split(block, dim=1), strict=True
    ):
        scores = (part @ heads[:, :-1] + heads[:, -1:]).transpose(0, 1)  # [block, heads, classes]
        residuals = scores.softmax(2) - one_hot(own, classes)[:, None]
        total = total + torch.einsum("yn,nhc,nd->yhcd", share, residuals, part)
    return total
