"""A linear head on fixed features of the embedding: random ones, or the embedding itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from evergraph.core.component import choice, integer
from evergraph.graphs.kernels.row_ranges import tiled_product
from evergraph.nn.backbone import backbones
from evergraph.nn.linear import Linear, dropout_mask
from evergraph.nn.pdgnn import PDGNN
from evergraph.topology import Reservoir
from evergraph.topology.cached import Scaling
from evergraph.topology.rowwise import unit_rows

Activation = Literal["relu", "fourier"]

# Features expanded at a time: blocks of 16 MB reuse memory, while larger ones are fetched from the
# system and cleared each time, which takes longer than the product.
BLOCK_VALUES = 1 << 22
GPU_BLOCK_VALUES = 1 << 27  # larger on a GPU, where every block costs a kernel launch


@dataclass(frozen=True, eq=False)
class Expansion:
    """The map φ(e) of ``RandomFeatures``, with everything that a worker needs to compute it.

    >>> Expansion(torch.tensor([[1., -1.]]), torch.zeros(2), "relu")(torch.tensor([[3.]]))
    tensor([[3., 0.]])
    """

    matrix: Tensor  # R.  float32 [dims, width]
    phases: Tensor  # b.  float32 [width]
    activation: Activation  # ``relu`` or ``fourier``
    centre: Tensor | None = None  # subtracted from every embedding first, if given.  float32 [dims]
    # m, the number of features drawn; ``matrix`` may hold only the first of them
    drawn: int | None = None

    @property
    def width(self) -> int:
        """Number of features."""
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
        """Return the map to the first features alone, with unchanged values."""
        if width >= self.width:
            return self
        first = self.matrix[:, :width].contiguous()
        drawn = self.drawn or self.width
        return replace(self, matrix=first, phases=self.phases[:width], drawn=drawn)

    def blocks(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """Return embeddings in blocks of an efficient size."""
        values = BLOCK_VALUES if embeddings.device.type == "cpu" else GPU_BLOCK_VALUES
        parts: tuple[Tensor, ...] = embeddings.split(max(values // self.width, 1))
        return parts


@backbones.register
@dataclass(kw_only=True, eq=False, repr=False)
class RandomFeatures(PDGNN):
    """A linear head on fixed random features, f_out(e) = φ(e) V: only V is learned.

    relu: φ(e) = √(2/m) max(0, e R), whose inner products approach the arc-cosine kernel of a wide
    ReLU layer (Cho and Saul 2009). fourier: φ(e) = √(2/m) cos(e R + b), which approach the
    Gaussian kernel exp(-‖e - e'‖²/2) (Rahimi and Recht 2007). R ~ N(0, 1), b ~ U(0, 2π).

    φ never changes, so sums over features never go stale, and V has a closed form: see method
    ``analytic``. R is generated from a seed of eight bytes whenever it is needed.

    Args:
        width: m, the number of features.
        activation: ``relu`` or ``fourier``.
        centred: whether to subtract the mean embedding of the first graph from every embedding,
            and scale the rest to unit length, before the expansion. Helps if all embeddings point
            the same way; but φ then depends on which graph came first.
        dropout: share of features dropped while V is trained by gradients.

    >>> model = RandomFeatures(width=8)
    >>> model.begin(2, generator=torch.Generator())
    >>> model.hidden_states(torch.eye(2)).shape
    torch.Size([2, 8])
    """

    name = "random-features"
    width: int = integer(4096, least=1)
    activation: Activation = choice("relu", ("relu", "fourier"))
    centred: bool = False
    hidden: Sequence[int] = field(init=False, default=())
    bias: bool = field(init=False, default=True)
    head: Linear | None = field(init=False)  # type: ignore[assignment]
    seed: Tensor = field(init=False)
    centre: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._dims = 0
        self._drawn: tuple[int, Tensor, Tensor] | None = None  # seed, R, b

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        """Draw the seed of R and create V."""
        self._dims = dims
        self.register_buffer("seed", torch.randint(2**62, (1,), generator=generator))
        self.register_buffer("centre", torch.zeros(dims if self.centred else 0))
        self.head = Linear(self.width, 0, bias=False, generator=generator).to(self.device)

    def settle(self, embeddings: Tensor) -> None:
        """Set the centre from the first graph's embeddings; later calls change it.

        [nodes, dims]
        """
        if self.centred:
            self.centre = embeddings.mean(0, dtype=torch.float32).to(self.device)

    def forward(
        self,
        inputs: Tensor,
        rows: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        assert self.head is not None
        if not self.training:
            parts = self.blocks(self.taken(inputs, rows))
            return torch.cat([self.head(self.expand(part)) for part in parts])
        features = self.expand(self.taken(inputs, rows))
        if self.dropout:
            features *= dropout_mask(features.shape, self.dropout, generator=generator)
        scores: Tensor = self.head(features)
        return scores

    def step_work(self, rows: int) -> int | None:
        head_work = super().step_work(rows)
        return None if head_work is None else head_work + rows * self._dims * self.width

    def hidden_states(self, inputs: Tensor, rows: Tensor | None = None) -> Tensor:
        return self.expand(self.taken(inputs, rows))

    def blocks(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """Return embeddings in blocks of an efficient size."""
        return self.expansion(embeddings.device).blocks(embeddings)

    def expand(self, embeddings: Tensor) -> Tensor:
        """Return φ(e).  [n, dims] -> [n, width]"""
        return self.expansion(embeddings.device)(embeddings)

    def expansion(self, device: torch.device | None = None) -> Expansion:
        """Return φ as a map of its own, on a device; the model's own by default."""
        device = self.device if device is None else device
        seed = int(self.seed)
        if self._drawn is None or self._drawn[0] != seed or self._drawn[1].device != device:
            generator = torch.Generator().manual_seed(seed)  # the same numbers on every device
            phases = torch.rand(self.width, generator=generator) * (2 * math.pi)
            matrix = torch.randn(self._dims, self.width, generator=generator)
            self._drawn = seed, matrix.to(device), phases.to(device)
        centre = self.centre.to(device) if self.centred else None
        return Expansion(*self._drawn[1:], self.activation, centre)

    def expands_like(self, other: RandomFeatures) -> bool:
        """Return whether another backbone computes the same features of the same graph."""

        def settings(b: RandomFeatures) -> tuple[object, ...]:
            return (int(b.seed), b.activation, b.width, b._dims, b.scaling, b.topology.name)

        same_topology = vars(self.topology) == vars(other.topology)
        same_centre = self.centre.cpu().equal(other.centre.cpu())
        return settings(self) == settings(other) and same_topology and same_centre


@dataclass(frozen=True)
class IdentityMap:
    """The identity map φ(e) = e, in place of an ``Expansion``.

    >>> IdentityMap(1)(torch.tensor([[3.]]))
    tensor([[3.]])
    """

    width: int  # width of the embeddings, or number of first columns used

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Return the embeddings, or their first columns.  [n, dims] -> [n, width]"""
        return embeddings[:, : self.width]

    def narrowed(self, width: int) -> IdentityMap:
        """Return the map to the first columns alone."""
        return IdentityMap(width)

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
        super().begin(dims, generator=generator)
        self.width = dims

    def forward(
        self, inputs: Any, rows: Tensor | None = None, *, generator: Generator | None = None
    ) -> Tensor:
        if not (self.training and self.dropout):
            return super().forward(inputs, rows, generator=generator)
        embeddings = self.taken(inputs, rows)
        mask = dropout_mask(embeddings.shape, self.dropout, generator=generator)
        return super().forward(embeddings * mask, generator=generator)

    def settle(self, embeddings: Tensor) -> None:
        """Do nothing: the features do not depend on the first graph."""

    def expansion(self) -> IdentityMap:
        """Return φ as a map of its own."""
        return IdentityMap(self.width)

    def expands_like(self, other: LinearHead) -> bool:
        """Return whether another backbone computes the same features of the same graph."""
        same_settings = (self.width, self.scaling) == (other.width, other.scaling)
        same_topology = self.topology.name == other.topology.name
        return same_settings and same_topology and vars(self.topology) == vars(other.topology)

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
        of_topology = name in ("dims", "seed")
        return getattr(self.topology, name) if of_topology else super()._parameter_value(name)
