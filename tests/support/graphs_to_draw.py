"""Graphs small enough to draw, and random ones that are drawn anew from a seed."""

from collections.abc import Sequence

import torch
from hypothesis import settings
from torch import Tensor

from evergraph.graphs import UNLABELLED, Graph

Pairs = Sequence[tuple[int, int]]

# For a test that is run for several cases: fewer examples of each.
few_each = settings(max_examples=max(settings.default.max_examples // 2, 1))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def edge_index(pairs: Pairs) -> Tensor:
    """Return pairs (source, target) as PyG has them, none of them included.  [2, edges]"""
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def graph_of(
    pairs: Pairs,
    nodes: int = 6,
    *,
    features: Tensor | None = None,
    labels: Sequence[int] | None = None,
    undirected: bool = True,
) -> Graph:
    """Return a graph of these edges; node v has the feature v and no class unless they are given.

    Where they are, there are as many nodes as rows of features or labels.
    """
    for given in (labels, features):
        nodes = nodes if given is None else len(given)
    return Graph.from_edges(
        edge_index(pairs),
        features=torch.arange(float(nodes))[:, None] if features is None else features,
        labels=torch.tensor([UNLABELLED] * nodes if labels is None else labels).long(),
        undirected=undirected,
    )


def matrix_of(pairs: Pairs, nodes: int = 6, *, undirected: bool = False) -> Tensor:
    """Return A, with A[v, w] = 1 where w flows into v, from the definition.  [nodes, nodes]"""
    matrix = torch.zeros(nodes, nodes)
    for source, target in pairs:
        if source != target:
            matrix[target, source] = 1
            if undirected:
                matrix[source, target] = 1
    return matrix


def path_pairs(nodes: int) -> list[tuple[int, int]]:
    """0 - 1 - 2 - ..."""
    return [(node, node + 1) for node in range(nodes - 1)]


def star_pairs(leaves: int) -> list[tuple[int, int]]:
    """0 in the middle, 1, 2, ... around it."""
    return [(0, leaf) for leaf in range(1, leaves + 1)]


def ring_pairs(nodes: int) -> list[tuple[int, int]]:
    """0 - 1 - 2 - ... - 0"""
    return [(node, (node + 1) % nodes) for node in range(nodes)]


def random_graph(
    seed: int,
    *,
    nodes: int = 12,
    edges: int = 20,
    dims: int = 3,
    classes: int = 1,
    apart: int = 0,
    undirected: bool = True,
) -> Graph:
    """Return edges, normal features and classes drawn from a seed; the last few nodes apart."""
    generator = torch.Generator().manual_seed(seed)
    return Graph.from_edges(
        torch.randint(nodes - apart, (2, edges), generator=generator),
        features=torch.randn(nodes, dims, generator=generator),
        labels=torch.randint(classes, (nodes,), generator=generator),
        undirected=undirected,
    )
