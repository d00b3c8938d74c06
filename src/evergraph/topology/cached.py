"""Embeddings computed once per graph, and only where it has changed when it grows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from evergraph.core.errors import check_choice
from evergraph.core.mapped import fetch, put
from evergraph.core.resources import Resources
from evergraph.graphs import Graph
from evergraph.graphs.csr import ROWS_AT_A_TIME
from evergraph.graphs.reachability import covered_nodes, reaching_nodes
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.column_blocks import columns_of, encode_within
from evergraph.topology.mixhop import MixHop
from evergraph.topology.rowwise import unit_rows


class _Encoder(Protocol):  # an f_topo, scaled or not
    @property
    def hops(self) -> int: ...
    def encode(self, graph: Graph) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Growth:
    """The embeddings of a grown graph, and which of them changed.

    Attributes:
        embeddings: of all nodes.  float32 [nodes, dims]
        changed: whether each was recomputed, new nodes included.  bool [nodes]
    """

    embeddings: Tensor
    changed: Tensor

    @property
    def recomputed(self) -> int:
        """Number of embeddings computed."""
        return int(self.changed.sum())


def affected_nodes(graph: Graph, new: Tensor, *, hops: int) -> Tensor:
    """Return the nodes whose embedding may change when some new nodes arrive, these included.

    An embedding depends on the nodes within ``hops`` and on their degrees, or sums of edge weights.
    New nodes change themselves and the degrees of their neighbours, so the nodes that reach either
    within ``hops`` are affected. Edges between old nodes keep their weights.

    new: positions in ``graph``.  int64 [new]; -> bool [nodes]

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), features=torch.eye(5),
    ...                         labels=torch.zeros(5, dtype=torch.long), undirected=True)
    >>> affected_nodes(path, torch.tensor([4]), hops=1)  # 4 is new, 3 has another degree
    tensor([False, False,  True,  True,  True])
    """
    touched = reaching_nodes(graph, new, hops=1).nonzero().flatten()
    return reaching_nodes(graph, touched, hops=hops)


def encode_nodes(topology: _Encoder, graph: Graph, nodes: Tensor) -> Tensor:
    """Return the embeddings of some nodes, computed from their surroundings.  -> [nodes, dims]

    The subgraph extends one hop beyond the encoder's radius, for the degrees of the outermost
    nodes.
    """
    around = covered_nodes(graph, nodes, hops=topology.hops + 1).nonzero().flatten()
    embeddings = topology.encode(graph.subgraph(around))
    return embeddings[torch.searchsorted(around, nodes.cpu()).to(embeddings.device)]


def grown_embeddings(topology: _Encoder, graph: Graph, *, known: Tensor, old: Tensor) -> Growth:
    """Return the embeddings of a grown graph, computing only those that may have changed.

    known: embeddings in the earlier graph.  float32 [old, dims]; old: positions of its nodes in
    ``graph``, ascending; the others are new.  int64 [old]

    The known and the computed embeddings may be on different devices, since either may be too
    large for a GPU: the result is on the device of the known ones.
    """
    is_new = torch.ones(graph.num_nodes, dtype=torch.bool)
    is_new[old.cpu()] = False
    changed = affected_nodes(graph, is_new.nonzero().flatten(), hops=topology.hops) | is_new
    positions = changed.nonzero().flatten()
    embeddings = known.new_empty(graph.num_nodes, known.shape[1])
    embeddings[old.to(known.device)] = known
    recomputed = encode_nodes(topology, graph, positions)
    embeddings[positions.to(known.device)] = recomputed.to(known.device)
    return Growth(embeddings, changed)


Scaling = Literal["unit", "none"]
Storage = Literal["float32", "float16"]
STORAGES: dict[str, torch.dtype] = {"float32": torch.float32, "float16": torch.float16}
# Values of a hop in float32 that are held at a time if hops are kept in float16.
HALVED_AT_A_TIME = 1 << 23


class EmbeddingCache:
    """Encodes a graph at the first request and keeps the result while the graph exists.

    Args:
        topology: the f_topo.
        scaling: ``unit`` scales every embedding to unit length, ``none`` is the paper's.
        device: where embeddings are computed, and kept if they fit.
        storage: type in which embeddings are kept; ``float16`` takes half the memory and rounds
            every value to 3 digits.
        resources: memory that may be used; what does not fit is kept in files. Caches with the
            same cache encode a graph once together; ``seconds`` are those of the first.

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
        storage: Storage = "float32",
        resources: Resources | None = None,
    ) -> None:
        check_choice("scaling", scaling, ("unit", "none"))
        check_choice("storage", storage, STORAGES)
        self.topology = topology
        self.scaling = scaling
        self.device = torch.device(device)
        self.storage: Storage = storage
        self.resources = Resources() if resources is None else resources
        self.seconds = 0.0  # spent encoding
        self._embeddings: WeakKeyDictionary[Graph, Tensor] = WeakKeyDictionary()
        self._growths: WeakKeyDictionary[Graph, Growth] = WeakKeyDictionary()

    def __call__(self, graph: Graph, rows: Tensor | None = None) -> Tensor:
        """Return the embeddings of all nodes.  -> float32 [nodes, dims]

        rows: the nodes whose embeddings are returned, and not kept; None for all.  int64 [rows]
        """
        graph = self._as_encoded(graph)
        if graph in self._embeddings:
            known = self._embeddings[graph]
            return known if rows is None else known.index_select(0, rows.to(known.device))
        start = time.perf_counter()
        if self.device.type == "cuda":  # blocks of smaller graphs would stay reserved, unused
            torch.cuda.empty_cache()

        def encoded() -> Tensor:
            values = self.encode(graph) if rows is None else self.encode(graph, rows)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            return values

        if rows is not None:
            embeddings = encoded()
        elif self.resources.cache is None:
            embeddings = self._embeddings[graph] = encoded()
        else:
            parameters = repr(sorted(vars(self.topology).items()))
            key = (self.topology.name, parameters, self.scaling, self.storage, str(self.device))
            embeddings = self._embeddings[graph] = self.resources.cache.take(graph, key, encoded)
        self.seconds += time.perf_counter() - start
        return embeddings

    def _as_encoded(self, graph: Graph) -> Graph:
        """Return the graph with labels if f_topo reads them, otherwise without."""
        return graph if self.topology.reads_labels else graph.structure

    def grow(self, graph: Graph, *, known: Tensor, old: Tensor) -> Growth:
        """Encode a grown graph, only where it changed, once, and keep the result.

        known: earlier embeddings.  [old, dims]; old: the positions of their nodes.  int64 [old]
        """
        graph = self._as_encoded(graph)
        if graph in self._growths:
            return self._growths[graph]
        start = time.perf_counter()
        growth = grown_embeddings(self, graph, known=known, old=old)
        self._embeddings[graph], self._growths[graph] = growth.embeddings, growth
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - start
        return growth

    @property
    def hops(self) -> int:
        """Radius of an embedding."""
        return self.topology.hops

    def encode(self, graph: Graph, rows: Tensor | None = None) -> Tensor:
        """Return scaled embeddings without keeping them.  -> [nodes, dims], or [rows, dims]"""
        topology = self.topology
        one_worker = self.resources.engine.workers == 1
        to_unit_length = self.scaling == "unit"
        if one_worker and to_unit_length and isinstance(topology, MixHop) and topology.unit:
            return self._hop_by_hop(topology, graph, rows)
        return self._whole(graph, rows)

    def _hop_by_hop(self, topology: MixHop, graph: Graph, chosen: Tensor | None) -> Tensor:
        """Return scaled hops, of some nodes alone if they are given, not all held unscaled.

        Hops kept in float16 are computed on a CPU in blocks of columns: for 7,600 nodes with 12,000
        features, whole ones in float32 would take 1.1 GB. A block is scaled to unit length by
        itself and, once the other blocks are known, to its share of the whole length.
        """
        inputs = topology.inputs(graph)
        nodes = count = graph.num_nodes
        if chosen is not None:
            count = len(chosen)
            chosen = chosen.to(self.device)
        dims = inputs.num_features
        parts = topology.parts
        stored = STORAGES[self.storage]
        in_blocks = self.storage == "float16" and self.device.type == "cpu"
        step = max(HALVED_AT_A_TIME // max(nodes, 1), 64) if in_blocks else max(dims, 1)
        size = count * parts * dims * stored.itemsize
        fits = size + 12 * nodes * min(step, dims) <= self.resources.left_on(self.device)
        if not fits or (self.device.type == "cpu" and not self.resources.fits(size)):
            return self._whole(graph, chosen)
        result = torch.empty(count, parts * dims, dtype=stored, device=self.device)
        starts = range(0, dims, step)
        lengths = torch.ones(count, parts, len(starts), dtype=torch.float64, device=self.device)
        near_to_far = sorted(range(parts), key=topology.kept.__getitem__)
        for block, start in enumerate(starts):
            block_inputs = inputs
            if len(starts) > 1:
                columns = columns_of(inputs.features, start, start + step)
                block_inputs = inputs.with_features(columns)
            hops = topology.hop_by_hop(block_inputs.to(self.device))
            for part, hop in zip(near_to_far, hops, strict=True):
                for first in range(0, count, ROWS_AT_A_TIME):
                    rows = slice(first, first + ROWS_AT_A_TIME)
                    values = hop[rows] if chosen is None else hop.index_select(0, chosen[rows])
                    target = result[rows, part * dims + start :][:, : hop.shape[1]]
                    if stored == hop.dtype:
                        unit_rows(values, together=True, out=target)
                    else:
                        target.copy_(unit_rows(values, together=True))
                    if len(starts) > 1:
                        lengths[rows, part, block] = values.double().norm(dim=1)
        if len(starts) > 1:
            lengths /= lengths.norm(dim=2, keepdim=True).clamp_min(torch.finfo(lengths.dtype).tiny)
            for hop, shares in zip(result.split(dims, dim=1), lengths.unbind(1), strict=True):
                for values, share in zip(hop.split(step, dim=1), shares.float().t(), strict=True):
                    values.copy_(values * share[:, None])
        return result

    def _whole(self, graph: Graph, chosen: Tensor | None) -> Tensor:
        embeddings = encode_within(
            self.topology, graph, resources=self.resources, device=self.device
        )
        if chosen is not None:
            embeddings = embeddings.index_select(0, chosen.to(embeddings.device))
        stored = STORAGES[self.storage]
        if self.scaling == "none" and stored == embeddings.dtype:
            return embeddings
        result = embeddings
        features = graph.features
        # An f_topo may return the features themselves, which must not be scaled in place.
        is_own = features.layout != torch.strided or embeddings.data_ptr() != features.data_ptr()
        if stored != embeddings.dtype or not is_own:
            if embeddings.device.type == "cpu":
                result = self.resources.array(tuple(embeddings.shape), stored)
            else:
                result = torch.empty_like(embeddings, dtype=stored)
        for start in range(0, len(embeddings), ROWS_AT_A_TIME):
            rows = fetch(embeddings, start, start + ROWS_AT_A_TIME)
            if self.scaling == "unit":
                rows = self.topology.scaled(rows, together=True)
            put(result, start, rows)
        return result
