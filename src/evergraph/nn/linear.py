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

    def clear(self) -> None:
        """Drop all outputs; ``grow`` draws them anew."""
        self.weight = nn.Parameter(self.weight.detach()[:0])
        if self.bias is not None:
            self.bias = nn.Parameter(self.bias.detach()[:0])

    def joined(self) -> Tensor:
        """Return Wᵀ, the bias its last row where there is one.  -> [inputs (+ 1), outputs]"""
        weight = self.weight.detach().t()
        return weight if self.bias is None else torch.cat([weight, self.bias.detach()[None]])

    def set_joined(self, joined: Tensor) -> None:
        """Take W and the bias from what ``joined`` would return.  [inputs (+ 1), outputs]"""
        if self.bias is not None:
            self.bias = nn.Parameter(joined[-1].clone())
            joined = joined[:-1]
        self.weight = nn.Parameter(joined.t().contiguous())

    def with_one(self, inputs: Tensor) -> Tensor:
        """Return inputs, with a column of ones where there is a bias: times ``joined``, the image.

        >>> layer = Linear(2, 1, generator=torch.Generator())
        >>> layer.set_joined(torch.tensor([[2.], [3.], [4.]]))
        >>> layer.with_one(torch.tensor([[1., 10.]])) @ layer.joined()  # 2 + 30 + 4
        tensor([[36.]])
        """
        return (
            inputs if self.bias is None else torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
        )

    def plus_bias(self, images: Tensor) -> Tensor:
        """Add the bias, if there is one, to images computed in another order.  [n, outputs]"""
        return images if self.bias is None else images + self.bias

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the image of each row.  [n, inputs] -> [n, outputs]"""
        return linear(inputs, self.weight, self.bias)


def _uniform(*shape: int, inputs: int, generator: torch.Generator) -> Tensor:
    bound = inputs**-0.5
    return torch.empty(*shape).uniform_(-bound, bound, generator=generator)
