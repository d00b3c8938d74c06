"""Embeddings of a graph that has grown, from those of the graph before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.graphs.reach.reach import covered_nodes, reaching_nodes


class Encoder(Protocol):
    """An f_topo, scaled or not."""

    @property
    def hops(self) -> int:
        """How far an embedding looks."""
        ...

    def encode(self, graph: Graph) -> Tensor:
        """Return the embeddings of all nodes.  -> float32 [nodes, dims]"""
        ...


@dataclass(frozen=True, eq=False)
class Growth:
    """What became of embeddings when nodes arrived.

    Attributes:
        embeddings: of all nodes.  float32 [nodes, dims]
        changed: which were computed anew, new nodes included.  bool [nodes]
    """

    embeddings: Tensor
    changed: Tensor

    @property
    def recomputed(self) -> int:
        """How many embeddings were computed."""
        return int(self.changed.sum())


def affected_nodes(graph: Graph, new: Tensor, *, hops: int) -> Tensor:
    """Return whose embedding may differ from the one without some new nodes, these included.

    An embedding looks at the nodes within ``hops`` and at their degrees, or the sums of the weights
    of their edges. What changes is there the new nodes and the degrees of their neighbours, so the
    nodes that reach either within ``hops``. Edges between nodes that were there keep their weights.

    new: positions in ``graph``.  int64 [new]; -> bool [nodes]

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), features=torch.eye(5),
    ...                         labels=torch.zeros(5, dtype=torch.long), undirected=True)
    >>> affected_nodes(path, torch.tensor([4]), hops=1)  # 4 is new, 3 has another degree
    tensor([False, False,  True,  True,  True])
    """
    touched = reaching_nodes(graph, new, hops=1).nonzero().flatten()
    return reaching_nodes(graph, touched, hops=hops)


def encode_nodes(topology: Encoder, graph: Graph, nodes: Tensor) -> Tensor:
    """Return the embeddings of some nodes, from what lies around them alone.  -> [nodes, dims]

    One hop more than the encoder looks is taken along: the degrees of the outermost nodes count.
    """
    around = covered_nodes(graph, nodes, hops=topology.hops + 1).nonzero().flatten()
    embeddings = topology.encode(graph.subgraph(around))
    return embeddings[torch.searchsorted(around, nodes.cpu()).to(embeddings.device)]


def grown_embeddings(topology: Encoder, graph: Graph, *, known: Tensor, old: Tensor) -> Growth:
    """Return the embeddings of a grown graph, computing only those that may have changed.

    known: embeddings in the graph before.  float32 [old, dims]; old: positions of its nodes in
    ``graph``, ascending; the others are new.  int64 [old]

    What is known may be on one device and what is computed on another, since either may be too
    large for a GPU: all embeddings come back where the known ones are.
    """
    is_new = torch.ones(graph.num_nodes, dtype=torch.bool)
    is_new[old.cpu()] = False
    changed = affected_nodes(graph, is_new.nonzero().flatten(), hops=topology.hops) | is_new
    places = changed.nonzero().flatten()
    embeddings = known.new_empty(graph.num_nodes, known.shape[1])
    embeddings[old.to(known.device)] = known
    anew = encode_nodes(topology, graph, places)
    embeddings[places.to(known.device)] = anew.to(known.device)
    return Growth(embeddings, changed)
