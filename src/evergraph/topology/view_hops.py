"""The hops that views are made of, each kept apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.topology.mixhop import MixHop

# Features wider than this are turned into so many: inner products are kept to about 1/√2048, and
# on 6,805 words of Coauthor-CS as many answers are right (docs/decisions/0034).
WIDEST = 2048


class ViewHops(MixHop):
    """E = [Â^h X S for the hops h kept], each hop of unit length when scaled.

    S is the identity where features are at most ``widest`` wide, else a fixed random matrix
    [features, widest] with values from N(0, 1/widest) (Johnson and Lindenstrauss 1984): all that
    comes after costs no more for features of any width.

    Args:
        keep: which hops.
        widest: how wide a hop may be.
        rows: see ``TopologyEncoder``.

    >>> graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.long), features=torch.eye(3),
    ...                          labels=torch.zeros(3, dtype=torch.long))
    >>> ViewHops(keep=(0, 2)).encode(graph).shape, ViewHops(keep=(0,), widest=2).encode(graph).shape
    (torch.Size([3, 6]), torch.Size([3, 2]))
    """

    name = "view-hops"

    def __init__(
        self, *, keep: Sequence[int], widest: int = WIDEST, rows: RowType = "float32"
    ) -> None:
        super().__init__(hops=max(keep, default=0), keep=tuple(keep), unit=True, rows=rows)
        self.widest = widest

    def inputs(self, graph: Graph) -> Graph:
        """Return the graph with its features turned into few enough."""
        if graph.num_features <= self.widest:
            return graph
        generator = seeded(0, "narrower features", graph.num_features, self.widest)
        matrix = torch.randn(graph.num_features, self.widest, generator=generator)
        matrix = matrix.mul_(self.widest**-0.5).to(graph.device)
        return graph.with_features(graph.features @ matrix)
