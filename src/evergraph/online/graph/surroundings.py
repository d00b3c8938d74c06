"""Live embeddings of an f_topo that is not a recursion over hops."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.topology import TopologyEncoder


class Surroundings:
    """Any f_topo, encoded again for the nodes that a change affects.

    Only embeddings are kept between changes. Affected nodes are encoded together with all nodes
    within L + 1 hops (the degrees of the outermost matter), so a change costs its neighbourhood of
    2L + 1 hops; an f_topo that is a recursion over hops costs L (see ``HopStates``). Equal changes
    give equal bits, but the last bits of a row may depend on the rows it is computed with.

    Args:
        topology: the f_topo.
        num_features: width of the features.
    """

    def __init__(self, topology: TopologyEncoder, num_features: int) -> None:
        self.topology = topology
        # The width is found by encoding a graph of one node.
        single = Graph.from_edges(
            torch.empty(2, 0, dtype=torch.int64),
            features=torch.zeros(1, num_features),
            labels=torch.zeros(1).long(),
        )
        self.dims = topology.encode(single).shape[1]
        self._embeddings = GrowingArray(self.dims)  # unscaled

    def update(
        self,
        graph: GrowingGraph,
        change: GraphChange,
        renewed: Tensor | None = None,
        former: Tensor | None = None,
    ) -> Tensor:
        """Follow a change; return the affected nodes.  int64 [n], ascending"""
        self._embeddings.extend(graph.num_nodes - len(self._embeddings))
        self._embeddings.array[change.removed.numpy()] = 0
        changed, embeddings = self._encoded(graph, change, renewed)
        self._embeddings.tensor[changed] = embeddings
        return changed

    def _encoded(
        self, graph: GrowingGraph, change: GraphChange, renewed: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the nodes that a change affects, and their embeddings.  [k], [k, dims]"""
        changed = change.new
        if renewed is not None:
            changed = torch.cat([changed, renewed]).unique()
        for hop in range(self.topology.hops):
            seeds = torch.cat([changed, change.touched]) if hop == 0 else changed
            changed = graph.gatherers(seeds)
        if not len(changed):
            return changed, torch.empty(0, self.dims)
        around = changed
        for _ in range(self.topology.hops + 1):
            near = torch.from_numpy(graph.rows(around)[1]).long()
            around = torch.cat([around, near]).unique()
        embeddings = self.topology.encode(graph.induced(around))
        return changed, embeddings[torch.searchsorted(around, changed)]

    def of(self, nodes: Tensor) -> Tensor:
        """Return the embeddings of some nodes, unscaled.  int64 [k] -> float32 [k, dims]"""
        return self._embeddings.tensor[nodes]

    def attach(self, graph: GrowingGraph) -> None:
        """Attach a restored graph; after an old snapshot all nodes are encoded again."""
        if not len(self._embeddings) and graph.num_nodes:
            self.update(graph, GraphChange(new=graph.alive.nonzero().flatten()))

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield self._embeddings

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {"unscaled": self._embeddings.state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        if "unscaled" in state:
            self._embeddings.restore(state["unscaled"])
