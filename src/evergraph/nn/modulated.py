"""Embeddings that are scaled and shifted node by node before classification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from evergraph.core.component import integer
from evergraph.nn.backbone import backbones
from evergraph.nn.linear import Linear
from evergraph.nn.pdgnn import MLP, PDGNN

# Size of the initial scales and shifts: small, so that e' starts near e, but not 0, where only U
# would have a gradient.
INITIAL_SCALE = 0.01
# Rows modulated at a time, so that scales and shifts of a large test set fit in memory.
ROWS_PER_BLOCK = 4096


class ModulatedHead(nn.Module):
    """Scales and shifts each embedding, e' = (1 + γ) ⊙ e + β, then applies an MLP.

    γ and β differ from node to node. A task embedding t makes H pairs of scales and shifts through
    a low rank r, [Γ, B] = (A t) U with A t [H, r] and U [r, 2 dims], and a node attends to them:
    a = softmax(Q e), γ = Γᵀ a, β = Bᵀ a. U starts near 0, so e' starts near e.

    Args:
        dims: width of an embedding.
        pairs: H.
        rank: r.
        task_dims: length of t.
        hidden, bias, dropout: of the classifier, see ``MLP``.

    >>> head = ModulatedHead(3, pairs=2, rank=1, task_dims=2, generator=torch.Generator())
    >>> head.grow(4, generator=torch.Generator())
    >>> head(torch.ones(5, 3)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        dims: int,
        *,
        pairs: int,
        rank: int,
        task_dims: int,
        hidden: tuple[int, ...] = (256,),
        bias: bool = True,
        dropout: float = 0.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.task = nn.Parameter(torch.randn(task_dims, generator=generator))
        self.factors = Linear(task_dims, pairs * rank, bias=False, generator=generator)  # A
        directions = torch.randn(rank, 2 * dims, generator=generator)
        self.directions = nn.Parameter(INITIAL_SCALE * directions)  # U
        self.attention = Linear(dims, pairs, bias=False, generator=generator)  # Q
        self.classifier = MLP(dims, hidden=hidden, bias=bias, dropout=dropout, generator=generator)

    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        """Widen the output to ``classes``; existing classes keep their weights."""
        self.classifier.grow(classes, generator=generator)

    def modulation(self) -> tuple[Tensor, Tensor]:
        """Return Γ and B.  -> 2 x [pairs, dims]"""
        factors = self.factors(self.task).reshape(-1, len(self.directions))  # [pairs, rank]
        scales, shifts = (factors @ self.directions).tensor_split(2, dim=1)
        return scales, shifts

    def modulated(self, embeddings: Tensor) -> Tensor:
        """Return e'.  [n, dims] -> [n, dims]"""
        scales, shifts = self.modulation()
        shares = self.attention(embeddings).softmax(1)  # [n, pairs]
        return torch.addcmul(embeddings + shares @ shifts, embeddings, shares @ scales)

    def forward(self, embeddings: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return class scores.  [n, dims] -> [n, classes]"""
        parts = embeddings.split(ROWS_PER_BLOCK)
        return torch.cat([self.classifier(self.modulated(p), generator=generator) for p in parts])

    def hidden_states(self, embeddings: Tensor) -> Tensor:
        """Return the inputs of the classifier's last layer, without dropout.

        [n, dims] -> [n, width]
        """
        return self.classifier.hidden_states(self.modulated(embeddings))


@backbones.register
@dataclass(kw_only=True, eq=False, repr=False)
class Modulated(PDGNN):
    """Frozen embeddings with a ``ModulatedHead``, as in TAAM's frozen SGC (Liu and Zhang 2026).

    Args:
        pairs: H, the number of scales and shifts that a node chooses from.
        rank: r, the rank of all of them together.
        task_dims: length of the task embedding.

    >>> model = Modulated(pairs=2)
    >>> model.begin(3, generator=torch.Generator())
    >>> model.grow(2, generator=torch.Generator())
    >>> model.eval()(torch.eye(3)).shape
    torch.Size([3, 2])
    """

    name = "modulated"
    pairs: int = integer(4, least=1)
    rank: int = integer(4, least=1)
    task_dims: int = integer(16, least=1)
    head: ModulatedHead | None = field(init=False)  # type: ignore[assignment]

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        names = ("pairs", "rank", "task_dims", "hidden", "bias", "dropout")
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        self.head = ModulatedHead(dims, generator=generator, **options).to(self.device)
