"""k-centre: a few nodes such that no node is far from all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.memory.samplers.base import StepwiseSampler, samplers


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
