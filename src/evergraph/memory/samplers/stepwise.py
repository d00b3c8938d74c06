"""Samplers that take the nodes of a class one by one: herding and k-centre."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.memory.samplers.base import StepwiseSampler, samplers


@samplers.register
class HerdingSampler(StepwiseSampler):
    """Repeatedly takes the node that brings the mean of those taken closest to the class mean.

    Step k takes argmin_v ‖μ - (e_v + Σ_{w taken} e_w) / k‖ (Welling 2009; iCaRL, Rebuffi et al.
    2017). Since ‖kμ - Σ e_w - e_v‖² = ‖r‖² - 2 rᵀe_v + ‖e_v‖² with r = kμ - Σ e_w, a step is one
    product of the embeddings with r: O(budget · n · dims) for a class of n. Deterministic.

    >>> line = torch.tensor([[0.0], [1.0], [2.0], [7.0]])  # their mean is 2.5
    >>> HerdingSampler().order(line, 2)  # 2 is nearest to 2.5; then 3 would be ideal, 1 is closest
    tensor([2, 1])
    """

    name = "herding"

    def order(self, embeddings: Tensor, count: int) -> Tensor:
        """Return the rows in the order in which they are taken."""
        lengths = embeddings.square().sum(1)  # [n]
        mean = embeddings.mean(0)
        wanted = mean.clone()  # r: the ideal next row
        taken = torch.empty(count, dtype=torch.int64, device=embeddings.device)
        for step in range(count):
            best = (lengths - 2 * (embeddings @ wanted)).argmin()
            taken[step] = best
            lengths[best] = torch.inf  # no row is taken twice
            wanted += mean - embeddings[best]
        return taken


@samplers.register
class KCentreSampler(StepwiseSampler):
    """Repeatedly takes the node farthest from all taken before (Sener and Savarese 2018).

    Farthest-first traversal from the candidate nearest the class mean: the radius
    max_v min_{w taken} ‖e_v - e_w‖ is at most twice the smallest possible (Gonzalez 1985). It
    needs only each candidate's distance to the nearest one taken: O(budget · n · dims) for a class
    of n. Deterministic.

    >>> line = torch.tensor([[0.0], [1.0], [2.0], [7.0]])  # their mean is 2.5
    >>> KCentreSampler().order(line, 3)
    tensor([2, 3, 0])
    """

    name = "k-centre"

    def order(self, embeddings: Tensor, count: int) -> Tensor:
        """Return the rows in the order in which they are taken."""
        apart = embeddings.new_full((len(embeddings),), torch.inf)  # distance to the nearest taken
        farthest = (embeddings - embeddings.mean(0)).norm(dim=1).argmin()
        taken = torch.empty(count, dtype=torch.int64, device=embeddings.device)
        for step in range(count):
            taken[step] = farthest
            apart = torch.minimum(apart, (embeddings - embeddings[farthest]).norm(dim=1))
            apart[farthest] = -1.0  # no row is taken twice, even if rows are equal
            farthest = apart.argmax()
        return taken
