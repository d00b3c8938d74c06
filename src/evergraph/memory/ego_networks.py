"""Ego-subnetworks of stored nodes, whole or sparsified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.graphs.csr import first_of_each_row, row_entries

Rank = Callable[[Tensor], Tensor]
"""From entries of the adjacency to numbers, smaller is kept first.  int64 [n] -> [n]"""


@dataclass(frozen=True, eq=False)
class EgoNetworks:
    """The ego-subnetworks of some nodes, laid over each other in one graph.

    Attributes:
        graph: every node and edge kept, once.
        centres: positions in ``graph`` of the nodes they belong to.  int64 [centres]
        hops: how far from a centre what is kept for it may lie.
    """

    graph: Graph
    centres: Tensor
    hops: int


def ego_networks(
    graph: Graph, centres: Tensor, *, hops: int, neighbours: int | None = None, rank: Rank
) -> EgoNetworks:
    """Return what ``hops`` steps outward from the centres meet, at most ``neighbours`` a node.

    Each node met keeps those of its neighbours that rank lowest; all of them with
    ``neighbours=None``. A kept edge works both ways where the graph's does. Nodes that several
    ego-subnetworks share are kept once. All centres go outward together, a hop at a time, on the
    device that holds the graph; ``rank`` is given entries there.
    """
    device = graph.device
    centres = centres.to(device)
    kept = torch.zeros(graph.num_edges, dtype=torch.bool, device=device)
    met = torch.zeros(graph.num_nodes, dtype=torch.bool, device=device)
    met[centres] = True
    layer = met.nonzero().flatten()
    for _ in range(hops):
        owners, entries = row_entries(graph.indptr, layer)
        if neighbours is not None:
            ranks = rank(entries).to(device)
            entries = entries[first_of_each_row(owners, ranks, neighbours)]
        kept[entries] = True
        found = torch.zeros_like(met)
        found[graph.indices[entries].long()] = True
        layer = (found & ~met).nonzero().flatten()
        met |= found
    nodes = met.nonzero().flatten()
    both_ways = kept | kept[_reverse(graph)] if graph.num_edges else kept
    inside = graph.subgraph(nodes, keep=both_ways)
    return EgoNetworks(inside, torch.searchsorted(nodes, centres), hops)


def isolated(graph: Graph, centres: Tensor) -> EgoNetworks:
    """Return the centres alone, with the edges among them."""
    centres = centres.to(graph.device)
    nodes = centres.sort().values
    return EgoNetworks(graph.subgraph(nodes), torch.searchsorted(nodes, centres), 0)


def _reverse(graph: Graph) -> Tensor:
    """Return for every entry (v, u) where (u, v) is; itself where it is not.  int64 [edges]"""
    rows, columns = graph.edge_rows(), graph.indices.long()
    keys = rows * graph.num_nodes + columns  # ascending, since rows and columns are
    wanted = columns * graph.num_nodes + rows
    places = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
    return torch.where(keys[places] == wanted, places, torch.arange(len(keys), device=keys.device))
