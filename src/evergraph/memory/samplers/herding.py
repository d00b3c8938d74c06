"""Herding: the few whose mean is the class's mean."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.memory.samplers.base import StepwiseSampler, samplers


@samplers.register
class HerdingSampler(StepwiseSampler):
    """Takes what brings the mean of those taken nearest to the mean of the class.

    Step k takes argmin_v ‖μ - (e_v + Σ_{w taken} e_w) / k‖ (Welling 2009; iCaRL, Rebuffi et al.
    2017). Since ‖kμ - Σ e_w - e_v‖² = ‖r‖² - 2 rᵀe_v + ‖e_v‖² with r = kμ - Σ e_w, a step is one
    product of the embeddings with r: O(budget · n · dims) for a class of n. Deterministic.

    >>> line = torch.tensor([[0.0], [1.0], [2.0], [7.0]])  # their mean is 2.5
    >>> HerdingSampler().order(line, 2)  # 2 is nearest to 2.5; then 3 would be best, and 1 is next
    tensor([2, 1])
    """

    name = "herding"

    def order(self, embeddings: Tensor, count: int) -> Tensor:
        """Return the rows in the order in which they are taken."""
        lengths = embeddings.square().sum(1)  # [n]
        mean = embeddings.mean(0)
        wanted = mean.clone()  # r: what the next one should be for the means to agree
        taken = torch.empty(count, dtype=torch.int64, device=embeddings.device)
        for step in range(count):
            best = (lengths - 2 * (embeddings @ wanted)).argmin()
            taken[step] = best
            lengths[best] = torch.inf  # nobody is taken twice
            wanted += mean - embeddings[best]
        return taken
