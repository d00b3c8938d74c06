"""Random features of an embedding, apart from the model that learns on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from evergraph.graphs.kernels.row_ranges import tiled_product
from evergraph.topology.rowwise import unit_rows

Activation = Literal["relu", "fourier"]

# Features expanded at a time: blocks of 16 MB are taken from memory that was used before, larger
# ones are fetched from the system and cleared again and again, which takes longer than the product.
BLOCK_VALUES = 1 << 22
GPU_BLOCK_VALUES = 1 << 27  # there every block is a launch to wait for


class FeatureMap(Protocol):
    """φ by itself: features of embeddings, with nothing to train."""

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Return φ(e).  [n, dims] -> [n, width]"""
        ...

    def blocks(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """Return embeddings in parts whose features are of a size that pays."""
        ...

    def narrowed(self, width: int) -> FeatureMap:
        """Return what computes the first features alone."""
        ...


@dataclass(frozen=True, eq=False)
class Expansion:
    """φ(e): see ``RandomFeatures``. All that a worker has to be told to compute it.

    Attributes:
        matrix: R.  float32 [dims, width]
        phases: b.  float32 [width]
        activation: ``relu`` or ``fourier``.
        centre: what is taken off every embedding first, if anything.  float32 [dims]
        drawn: m, how many features were drawn, of which these may be the first; all unless given.

    >>> Expansion(torch.tensor([[1., -1.]]), torch.zeros(2), "relu")(torch.tensor([[3.]]))
    tensor([[3., 0.]])
    """

    matrix: Tensor
    phases: Tensor
    activation: Activation
    centre: Tensor | None = None
    drawn: int | None = None

    @property
    def width(self) -> int:
        """How many features."""
        return len(self.phases)

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Return φ(e).  [n, dims] -> [n, width]"""
        if self.centre is not None:
            embeddings = unit_rows(embeddings - self.centre, together=True)
        scale = math.sqrt(2 / (self.drawn or self.width))
        if self.activation == "relu":
            return torch.relu_(tiled_product(embeddings, self.matrix)).mul_(scale)
        return tiled_product(embeddings, self.matrix, self.phases).cos_().mul_(scale)

    def narrowed(self, width: int) -> Expansion:
        """Return what computes the first features alone, to the numbers they have among all.

        >>> whole = Expansion(torch.tensor([[1., -1.]]), torch.zeros(2), "relu")
        >>> whole.narrowed(1)(torch.tensor([[3.]]))
        tensor([[3.]])
        """
        if width >= self.width:
            return self
        first = self.matrix[:, :width].contiguous()
        drawn = self.drawn or self.width
        return replace(self, matrix=first, phases=self.phases[:width], drawn=drawn)

    def blocks(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """Return embeddings in parts whose expansion is of a size that pays."""
        values = BLOCK_VALUES if embeddings.device.type == "cpu" else GPU_BLOCK_VALUES
        parts: tuple[Tensor, ...] = embeddings.split(max(values // self.width, 1))
        return parts
