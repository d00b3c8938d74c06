"""Linear maps that can grow, and dropout, drawn from a given generator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from evergraph.graphs.kernels.row_ranges import row_tiles, tiled_product


class Linear(nn.Module):
    """A linear map x ↦ W x + b that can grow and draws its weights from a given generator.

    ``nn.Linear`` would use torch's global generator. Weights start as in ``nn.Linear``, uniform in
    ±1/√inputs.

    >>> layer = Linear(3, 2, generator=torch.Generator().manual_seed(0))
    >>> layer.grow(5, generator=torch.Generator().manual_seed(0))
    >>> layer(torch.ones(1, 3)).shape
    torch.Size([1, 5])
    """

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(uniform(outputs, inputs, inputs=inputs, generator=generator))
        self.bias = (
            nn.Parameter(uniform(outputs, inputs=inputs, generator=generator)) if bias else None
        )

    def grow(self, outputs: int, *, generator: torch.Generator) -> None:
        """Add outputs; the others keep their weights."""
        old_outputs, inputs = self.weight.shape
        weight = uniform(outputs, inputs, inputs=inputs, generator=generator)
        weight = weight.to(self.weight.device)
        weight[:old_outputs] = self.weight.detach()
        self.weight = nn.Parameter(weight)
        if self.bias is not None:
            bias = uniform(outputs, inputs=inputs, generator=generator).to(self.bias.device)
            bias[:old_outputs] = self.bias.detach()
            self.bias = nn.Parameter(bias)

    def clear(self) -> None:
        """Drop all outputs; ``grow`` draws them again."""
        self.weight = nn.Parameter(self.weight.detach()[:0])
        if self.bias is not None:
            self.bias = nn.Parameter(self.bias.detach()[:0])

    def joined(self) -> Tensor:
        """Return Wᵀ, with the bias as its last row if there is one.  -> [inputs (+ 1), outputs]"""
        weight = self.weight.detach().t()
        return weight if self.bias is None else torch.cat([weight, self.bias.detach()[None]])

    def set_joined(self, joined: Tensor) -> None:
        """Set W and the bias from a matrix as returned by ``joined``.  [inputs (+ 1), outputs]"""
        if self.bias is not None:
            self.bias = nn.Parameter(joined[-1].clone())
            joined = joined[:-1]
        self.weight = nn.Parameter(joined.t().contiguous())

    def plus_bias(self, images: Tensor) -> Tensor:
        """Add the bias, if there is one, to outputs computed in another way.  [n, outputs]"""
        return images if self.bias is None else images + self.bias

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the output of each row.  [n, inputs] -> [n, outputs]"""
        return tiled_linear(inputs, self.weight, self.bias)


def tiled_linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return inputs Wᵀ + b; many rows are shared among threads, see ``tiled_product``.

    [n, inputs], [outputs, inputs], [outputs] -> [n, outputs]
    """
    large = inputs.dim() == 2 and len(row_tiles(len(inputs), weight.numel())) > 1
    if not large or inputs.device.type != "cpu":
        return linear(inputs, weight, bias)
    images: Tensor = _Tiled.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
    return images


class _Tiled(torch.autograd.Function):
    """A linear map of many rows whose sums do not depend on the number of threads."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return tiled_product(inputs, weight.t(), bias)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        needed = ctx.needs_input_grad
        return (
            tiled_product(slopes, weight) if needed[0] else None,
            tiled_product(slopes.t(), inputs) if needed[1] else None,
            slopes.sum(0) if needed[2] else None,
        )


def uniform(*shape: int, inputs: int, generator: torch.Generator) -> Tensor:
    """Draw initial weights, uniform in ±1/√inputs.  -> float32 [*shape]"""
    bound = inputs**-0.5
    return torch.empty(*shape).uniform_(-bound, bound, generator=generator)


def padded(values: Tensor, like: Tensor) -> Tensor:
    """Return values on the device and in the size of ``like``, padded with zeros."""
    result = torch.zeros_like(like, requires_grad=False)
    result[tuple(slice(size) for size in values.shape)] = values.to(like.device)
    return result


def dropout_mask(shape: torch.Size, rate: float, *, generator: torch.Generator | None) -> Tensor:
    """Draw a dropout mask, scaled to preserve the mean.  -> float32 [n, width]

    A random byte decides for each unit, so the rate is rounded to a 256th. Bytes are drawn eight
    at a time as one integer: twenty times as fast on a CPU as ``bernoulli_``, which would take
    longer than the matrix products around it.
    """
    assert generator is not None, "dropout needs a generator"
    dropped = round(256 * rate)
    words = -(-shape.numel() // 8)
    noise = torch.empty(words, dtype=torch.int64, device=generator.device)
    noise.random_(-(2**63), None, generator=generator)
    is_kept = noise.view(torch.uint8)[: shape.numel()].view(shape) >= dropped
    return is_kept.float().mul_(256 / (256 - dropped))
