"""Hops kept apart, for graphs whose neighbours differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Smoother, smoother, walk
from evergraph.graphs.csr import densify
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.topology.base import Stepwise, TopologyEncoder, topologies
from evergraph.topology.rowwise import unit_rows


@topologies.register
class MixHop(Stepwise, TopologyEncoder):
    """E = [X, Â X, ..., Â^L X]: every hop its own columns (after Abu-El-Haija et al. 2019).

    dims = features x how many hops are kept.

    Args:
        hops, self_loops, rows: see ``TopologyEncoder``.
        keep: which of the hops 0 .. L to keep; all unless given.
        unit: whether scaling to unit length divides each hop by its own length, so that none
            outweighs another, instead of all by one.
    """

    name = "mixhop"

    def __init__(
        self,
        *,
        hops: int = 2,
        self_loops: bool = True,
        keep: Sequence[int] | None = None,
        unit: bool = False,
        rows: RowType = "float32",
    ) -> None:
        super().__init__(hops=hops, self_loops=self_loops, rows=rows)
        if keep is not None and not (keep and set(keep) <= set(range(hops + 1))):
            raise ConfigurationError(
                f"keep must name hops between 0 and hops={hops}, at least one, not {list(keep)}"
            )
        self.keep = keep
        self.unit = unit

    @property
    def kept(self) -> Sequence[int]:
        """The hops kept."""
        return range(self.hops + 1) if self.keep is None else self.keep

    @property
    def parts(self) -> int:
        """A column for every hop kept."""
        return len(self.kept)

    @property
    def arrays(self) -> int:
        """Every hop, and those kept once more side by side."""
        return self.hops + 1 + self.parts

    def scaled(self, rows: Tensor, *, together: bool = False) -> Tensor:
        """Return embeddings divided by their lengths, hop by hop if ``unit``."""
        if not self.unit:
            return super().scaled(rows, together=together)
        unit = torch.empty_like(rows)
        pairs = zip(*(part.tensor_split(self.parts, dim=1) for part in (rows, unit)), strict=True)
        for hop, out in pairs:
            unit_rows(hop, together=together, out=out)
        return unit

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        steps = [graph.features, *walk(adjacency, graph.features, hops=self.hops)]
        return torch.cat([densify(steps[hop]) for hop in self.kept], dim=1)

    def hop_by_hop(self, graph: Graph) -> Iterator[Tensor]:
        """Yield the hops kept one after the other, of which only the last is held.

        graph: what ``inputs`` returned.  -> float32 [nodes, d] each
        """
        adjacency = smoother(graph, self_loops=self.self_loops, held=self.rows)
        steps = chain([graph.features], walk(adjacency, graph.features, hops=self.hops))
        for hop, step in enumerate(steps):
            if hop in self.kept:
                yield densify(step)

    @property
    def assembled(self) -> Sequence[int]:
        """The hops kept."""
        return self.kept

    def assemble(self, states: Sequence[Tensor]) -> Tensor:
        """Return the hops kept, side by side."""
        return torch.cat([states[hop] for hop in self.kept], dim=1)


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
        widest: how wide a hop may be; None: as wide as features are.
        rows: see ``TopologyEncoder``.

    >>> graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.long), features=torch.eye(3),
    ...                          labels=torch.zeros(3, dtype=torch.long))
    >>> ViewHops(keep=(0, 2)).encode(graph).shape, ViewHops(keep=(0,), widest=2).encode(graph).shape
    (torch.Size([3, 6]), torch.Size([3, 2]))
    """

    name = "view-hops"

    def __init__(
        self, *, keep: Sequence[int], widest: int | None = WIDEST, rows: RowType = "float32"
    ) -> None:
        super().__init__(hops=max(keep, default=0), keep=tuple(keep), unit=True, rows=rows)
        self.widest = widest

    def inputs(self, graph: Graph) -> Graph:
        """Return the graph with its features turned into few enough."""
        if self.widest is None or graph.num_features <= self.widest:
            return graph
        generator = seeded(0, "narrower features", graph.num_features, self.widest)
        matrix = torch.randn(graph.num_features, self.widest, generator=generator)
        matrix = matrix.mul_(self.widest**-0.5).to(graph.device)
        return graph.with_features(graph.features @ matrix)
