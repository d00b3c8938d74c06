"""Graphs whose first feature is a node's own number, so that any position can be traced back."""

from torch import Tensor

from evergraph.graphs import Graph

Pairs = set[tuple[int, int]]


def ids(graph: Graph, nodes: Tensor | None = None) -> list[int]:
    """Return the numbers of nodes, by default of all."""
    numbers = graph.features[:, 0].int()
    found: list[int] = (numbers if nodes is None else numbers[nodes]).tolist()
    return found


def edges_of(graph: Graph) -> Pairs:
    """Return the edges by the numbers of their ends."""
    number = ids(graph)
    rows, columns = graph.edge_rows().tolist(), graph.indices.tolist()
    return {(number[s], number[t]) for s, t in zip(columns, rows, strict=True)}


def between(edges: Pairs, nodes: set[int]) -> Pairs:
    """Return the edges that join two of these nodes."""
    return {(s, t) for s, t in edges if s in nodes and t in nodes}
