"""A linear map whose first weights come from a generator that was handed over."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class Linear(nn.Module):
    """x ↦ W x + b; ``nn.Linear`` would draw its first weights from torch's global generator.

    Weights start as ``nn.Linear``'s do, uniform in ±1/√inputs.

    >>> layer = Linear(3, 2, generator=torch.Generator().manual_seed(0))
    >>> layer.grow(5, generator=torch.Generator().manual_seed(0))
    >>> layer(torch.ones(1, 3)).shape
    torch.Size([1, 5])
    """

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(_uniform(outputs, inputs, inputs=inputs, generator=generator))
        self.bias = (
            nn.Parameter(_uniform(outputs, inputs=inputs, generator=generator)) if bias else None
        )

    def grow(self, outputs: int, *, generator: torch.Generator) -> None:
        """Add outputs; what was learned for the others stays as it is."""
        known, inputs = self.weight.shape
        weight = _uniform(outputs, inputs, inputs=inputs, generator=generator)
        weight = weight.to(self.weight.device)
        weight[:known] = self.weight.detach()
        self.weight = nn.Parameter(weight)
        if self.bias is not None:
            bias = _uniform(outputs, inputs=inputs, generator=generator).to(self.bias.device)
            bias[:known] = self.bias.detach()
            self.bias = nn.Parameter(bias)

    def plus_bias(self, images: Tensor) -> Tensor:
        """Add the bias, if there is one, to images computed in another order.  [n, outputs]"""
        return images if self.bias is None else images + self.bias

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the image of each row.  [n, inputs] -> [n, outputs]"""
        return linear(inputs, self.weight, self.bias)


def _uniform(*shape: int, inputs: int, generator: torch.Generator) -> Tensor:
    bound = inputs**-0.5
    return torch.empty(*shape).uniform_(-bound, bound, generator=generator)
