"""A linear head on embeddings, or on the outputs of an untrained network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Generator, Tensor

from evergraph.nn.backbone import backbones
from evergraph.nn.linear import dropout_mask
from evergraph.nn.pdgnn import PDGNN
from evergraph.topology import Reservoir
from evergraph.topology.cached import Scaling

# Values processed at a time, so that a task's embeddings are not copied as a whole.
BLOCK_VALUES = 1 << 22


@dataclass(frozen=True)
class AsIs:
    """The identity map φ(e) = e, in place of an ``Expansion``.

    >>> AsIs(1)(torch.tensor([[3.]]))
    tensor([[3.]])
    """

    width: int  # width of the embeddings, or number of first columns used

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Return the embeddings, or their first columns.  [n, dims] -> [n, width]"""
        return embeddings[:, : self.width]

    def narrowed(self, width: int) -> AsIs:
        """Return the map to the first columns alone."""
        return AsIs(width)

    def blocks(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """Return embeddings in blocks."""
        parts: tuple[Tensor, ...] = embeddings.split(max(BLOCK_VALUES // max(self.width, 1), 1))
        return parts


@backbones.register
@dataclass(kw_only=True, eq=False, repr=False)
class LinearHead(PDGNN):
    """A linear classifier of embeddings, f_out(e) = V e + b: ``PDGNN`` without a hidden layer.

    Sums over embeddings never go stale, since there is nothing to train between f_topo and f_out;
    methods such as ``slda`` compute V and b from such sums. As wide as the embeddings.

    Args:
        dropout: share of an embedding's values dropped while V is trained by gradients.

    >>> model = LinearHead()
    >>> model.begin(3, generator=torch.Generator())
    >>> model.grow(2, generator=torch.Generator())
    >>> model.width, model.eval()(torch.eye(3)).shape
    (3, torch.Size([3, 2]))
    """

    name = "linear"

    hidden: Sequence[int] = field(init=False, default=())
    bias: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.width = 0  # number of inputs of f_out: of an embedding, 0 before the first one

    def begin(self, dims: int, *, generator: Generator) -> None:
        """Create V and b."""
        super().begin(dims, generator=generator)
        self.width = dims

    def forward(
        self, inputs: Any, rows: Tensor | None = None, *, generator: Generator | None = None
    ) -> Tensor:
        """Return V e + b of some embeddings.  -> [rows, classes]"""
        if not (self.training and self.dropout):
            return super().forward(inputs, rows, generator=generator)
        assert generator is not None, "dropout needs a generator"
        embeddings = self.taken(inputs, rows)
        mask = dropout_mask(embeddings.shape, self.dropout, generator=generator)
        return super().forward(embeddings * mask, generator=generator)

    def settle(self, embeddings: Tensor) -> None:
        """Do nothing: the features do not depend on the first graph."""

    def expansion(self) -> AsIs:
        """Return φ as a map of its own."""
        return AsIs(self.width)

    def expands_like(self, other: LinearHead) -> bool:
        """Return whether another backbone computes the same features of the same graph."""
        mine, theirs = ((b.width, b.scaling, b.topology.name) for b in (self, other))
        return mine == theirs and vars(self.topology) == vars(other.topology)

    def set_head(self, weights: Tensor, offsets: Tensor) -> None:
        """Set V and b.  [dims, classes], [classes]"""
        assert self.head is not None
        self.head.out.weight.data = weights.t().float().contiguous()
        assert self.head.out.bias is not None
        self.head.out.bias.data = offsets.float()


@backbones.register
class UntrainedGCN(LinearHead):
    """A linear classifier on a frozen random GCN (the encoder of Donghi et al. 2025).

    f_out(e) = V e + b on e = [H^1, ..., H^L], H^i = tanh(Â H^{i-1} W_i), H^0 = X. W_i are Gaussian
    with variance 1 / (width of H^{i-1}), drawn from ``seed`` alone: the same for every graph and
    every learner.

    Args:
        hops: L, the number of layers.
        dims: width of a layer; embeddings are L times as wide.
        seed: seed of the weights.

    >>> model = UntrainedGCN(hops=2, dims=4)
    >>> model.topology.hops, model.topology.own_weights
    (2, False)
    """

    name = "untrained-gcn"
    topology: Reservoir

    def __init__(
        self,
        *,
        hops: int = 2,
        dims: int = 512,
        seed: int = 0,
        dropout: float = 0.5,
        scaling: Scaling = "unit",
    ) -> None:
        topology = Reservoir(
            hops=hops, dims=dims, seed=seed, own_weights=False, layers="all", self_loops=True
        )
        super().__init__(topology=topology, dropout=dropout, scaling=scaling)

    def _parameter_value(self, name: str) -> Any:
        own = name in ("dims", "seed")
        return getattr(self.topology, name) if own else super()._parameter_value(name)
