"""A fixed random expansion of the embedding with a linear head."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from weakref import ref

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from evergraph.core.component import choice, integer
from evergraph.graphs.kernels.row_ranges import tiled_product
from evergraph.nn.backbone import backbones
from evergraph.nn.linear import Linear, dropout_mask
from evergraph.nn.pdgnn import PDGNN
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
    # m, the number of features drawn, of which these may be the first; all by default
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


# Features of rows requested repeatedly as the same tensor, as a test set is after every task, are
# computed once and kept if they are no larger than this.
KEPT_BYTES = 1 << 26


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
        self._kept = WeakIdKeyDictionary()  # rows -> the whole tensor, and their features

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
        """Return φ(e) V of some embeddings.  -> [rows, classes]"""
        assert self.head is not None
        if not self.training:
            return torch.cat([self.head(part) for part in self._parts(inputs, rows)])
        features = self.expand(self.taken(inputs, rows))
        if self.dropout:
            assert generator is not None, "dropout needs a generator"
            features *= dropout_mask(features.shape, self.dropout, generator=generator)
        scores: Tensor = self.head(features)
        return scores

    def _parts(self, inputs: Tensor, rows: Tensor | None) -> Iterable[Tensor]:
        """Return φ(e) of some embeddings in blocks, from the cache if possible."""
        if rows is None or 4 * self.width * len(rows) > KEPT_BYTES:
            return map(self.expand, self.blocks(self.taken(inputs, rows)))
        # A tensor's version shows whether it has been written to since.
        state = rows._version, inputs._version, int(self.seed), self.centre._version
        whole, known, parts = self._kept.get(rows, (lambda: None, None, []))
        if whole() is not inputs or known != state:
            parts = [*map(self.expand, self.blocks(self.taken(inputs, rows)))]
            if self.embeddings.resources.fits(sum(part.nbytes for part in parts)):
                self._kept[rows] = ref(inputs), state, parts
        found: list[Tensor] = parts
        return found

    def step_work(self, rows: int) -> int | None:
        """Return the number of multiplications of φ(e) V for this many rows."""
        of_head = super().step_work(rows)
        return None if of_head is None else of_head + rows * self._dims * self.width

    def hidden_states(self, inputs: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return φ(e).  -> [rows, width]"""
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
        mine, theirs = (
            (int(b.seed), b.activation, b.width, b._dims, b.scaling, b.topology.name)
            for b in (self, other)
        )
        looks = vars(self.topology) == vars(other.topology)
        return mine == theirs and looks and self.centre.cpu().equal(other.centre.cpu())
