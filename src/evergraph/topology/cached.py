"""Embeddings computed once per graph, never per epoch."""

from __future__ import annotations

import time
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.graphs import Graph
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.growth import Growth, grown_embeddings

Scaling = Literal["unit", "none"]


class EmbeddingCache:
    """Encodes a graph the first time it is asked for and keeps the result while the graph lives.

    Args:
        topology: the f_topo.
        scaling: ``unit`` divides every embedding by its length, ``none`` is the paper's.
        device: where embeddings are computed and kept.

    >>> from evergraph.topology import Identity
    >>> graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.long),
    ...                          features=torch.tensor([[3., 4.]]), labels=torch.tensor([0]))
    >>> EmbeddingCache(Identity(), scaling="unit")(graph)
    tensor([[0.6000, 0.8000]])
    """

    def __init__(
        self,
        topology: TopologyEncoder,
        *,
        scaling: Scaling = "unit",
        device: torch.device | str = "cpu",
    ) -> None:
        check_choice("scaling", scaling, ("unit", "none"))
        self.topology = topology
        self.scaling = scaling
        self.device = torch.device(device)
        self.seconds = 0.0  # spent encoding
        self._kept: WeakKeyDictionary[Graph, Tensor] = WeakKeyDictionary()
        self._grown: WeakKeyDictionary[Graph, Growth] = WeakKeyDictionary()

    def __call__(self, graph: Graph) -> Tensor:
        """Return the embeddings of all nodes.  -> float32 [nodes, dims]"""
        if graph not in self._kept:
            start = time.perf_counter()
            self._kept[graph] = self.encode(graph)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.seconds += time.perf_counter() - start
        return self._kept[graph]

    def grow(self, graph: Graph, *, known: Tensor, old: Tensor) -> Growth:
        """Encode a graph that has grown, only where it changed, once, and keep the result as well.

        known: embeddings of the graph before.  [old, dims]; old: its nodes' positions.  int64 [old]
        """
        if graph in self._grown:
            return self._grown[graph]
        start = time.perf_counter()
        growth = grown_embeddings(self, graph.to(self.device), known=known, old=old)
        self._kept[graph], self._grown[graph] = growth.embeddings, growth
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - start
        return growth

    @property
    def hops(self) -> int:
        """How far an embedding looks."""
        return self.topology.hops

    def encode(self, graph: Graph) -> Tensor:
        """Return scaled embeddings of all nodes, and keep nothing.  -> float32 [nodes, dims]"""
        embeddings = self.topology.encode(graph.to(self.device))
        if self.scaling == "none":
            return embeddings
        return torch.nn.functional.normalize(embeddings, dim=1)
