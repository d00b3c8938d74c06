"""What is kept of a linear map over tasks, so that the maps of all of them can be merged."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.ridge import solved
from evergraph.memory import MemoryUsage

# Rows multiplied at a time.
ROWS = 4096


class LayerSums:
    """G = Σ_t X_tᵀ X_t and C = Σ_t X_tᵀ Z_t, Z_t = X_t W_t what task t's own map made of X_t.

    The map nearest to all of them, each where its own inputs lie, is the ridge solution

        W = argmin Σ_t ‖X_t W - Z_t‖² + λ ‖W‖² = (G + λ I)⁻¹ C

    and needs no input again (as RegMean merges, Jin et al. 2023).

    Args:
        inputs, outputs: how wide X_t and Z_t are.

    >>> sums = LayerSums(2, 1)
    >>> sums.add(torch.tensor([[1., 0.]]), torch.tensor([[3.]]))  # one task, along the first axis
    >>> sums.add(torch.tensor([[0., 2.]]), torch.tensor([[8.]]))  # another, along the second
    >>> sums.merged(0.0)
    tensor([[3.],
            [4.]])
    """

    def __init__(self, inputs: int, outputs: int, *, device: torch.device | str = "cpu") -> None:
        self.gram_ = ClassStatistics(inputs, device=device)
        self.products_ = torch.zeros(inputs, outputs, dtype=torch.float64, device=device)

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Count a task's pairs in.  [n, inputs], [n, outputs]"""
        for rows, images in zip(inputs.split(ROWS), outputs.split(ROWS), strict=True):
            self.gram_.add(rows, torch.zeros_like(rows[:, 0]).long(), torch.ones_like(rows[:, 0]))
            self.products_ += (rows.t() @ images).double()

    def merged(self, regularisation: float) -> Tensor:
        """Return W, λ = ``regularisation`` x the mean of G's diagonal.  -> [inputs, outputs]"""
        return solved(self.gram_.gram_, self.products_, regularisation).float()

    @property
    def usage(self) -> MemoryUsage:
        """Values of G and C."""
        of_gram = self.gram_.usage
        return MemoryUsage(
            statistics=of_gram.statistics + self.products_.numel(),
            bytes=of_gram.bytes + self.products_.nbytes,
        )

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return self.gram_.state() | {"products": self.products_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self.gram_.restore(state)
        self.products_ = state["products"].to(self.products_.device)
