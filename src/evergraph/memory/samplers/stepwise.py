"""Class by class, one candidate after the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from evergraph.memory.samplers.base import Candidates, Sampler


class StepwiseSampler(Sampler):
    """Takes a class's candidates one by one, each in view of those taken before."""

    @abstractmethod
    def order(self, embeddings: Tensor, count: int) -> Tensor:
        """Return which rows of one class to take, first to last.  [n, dims] -> int64 [count]"""

    def rank(
        self, candidates: Candidates, budgets: Mapping[int, int], *, generator: torch.Generator
    ) -> Tensor:
        """Return the step at which its class takes each candidate, infinity if it does not."""
        ranks = torch.full((len(candidates),), torch.inf, dtype=torch.float64)
        labels = candidates.labels.cpu()
        for label, budget in budgets.items():
            rows = (labels == label).nonzero().flatten()
            count = min(budget, len(rows))
            if count:
                taken = rows[self.order(candidates.embeddings[rows], count).cpu()]
                ranks[taken] = torch.arange(count, dtype=torch.float64)
        return ranks
