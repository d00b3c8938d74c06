"""f_out: a multi-layer perceptron whose output grows with the classes seen."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from evergraph.core.checks import check_integer, check_number
from evergraph.nn.linear import Linear, dropout_mask


class GrowingHead(nn.Module):
    """Class scores from hidden states by a linear map that grows with the classes seen.

    ``forward`` needs a generator only if dropout is active.
    """

    dropout: float
    out: Linear

    def grow(self, classes: int, *, generator: Generator) -> None:
        """Widen the output to ``classes``; existing classes keep their weights."""
        self.out.grow(classes, generator=generator)

    def forward(self, embeddings: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Return class scores.  [n, dims] -> [n, classes]"""
        if self.training and self.dropout:
            assert generator is not None, "dropout needs a generator"
        scores: Tensor = self.out(self.hidden_states(embeddings, generator=generator))
        return scores

    @abstractmethod
    def hidden_states(self, embeddings: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Return the inputs of the last layer; without a generator nothing is dropped.

        [n, dims] -> [n, width]
        """

    def _dropped(self, states: Tensor, generator: Generator | None) -> Tensor:
        if not (self.training and self.dropout and generator is not None):
            return states
        return states * dropout_mask(states.shape, self.dropout, generator=generator)


class MLP(GrowingHead):
    """f_out of the paper: an MLP from embeddings to class scores, with ReLU between layers.

    Args:
        dims: width of an embedding.
        hidden: width of each hidden layer; empty for a linear head.
        bias: whether layers have a bias (the released code's have none).
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
        generator: Generator,
    ) -> None:
        super().__init__()
        check_head(hidden, dropout)
        self.dropout = dropout
        widths = (dims, *hidden)
        self.hidden = nn.ModuleList(
            Linear(i, o, bias=bias, generator=generator) for i, o in pairwise(widths)
        )
        self.out = Linear(widths[-1], 0, bias=bias, generator=generator)

    def hidden_states(self, embeddings: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Return the last hidden layer."""
        state = embeddings
        for layer in self.hidden:
            state = self._dropped(torch.relu_(layer(state)), generator)
        return state


def check_head(hidden: tuple[int, ...], dropout: float) -> None:
    """Raise unless an MLP can be made with these parameters."""
    for width in hidden:
        check_integer("hidden", width, least=1)
    check_number("dropout", dropout, least=0.0, most=0.99)
