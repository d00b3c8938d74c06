"""Several graphs as one disjoint graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from evergraph.graphs.csr import as_csr, csr_tensor, densify, pointer_type
from evergraph.graphs.graph import Graph
from evergraph.graphs.relations import side_by_side, types_side_by_side
from evergraph.graphs.targets import Targets
from evergraph.graphs.validation import check_count


def disjoint_union(graphs: Sequence[Graph]) -> Graph:
    """Return one graph that holds all of them, unconnected, with nodes numbered in sequence.

    Features are sparse if the first graph's are; times are kept if every graph has them. If one
    has weights, edges of the others have weight 1. Relations of the same name are merged; types are
    kept if every graph has them.
    """
    sizes = [graph.num_nodes for graph in graphs]
    offsets = list(accumulate(sizes, initial=0))
    check_count(offsets[-1])
    times = [graph.time for graph in graphs if graph.time is not None]
    weighted = any(graph.weights is not None for graph in graphs)
    entries = sum(graph.num_edges for graph in graphs)
    return Graph(
        _pointers([graph.indptr for graph in graphs]).to(pointer_type(entries)),
        torch.cat([g.indices + offset for g, offset in zip(graphs, offsets, strict=False)]),
        _stacked([graph.features for graph in graphs]),
        torch.cat([graph.labels for graph in graphs]),
        torch.cat(times) if len(times) == len(graphs) else None,
        all(graph.undirected for graph in graphs),
        weights=torch.cat([_weights(graph) for graph in graphs]) if weighted else None,
        targets=Targets.joined([graph.targets for graph in graphs]),
        relations=side_by_side([graph.relations for graph in graphs], sizes),
        types=types_side_by_side([graph.types for graph in graphs]),
    )


def _weights(graph: Graph) -> Tensor:
    """Return the weights of a graph's edges.  float32 [edges]"""
    if graph.weights is None:
        return torch.ones(graph.num_edges, device=graph.device)
    return graph.weights


def _pointers(parts: Sequence[Tensor]) -> Tensor:
    """Return the row pointers of matrices one below the other.  int64 [all rows + 1]"""
    ends = accumulate((int(part[-1]) for part in parts), initial=0)
    moved = [part[1:].long() + offset for part, offset in zip(parts, ends, strict=False)]
    return torch.cat([parts[0][:1].long(), *moved])


def _stacked(features: Sequence[Tensor]) -> Tensor:
    """Stack rows; the result is sparse if the first part is."""
    assert len({part.shape[1] for part in features}) == 1, "features must have the same width"
    if features[0].layout == torch.strided:
        return torch.cat([densify(part) for part in features])
    parts = [as_csr(part) for part in features]
    return csr_tensor(
        _pointers([part.crow_indices() for part in parts]),
        torch.cat([part.col_indices() for part in parts]),
        torch.cat([part.values() for part in parts]),
        (sum(part.shape[0] for part in parts), parts[0].shape[1]),
    )
