"""f_out: a multi-layer perceptron whose output grows with the classes met."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from evergraph.core.checks import check_integer, check_number


class MLP(nn.Module):
    """f_out of the paper: embeddings to class scores, d - hidden - ... - classes, ReLU between.

    ``forward`` needs a generator only while dropout is at work. Weights start as
    ``torch.nn.Linear``'s do, uniform in ±1/√fan_in, drawn from the generator given.

    Args:
        dims: width of an embedding.
        hidden: width of each hidden layer; none makes it a linear head.
        bias: whether layers have one (the released code's have not).
        dropout: share of hidden units dropped in training.

    >>> head = MLP(3, hidden=(4,), generator=torch.Generator().manual_seed(0))
    >>> head.grow(2, generator=torch.Generator().manual_seed(0))
    >>> head(torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        dims: int,
        *,
        hidden: tuple[int, ...] = (256,),
        bias: bool = True,
        dropout: float = 0.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        check_head(hidden, dropout)
        self.dropout = dropout
        self.bias = bias
        widths = (dims, *hidden)
        self.hidden = nn.ModuleList(
            _Layer(i, o, bias=bias, generator=generator) for i, o in pairwise(widths)
        )
        self.out = _Layer(widths[-1], 0, bias=bias, generator=generator)

    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        """Widen the output to ``classes``; what was learned for the others stays as it is."""
        known, width = self.out.weight.shape
        wider = _Layer(width, classes, bias=self.bias, generator=generator)
        wider = wider.to(self.out.weight.device)
        with torch.no_grad():
            wider.weight[:known] = self.out.weight
            if wider.bias is not None and self.out.bias is not None:
                wider.bias[:known] = self.out.bias
        self.out = wider

    def forward(self, embeddings: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return class scores.  [n, dims] -> [n, classes]"""
        state = embeddings
        for layer in self.hidden:
            state = torch.relu_(layer(state))
            if self.training and self.dropout:
                assert generator is not None, "dropout draws from the generator it is given"
                state = state * dropout_mask(state.shape, self.dropout, generator=generator)
        scores: Tensor = self.out(state)
        return scores


def dropout_mask(shape: torch.Size, rate: float, *, generator: torch.Generator) -> Tensor:
    """Draw which units stay, scaled so that the mean does.  -> float32 [n, width]

    A random byte decides for each unit, so the rate is rounded to a 256th. Bytes are drawn eight
    at a time as one integer: on a CPU twenty times as fast as ``bernoulli_``, which would
    otherwise take longer than the matrix products around it.
    """
    dropped = round(256 * rate)
    words = -(-shape.numel() // 8)
    noise = torch.empty(words, dtype=torch.int64, device=generator.device)
    noise.random_(-(2**63), None, generator=generator)
    kept = noise.view(torch.uint8)[: shape.numel()].view(shape) >= dropped
    return kept.float().mul_(256 / (256 - dropped))


def check_head(hidden: tuple[int, ...], dropout: float) -> None:
    """Raise unless an MLP can be made with these."""
    for width in hidden:
        check_integer("hidden", width, least=1)
    check_number("dropout", dropout, least=0.0, most=0.99)


class _Layer(nn.Module):
    """A linear map; ``nn.Linear`` would draw its first weights from torch's global generator."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(
            torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
        )
        self.bias = (
            nn.Parameter(torch.empty(outputs).uniform_(-bound, bound, generator=generator))
            if bias
            else None
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return linear(inputs, self.weight, self.bias)
