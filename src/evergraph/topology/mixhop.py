"""Separate hops or rings, for graphs whose neighbours differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Smoother, propagate, smoother, walk
from evergraph.graphs.csr import csr_tensor, densify
from evergraph.graphs.kernels.row_ranges import range_count, row_ranges
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.graphs.reachability import ball_blocks
from evergraph.topology.base import Stepwise, TopologyEncoder, topologies


@topologies.register
@dataclass(kw_only=True, eq=False, repr=False)
class MixHop(Stepwise, TopologyEncoder):
    """Concatenates the hops, each with its own columns (after Abu-El-Haija et al. 2019).

    E = [X, Â X, ..., Â^L X]; dims = features x number of hops kept.

    Args:
        kept_hops: which of the hops 0 .. L to keep; all by default.
        unit: whether scaling to unit length applies to each hop by itself, so that none
            outweighs another, instead of to the whole embedding.
    """

    name = "mixhop"

    kept_hops: Sequence[int] | None = None
    unit: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        hops = self.kept
        if not hops or not {*hops} <= {*range(self.hops + 1)} or len({*hops}) < len(hops):
            raise ConfigurationError(
                f"kept_hops must name at least one hop between 0 and hops={self.hops}, each once, "
                f"not {list(hops)}"
            )

    @property
    def kept(self) -> Sequence[int]:
        return range(self.hops + 1) if self.kept_hops is None else self.kept_hops

    @property
    def parts(self) -> int:
        return len(self.kept)

    @property
    def units(self) -> int:
        return self.parts if self.unit else 1

    @property
    def arrays(self) -> int:
        """Every hop, and those kept concatenated."""
        return self.hops + 1 + self.parts

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        steps = [graph.features, *walk(adjacency, graph.features, hops=self.hops)]
        return torch.cat([densify(steps[hop]) for hop in self.kept], dim=1)

    def hop_by_hop(self, graph: Graph) -> Iterator[Tensor]:
        """Yield the hops kept from near to far, holding only the last.

        graph: the result of ``inputs``.  -> float32 [nodes, d] each
        """
        adjacency = smoother(graph, self_loops=self.self_loops, held=self.dtype)
        steps = chain([graph.features], walk(adjacency, graph.features, hops=self.hops))
        for hop, step in enumerate(steps):
            if hop in self.kept:
                yield densify(step)

    @property
    def assembled(self) -> Sequence[int]:
        return self.kept

    def assemble(self, states: Sequence[Tensor]) -> Tensor:
        return torch.cat([states[hop] for hop in self.kept], dim=1)


# Wider features are projected to this width: inner products change by about 1/√2048, and on the
# 6,805 words of Coauthor-CS the accuracy is the same (docs/decisions/0034).
WIDEST = 2048


class ViewHops(MixHop):
    """Hops of projected features, each of unit length when scaled: E = [Â^h X S for kept hops h].

    S is the identity if features are at most ``widest`` wide, else a fixed random matrix
    [features, widest] with values from N(0, 1/widest) (Johnson and Lindenstrauss 1984): the cost
    of later steps is then bounded for features of any width.

    Args:
        kept_hops: the hops to keep.
        widest: maximum width of a hop; None for the width of the features.

    >>> graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.long), features=torch.eye(3),
    ...                          labels=torch.zeros(3, dtype=torch.long))
    >>> ViewHops(kept_hops=(0, 2)).encode(graph).shape
    torch.Size([3, 6])
    >>> ViewHops(kept_hops=(0,), widest=2).encode(graph).shape
    torch.Size([3, 2])
    """

    name = "view-hops"

    def __init__(
        self, *, kept_hops: Sequence[int], widest: int | None = WIDEST, dtype: RowType = "float32"
    ) -> None:
        hops = max(kept_hops, default=0)
        super().__init__(hops=hops, kept_hops=tuple(kept_hops), unit=True, dtype=dtype)
        self.widest = widest

    def inputs(self, graph: Graph) -> Graph:
        """Return the graph with its features projected if they are too wide."""
        if self.widest is None or graph.num_features <= self.widest:
            return graph
        generator = seeded(0, "narrower features", graph.num_features, self.widest)
        matrix = torch.randn(graph.num_features, self.widest, generator=generator)
        matrix = matrix.mul_(self.widest**-0.5).to(graph.device)
        return graph.with_features(graph.features @ matrix)


class EndOfHops(ViewHops):
    """Where hops of Â lead: one vector for all nodes that are connected, whatever the direction.

    E_v ∝ Σ √d_u x_u over the nodes u of v's component, with d the row sums of A + I. On an
    undirected graph Â^h x_v tends to √d_v times that for large h, so to the same vector of unit
    length, but takes some dozens of hops where a component is long.

    Args:
        widest: see ``ViewHops``.

    >>> graph = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(3),
    ...                          labels=torch.zeros(3, dtype=torch.long), undirected=True)
    >>> ends = EndOfHops()
    >>> ends.scaled(ends.encode(graph))
    tensor([[0.7071, 0.7071, 0.0000],
            [0.7071, 0.7071, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """

    name = "end-of-hops"

    def __init__(self, *, widest: int | None = WIDEST) -> None:
        super().__init__(kept_hops=(0,), widest=widest)

    def hop_by_hop(self, graph: Graph) -> Iterator[Tensor]:
        yield self._embed(graph, smoother(graph, self_loops=self.self_loops))

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        rows = densify(graph.features)
        component = _components(adjacency)
        scaled = (rows / adjacency.left.to(rows.device)[:, None]).cpu()  # left is 1 / √d
        # Not on a GPU, where the order of additions, and so the rounding, changes from run to run.
        sums = scaled.new_zeros(int(component.max(initial=-1)) + 1, scaled.shape[1])
        node_components = torch.from_numpy(component)
        return sums.index_add_(0, node_components, scaled)[node_components].to(rows.device)


def _components(adjacency: Smoother) -> npt.NDArray[np.int64]:
    """Return the number of every node's component, whatever the direction.  [nodes]

    Rows are read a range at a time, so that a graph in files need not fit into memory.
    """
    pointers = adjacency.indptr.cpu()
    nodes = len(adjacency.left)
    component = np.arange(nodes)
    for part in row_ranges(pointers, count=range_count(pointers, mapped=adjacency.mapped)):
        entries = pointers[part.start : part.stop + 1].diff().numpy()
        ends = component[part].repeat(entries), component[adjacency.entries(part).cpu().numpy()]
        links = scipy.sparse.coo_matrix((np.ones(len(ends[0]), bool), ends), shape=(nodes, nodes))
        _, merged = scipy.sparse.csgraph.connected_components(links, directed=False)
        component = merged.astype(np.int64)[component]
        adjacency.page_out(part)
    return component


@topologies.register
@dataclass(kw_only=True, eq=False, repr=False)
class H2GCN(TopologyEncoder):
    """Concatenates the means of rings at distance exactly 1 .. L (after Zhu et al. 2020).

    E = [X, Ā_1 X, ..., Ā_L X], where Ā_k joins nodes at distance exactly k, so ego, neighbours and
    neighbours' neighbours never mix. Ā_k is the mean over the ring: the original's symmetric
    weights would need the ring sizes of nodes 2L hops away, and an embedding must depend on its own
    ego-subnetwork only. Edge weights are not used. Rings are expanded in blocks of rows and never
    kept whole.

    dims = (hops + 1) x features.
    """

    name = "h2gcn"
    sees_weights = False

    self_loops: bool = False
    dtype: RowType = field(init=False, default="float32")

    @property
    def parts(self) -> int:
        return self.hops + 1

    @property
    def arrays(self) -> int:
        """Features and rings, and all of them concatenated."""
        return 2 * self.parts

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        features = densify(graph.features)
        rings = [torch.empty_like(features) for _ in range(self.hops)]
        for rows, balls in ball_blocks(graph, torch.arange(graph.num_nodes), hops=self.hops):
            for ring, (inner, outer) in zip(rings, pairwise(balls), strict=True):
                # The mean over the nodes in the outer ball and not in the inner one.
                shell = outer.astype(np.int8) - inner.astype(np.int8)
                shell.eliminate_zeros()
                sizes = np.diff(shell.indptr)
                shares = np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)
                pointers, indices, values = map(
                    torch.from_numpy, (shell.indptr, shell.indices, shares)
                )
                mean = csr_tensor(pointers, indices, values, shell.shape).to(features.device)
                ring[rows] = propagate(mean, features)
        return torch.cat([features, *rings], dim=1)
