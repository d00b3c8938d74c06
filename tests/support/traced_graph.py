"""Graphs whose first feature is a node's own number, so that any position can be traced back."""

from torch import Tensor

from evergraph.graphs import Graph

Pairs = set[tuple[int, int]]


def ids(graph: Graph, nodes: Tensor | None = None) -> list[int]:
    numbers = graph.features[:, 0].int()
    found: list[int] = (numbers if nodes is None else numbers[nodes]).tolist()
    return found


def edges_of(graph: Graph) -> Pairs:
    number = ids(graph)
    rows, columns = graph.edge_rows().tolist(), graph.indices.tolist()
    return {(number[s], number[t]) for s, t in zip(columns, rows, strict=True)}


def between(edges: Pairs, nodes: set[int]) -> Pairs:
    return {(s, t) for s, t in edges if s in nodes and t in nodes}
