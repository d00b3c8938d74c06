"""The network of hierarchical prototypes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.errors import ConfigurationError
from evergraph.nn.backbone import Recipe, backbones
from evergraph.nn.mlp import check_head
from evergraph.nn.pdgnn import PDGNN
from evergraph.nn.prototype_head import PrototypeHead
from evergraph.topology import MixHop

LEVELS = 3


@backbones.register
class PrototypeNetwork(PDGNN):
    """Atomic, node-level and class-level embeddings of a node (after Zhang et al., TPAMI 2022).

    Extractors are linear: B_i for a node's own attributes, C_j for its neighbours',

        a = unit(B_i x_v), unit(C_j x̄_h(v)),  h = 1 .. ``hops``,  [extractors (1 + hops), d_A]
        n = unit(W_N [a]),  c = unit(W_C n),  scores = V [a, n, c] + b,

    where a, n and c are replaced by the nearest prototype of their level once there are any: see
    ``hpn``, which establishes them; with other methods the network is one without prototypes.

    x̄_h(v) is the weighted sum over walks of h steps (Â without self-loops): the paper draws some
    neighbours of each hop instead, and extracts from each.

    Args:
        hops: how far the neighbours are that attributes are extracted from.
        extractors: how many of each of the two kinds.
        widths: d_A, d_N, d_C. Few prototypes cover a sphere of few dimensions closely: with d_A = 4
            about 50 leave no cosine below 0.8, with d_A = 16 thousands do.
        dropout: share of what enters the last layer dropped in training.

    >>> from evergraph.graphs import Graph
    >>> graph = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                          labels=torch.tensor([0, 1]), undirected=True)
    >>> model = PrototypeNetwork(extractors=4)
    >>> model.begin(2, generator=torch.Generator())
    >>> model.grow(3, generator=torch.Generator())
    >>> model.eval()(model.prepare(graph)).shape
    torch.Size([2, 3])
    """

    name = "prototypes"
    recipe = Recipe(epochs=30, lr=0.005, weight_decay=1e-5, batch_size=512)
    head: PrototypeHead | None  # type: ignore[assignment]

    def __init__(
        self,
        *,
        hops: int = 2,
        extractors: int = 32,
        widths: Sequence[int] = (4, 64, 64),
        dropout: float = 0.5,
    ) -> None:
        check_integer("hops", hops, least=1)
        check_integer("extractors", extractors, least=1)
        if len(widths) != LEVELS:
            raise ConfigurationError(
                f"widths must be {LEVELS} integers, one a level, not {list(widths)!r}"
            )
        check_head(tuple(widths), dropout)
        topology = MixHop(hops=hops, self_loops=False, unit=True)
        super().__init__(topology=topology, hidden=(), dropout=dropout)
        self.extractors = extractors
        self.widths = tuple(widths)

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        """Make the extractors and the maps between the levels."""
        atomic, node, cls = self.widths
        self.head = PrototypeHead(
            dims,
            hops=self.hops,
            extractors=self.extractors,
            widths=(atomic, node, cls),
            dropout=self.dropout,
            generator=generator,
        ).to(self.device)

    def width_of(self, inputs: Tensor) -> int:
        """Return how many attributes a node has."""
        return inputs.shape[1] // (self.hops + 1)
